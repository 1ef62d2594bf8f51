"""The planning problem as tables: p(θ), p(x0|θ), p(u|x), p(x'|x,u,θ), p(y|x,θ) and the preferences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array

from npro_aif.program.signature import Signature
from npro_aif.sizes import is_small
from npro_aif.tables.index import IndexEmission
from npro_aif.tables.kernels import Emission, Transition
from npro_aif.tables.labels import Labels, find_labels
from npro_aif.tables.layout import select_parameters
from npro_aif.tables.loop import Loop


class World(NamedTuple):
    """The planning problem; an axis on which a table does not depend has size 1."""

    parameter: Array  # (Θ,) log p(θ)
    initial: Array  # (Θ, X) log p(x0|θ)
    control: Array  # (T|1, X|1, U) log p(u|x)
    state: Transition  # (T|1, Θ|1, X|1, U|1, X') p(x'|x,u,θ)
    observation: dict[str, Emission]  # by site, (T|1, Θ|1, X', Y) p(y|x',θ)
    sensor: dict[str, Emission]  # as observation, for belief updates only
    preference: dict[str, Array]  # by name, (T|1, Θ|1, X|1, U|1, X'|1) log p̂
    observation_preference: dict[str, tuple[Array, ...]]  # by observation site, (T|1, Θ|1, X'|1, Y) log p̂
    horizon: Array  # () the number of steps that count
    theta: Array  # (Θ,) the flat parameter index of each row
    loop: Loop  # what the policy sees, and what it remembers
    certain: IndexEmission | None  # all certain observations of a slice merged (npro_aif.tables.joint)
    signature: Signature
    labels: Labels | None = None  # the same in the form that passes over time need in a large world

    @property
    def num_controls(self) -> int:
        return self.control.shape[-1]

    @property
    def kernels(self) -> tuple[Any, ...]:
        """Transition and emissions."""
        return self.state, self.observation, self.sensor, self.certain

    def seeing_everything(self) -> World:
        """The world whose policy sees every state and remembers nothing."""
        return self._replace(loop=self.loop.opened())

    def select(self, theta: Array) -> World:
        """The world's kernels and preferences with only the rows ``theta`` of the parameters."""
        return self.over_parameters(lambda kernel: kernel.select(theta), lambda table: select_parameters(table, theta))

    def rows(self, theta: Array) -> World:
        """The world with only the rows ``theta`` of p(θ) and p(x0|θ)."""
        return self._replace(parameter=self.parameter[theta], initial=self.initial[theta], theta=self.theta[theta])

    def rows_vary(self, varies: World) -> bool:
        """Whether a kernel or a preference that varies has a row for each parameter.

        :param varies: a world with True and False in place of arrays.
        """
        sees = self.over_parameters(lambda kernel: kernel.sees_parameters, lambda table: table.shape[1] > 1)
        parts = zip(_parts(sees), _parts(varies), strict=True)
        return any(has_rows and any(jax.tree.leaves(changes)) for has_rows, changes in parts)

    def routed(self) -> World:
        """The world whose transition and observations are ready for a loop over time."""
        labels, (num_parameters, num_states) = None, self.initial.shape
        if not self.loop.closed and not is_small(num_parameters, num_states, self.num_controls):
            labels = find_labels(self.certain, self.observation, num_parameters, num_states)
        return self._replace(state=self.state.routed(num_parameters, num_states), labels=labels)

    def prepared(self) -> World:
        """The world whose kernels have the tables that are worth computing once."""
        world = self.over_parameters(lambda kernel: kernel.prepared(), lambda table: table)
        return world if world.certain is None else world._replace(certain=world.certain.counted())

    def narrowed(self) -> World:
        """The world whose tables of certain outcomes take few bytes; not the memories', which are computed with."""
        if self.loop.closed:
            return self
        return self.over_parameters(lambda kernel: kernel.narrowed(), lambda table: table)

    def without_parameters(self) -> World:
        """The world's kernels and preferences that are the same for all parameters; None for the others."""
        return self.over_parameters(
            lambda kernel: None if kernel.sees_parameters else kernel,
            lambda table: table if table.shape[1] == 1 else None,
        )

    def without(self, varying: World) -> World:
        """The world with None for every table in which something varies.

        :param varying: a world with True and False in place of arrays.
        """

        def constant(table: Any, varies: Any) -> Any:
            return None if any(jax.tree.leaves(varies)) else table

        return _each(constant, constant, self, varying)

    def filled(self, fresh: World) -> World:
        """The world with the tables of another in place of None, guarded because their numbers were not checked."""
        return _each(
            lambda own, other: other.guarded().prepared() if own is None else own,
            lambda own, other: other if own is None else own,
            self,
            fresh,
        )

    def over_parameters(self, kernel: Callable[[Any], Any], table: Callable[[Array], Any]) -> World:
        """Apply one function to every kernel, and another to every preference's table (T|1, Θ|1, …)."""

        def apply(function: Callable[[Any], Any], value: Any) -> Any:
            return None if value is None else function(value)

        return self._replace(
            state=apply(kernel, self.state),
            observation={name: apply(kernel, k) for name, k in self.observation.items()},
            sensor={name: apply(kernel, k) for name, k in self.sensor.items()},
            certain=apply(kernel, self.certain),
            preference={name: apply(table, t) for name, t in self.preference.items()},
            observation_preference={
                name: tuple(apply(table, t) for t in tables) for name, tables in self.observation_preference.items()
            },
        )


def _each(kernel: Callable[[Any, Any], Any], array: Callable[[Any, Any], Any], world: World, other: World) -> World:
    """A function of every kernel of one world and the same one of another, and one of every other table."""

    def by_name(function: Callable[[Any, Any], Any], field: str) -> dict[str, Any]:
        others = getattr(other, field)
        return {name: function(table, others[name]) for name, table in getattr(world, field).items()}

    arrays = ("parameter", "initial", "control", "horizon", "theta", "loop")
    return world._replace(
        **{field: array(getattr(world, field), getattr(other, field)) for field in arrays},
        state=kernel(world.state, other.state),
        observation=by_name(kernel, "observation"),
        sensor=by_name(kernel, "sensor"),
        certain=None if other.certain is None else kernel(world.certain, other.certain),
        preference=by_name(array, "preference"),
        observation_preference=by_name(lambda a, b: tuple(map(array, a, b)), "observation_preference"),
    )


def _parts(world: World) -> list[Any]:
    """The kernels and the preferences of a world, in one order."""
    kernels = [world.state, world.certain, *world.observation.values(), *world.sensor.values()]
    by_observation = [table for tables in world.observation_preference.values() for table in tables]
    return [*kernels, *world.preference.values(), *by_observation]
