"""The protocol of posteriors of any factorisation: they give statistics, part by part, for an objective to add up.

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
    """The statistics of one part, each computed only when it is asked for. The start belongs to the first part."""

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
        """The information of the observations about what is not seen: together, or (if not ``joint``) site by site."""
        ...


Evaluate = Callable[[Part], Terms]


class Posterior(Protocol):
    """q(u, x, y, θ) as tables."""

    @property
    def scope(self) -> str:
        """The domain of the epistemic priors: "temporal" (slices) or "sequence"."""
        ...

    def terms(self, world: World, evaluate: Evaluate) -> Terms:
        """The objective's terms of all parts, summed."""
        ...

    def marginals(self, world: World) -> Marginals:
        """q(u_t), q(u_t|x_{t-1}), q(x_t), q(θ), q(y_t)."""
        ...

    def first_control(self, world: World) -> Array:
        """q(u_1), (U,)."""
        ...
