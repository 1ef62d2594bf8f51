"""What every posterior can do, whatever its factorisation: it gives statistics, part by part, for an objective to add.

A part is one time slice, or (where the factorisation is over sequences) all of them together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jax import Array

from npro_aif.inference.marginals import Marginals
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.world import World

Terms = dict[str, Array]  # by name, (): what F is made of


class Part(Protocol):
    """The statistics of one part; what nobody asks for is not computed. The start counts with the first part."""

    def preference(self) -> Array:
        """E_q[log p̂], ()."""
        ...

    def complexity(self) -> Array:
        """E_q[log q(y,x,θ|u) − log p(y,x,θ|u)], ()."""
        ...

    def plan_prior(self) -> Array:
        """E_q[log q(u) − log p(u)], ()."""
        ...

    def policy_entropy(self) -> Array:
        """Σ_t H[q(u_t|v_{t-1},m_{t-1})], (): given what the policy sees."""
        ...

    def control(self) -> Array:
        """q(u), (U,)."""
        ...

    def state(self) -> Array:
        """q(x), (X,): of the new states, or with hidden states and memories of the contexts (v', m, u)."""
        ...

    def move_entropy(self) -> Array:
        """a(u) = H[v'|v,m,u], the entropy of where each control visibly leads, (U,)."""
        ...

    def evidence(self, *, joint: bool) -> dict[str, Evidence]:
        """What the observations tell, together or (if not ``joint``) each site by itself, about what is not seen."""
        ...


Evaluate = Callable[[Part], Terms]


class Posterior(Protocol):
    """q(u, x, y, θ) as tables."""

    @property
    def scope(self) -> str:
        """Over what the epistemic priors run: "temporal" (slices) or "sequence"."""
        ...

    def terms(self, world: World, evaluate: Evaluate) -> Terms:
        """What an objective makes of the parts, summed over them."""
        ...

    def marginals(self, world: World) -> Marginals:
        """q(u_t), q(u_t|x_{t-1}), q(x_t), q(θ), q(y_t)."""
        ...

    def first_control(self, world: World) -> Array:
        """q(u_1), (U,)."""
        ...
