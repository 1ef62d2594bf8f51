"""Perfect recall: q(u_t | everything observed and done), which no table can hold but a search can find.

States, observations and parameters are the generative model's. The agent sees its controls and *all* observations,
those with ``plan=False`` too; whether a state is marked hidden, and what a memory holds, does not matter.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from npro_aif.errors import GuideError
from npro_aif.guides.base import Params, Table, TableGuide
from npro_aif.tables.world import World


class RecallGuide(TableGuide):
    """The posterior whose policy remembers everything; it is used with :class:`npro_aif.SearchSolver`.

    :param model: the program to plan with.

    >>> from npro_aif.models.tmaze import tmaze
    >>> RecallGuide(tmaze).recalls
    True
    """

    scope = "recall"
    any_horizon = True
    recalls: ClassVar[bool] = True  # the policy depends on everything observed and done

    def check(self, world: World, num_steps: int) -> None:
        """Refuse solvers that compile tables; only search does without them."""
        self._refuse()

    def tables(self, world: World, num_steps: int) -> dict[str, Table]:
        return {}

    def posterior(self, world: World, params: Params, num_steps: int) -> NoReturn:
        self._refuse()

    def draw(self, world: World, posterior: Any, num_steps: int) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise GuideError(
            "RecallGuide: found a call for tables, expected plans by search (it has no parameters to learn): "
            "aif.Planner(model, aif.guides.RecallGuide(model), aif.Planning(), aif.SearchSolver())"
        )
