"""What every posterior can do, whatever its factorisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jax import Array

if TYPE_CHECKING:
    from npro_aif.inference.objectives import Objective
    from npro_aif.inference.temporal import Marginals
    from npro_aif.program.program import World


class Posterior(Protocol):
    """q(u, x, y, θ) as tables."""

    def terms(self, world: World, objective: Objective) -> dict[str, Array]:
        """The free energy under an objective, term by term."""
        ...

    def marginals(self, world: World) -> Marginals:
        """q(u_t), q(u_t|x_{t-1}), q(x_t), q(θ), q(y_t)."""
        ...

    def first_control(self, world: World) -> Array:
        """q(u_1), (U,)."""
        ...
