"""What the policy sees at each step, and the order of a slice: control, move, observation, memory.

Mass lies on rows s: the states, or with a memory the pairs (x, m), x slowest; q(θ, s) is laid out (S, Θ). The policy
sees classes p of rows: the visible states v, or the pairs (v, m), v slowest. After the move mass lies on *arrivals*
(x', m, u) (without the axis of u where neither observations nor memories read it). The visible part of an arrival is
its *context* (v', m, u), given which observations are new. In an open loop all of these are just the states.
"""

from __future__ import annotations

from typing import Protocol

from jax import Array

from npro_aif.tables.evidence import Evidence
from npro_aif.tables.kernels import Emission, Transition


class Loop(Protocol):
    """How a policy's view, moves, observations and memories fit together, at one time slice (after ``at``)."""

    @property
    def closed(self) -> bool:
        """Whether the policy sees anything other than exactly all states."""
        ...

    def at(self, t: Array | int) -> Loop:
        """One time slice."""
        ...

    def opened(self) -> Loop:
        """The loop of a policy that sees every state and remembers nothing."""
        ...

    def num_rows(self, num_states: int) -> int:
        """The number of rows s."""
        ...

    def num_classes(self, num_states: int) -> int:
        """The number of classes p that the policy tells apart."""
        ...

    def start(self, initial: Array) -> Array:
        """Mass (X, Θ) on the present states as mass (S, Θ), at the memories' first contents."""
        ...

    def begin(self, value: Array) -> Array:
        """A value (S, Θ) at the memories' first contents, (X, Θ)."""
        ...

    def seen(self, mass: Array) -> Array:
        """Mass (S, …) summed over the rows that the policy does not tell apart, (P, …)."""
        ...

    def states(self, mass: Array) -> tuple[Array, Array]:
        """Mass (S,) by state, (X,), and by memory, (M,)."""
        ...

    def by_state(self, table: Array, axis: int) -> Array:
        """A table of states along an axis (X|1) at every row (S|1)."""
        ...

    def by_row(self, table: Array) -> Array:
        """A table (P, …) of what the policy sees at every row, (S, …)."""
        ...

    def prior(self, table: Array) -> Array:
        """A table (X|1, …) that depends on visible states only, over the policy's classes, (P|1, …)."""
        ...

    def move(self, kernel: Transition, before: Array, policy: Array) -> Array:
        """Mass (S, Θ) under a policy (P, U) after the move, on arrivals: (A, Θ)."""
        ...

    def pull(self, kernel: Transition, value: Array) -> Array:
        """Σ_x' p(x'|x,u,θ) value(x', m, u, θ), of values (A, Θ): (U|1, S|1, Θ)."""
        ...

    def remember(self, arrived: Array, observation: dict[str, Emission]) -> Array:
        """Mass (A, Θ) once the observations are remembered, (S, Θ)."""
        ...

    def recall(self, value: Array, observation: dict[str, Emission]) -> Array:
        """The expected value (S, Θ) before the observations are remembered, (A, Θ)."""
        ...

    def arrivals(self, table: Array) -> Array:
        """A table (…, X'|1) of new states at every arrival, (…, A|1)."""
        ...

    def sights(self, table: Array) -> Array:
        """A table (…, X'·U*) over the conditions of observations, at every arrival, (…, A)."""
        ...

    def observed(self, arrived: Array) -> Array:
        """Mass (A, Θ) by the condition of observations, (X'·U*, Θ)."""
        ...

    def each_control(self, table: Array) -> Array:
        """A table (Θ|1, X'|1, Y) over the conditions of observations, (Θ|1, X'·U*|1, Y)."""
        ...

    def contexts(self, arrived: Array) -> Array:
        """Mass (A, Θ) by context, (K,)."""
        ...

    def by_arrival(self, table: Array) -> Array:
        """A table (K,) of contexts at every arrival, (A,)."""
        ...

    def spread(self, kernel: Transition, before: Array) -> Array:
        """q(p) H[v'|p,u] with everything unseen summed out, (U|1, P)."""
        ...

    def surprise(self, kernel: Transition, before: Array) -> Array:
        """E[−log m(v'|p,u)] of each move, m with everything unseen summed out: (U|1, S, Θ|1)."""
        ...

    def shown(self, visible: Array) -> Array:
        """A state with these visible values (flat over the visible sites), for single values; hidden ones are zero."""
        ...

    def first_memory(self, x: Array) -> Array:
        """The memory's first content, of single values."""
        ...

    def look(self, x: Array, memory: Array) -> Array:
        """The class p that the policy is in, of single values."""
        ...

    def context(self, x: Array, memory: Array, control: Array) -> Array:
        """The context (v', m, u) or x', of single values."""
        ...

    def sight(self, x: Array, control: Array) -> Array:
        """The condition of observations, for single values: the index of (x', u) or x'."""
        ...

    def next_memory(self, memory: Array, x: Array, control: Array, seen: dict[str, tuple[Array, int]]) -> Array:
        """The memory's next content, of single values; ``seen`` has each site's outcome and number of outcomes."""
        ...

    def evidence(self, kernel: Emission, arrived: Array) -> Evidence:
        """The information of an observation about everything unseen, in each context."""
        ...
