"""What a conditional table p(outcome | given) can do: transitions p(x'|x,u,θ) and emissions p(y|x,θ), as two protocols.

A kernel is a pytree of arrays; :mod:`npro_aif.tables.layout` has the order of their axes. ``at(t)`` takes one time
slice, on which the arithmetic works. A further kind of table is one file with a class for each protocol it serves; a
transition that has no faster way of its own inherits the answers of :class:`PlainTransition`.
"""

from __future__ import annotations

from typing import Protocol, Self

from jax import Array

from npro_aif.tables.evidence import Evidence
from npro_aif.tables.surprise import derivative


class Kernel(Protocol):
    """What transitions and emissions have in common."""

    @property
    def size(self) -> int:
        """The number of outcomes."""
        ...

    @property
    def num_times(self) -> int:
        """The length of the time axis: 1 where the table is the same at all times."""
        ...

    @property
    def sees_parameters(self) -> bool:
        """Whether the table differs between parameters."""
        ...

    @property
    def learnable(self) -> bool:
        """Whether a posterior can differ from it on its support: a certain outcome leaves nothing to learn."""
        ...

    @property
    def possible(self) -> Array:
        """Where probabilities are positive, (…, K)."""
        ...

    def at(self, t: Array | int) -> Self:
        """One time slice."""
        ...

    def select(self, theta: Array) -> Self:
        """The rows of some parameters."""
        ...

    def prepared(self) -> Kernel:
        """The same kernel with what is worth working out once; it stays so when θ are selected."""
        ...

    def guarded(self) -> Self:
        """The same kernel, safe to use where nobody has looked at its numbers: no outcome is out of range."""
        ...

    def narrowed(self) -> Self:
        """The same kernel in as few bytes as it needs: in a large world tables are many."""
        ...

    def table(self) -> Array:
        """The dense log-table with its outcome axis, for callers that must have it."""
        ...

    def learned(self, logits: Array) -> Kernel:
        """q ∝ p exp(logits) on p's support; a transition's logits are of its :meth:`Transition.entries`."""
        ...

    def expect(self, cost: Array) -> Array:
        """Σ_k p(k|given) cost(given, k), where cost broadcasts; of the givens' shape."""
        ...

    def tilt(self, cost: Array) -> tuple[Self, Array]:
        """q ∝ p exp(−cost), and the cost it attains: −log Σ p exp(−cost) = KL[q‖p] + E_q[cost]."""
        ...

    def divergence(self, other: Kernel) -> Array:
        """KL[self ‖ other] for each given."""
        ...

    def certain(self, *given: Array) -> Array | None:
        """The outcome of a slice where it is certain for all givens by the kind of the table; None elsewhere."""
        ...

    def row(self, *given: Array) -> Array:
        """p(·|given) of a slice, (…, K)."""
        ...


class Shifts(Protocol):
    """Values (X', Θ) moved back row by row, in a world so large that a table (U, X, Θ) is better not made."""

    def pull(self, value: Array) -> Array:
        """That table all the same: value(x', θ) at where each (u, x, θ) leads, (U|1, X|1, Θ)."""
        ...

    def follow(self, value: Array, policy: Array) -> Array:
        """Σ_u policy(x,u) value(x', θ) at where it leads, (X, Θ)."""
        ...

    def expect(self, value: Array, weight: Array) -> Array:
        """Σ_θ weight(x,θ) value(x', θ) at where each control leads, (X, U)."""
        ...


class Transition(Kernel, Protocol):
    """p(x'|x,u,θ): it moves flows (X, Θ) forward and values (X', Θ) back."""

    @property
    def layable(self) -> bool:
        """Whether its parameters can be laid over devices."""
        ...

    def laid(self) -> Self:
        """The same kernel, whose parameters are laid over devices, with what is worth working out once."""
        ...

    def prepared(self) -> Transition:
        """As of any kernel; it may turn out to be another one, of the same numbers."""
        ...

    def routed(self, num_parameters: int, num_states: int) -> Self:
        """The same kernel, ready for a loop over time and sweeps with this many parameters."""
        ...

    def given(self, control: Array | int) -> Transition:
        """A slice (Θ|1, X|1, U|1, X') at one control, its axis kept with size 1."""
        ...

    def entries(self) -> tuple[Array | None, Array]:
        """The next states that may come, (T|1, Θ|1, X|1, U|1, K), and their log-probabilities: all states where None.

        Memory for these, and not for a table over pairs of states, is what a large world has.
        """
        ...

    def at_entries(self, cost: Array) -> Array:
        """A cost by next state, (…, X'), at the entries, (…, K)."""
        ...

    def push(self, before: Array, policy: Array) -> Array:
        """Σ_{x,u} before(x,θ) policy(x,u) p(x'|x,u,θ), (X', Θ)."""
        ...

    def pull(self, value: Array) -> Array:
        """Σ_x' p(x'|x,u,θ) value(x',θ), (U|1, X|1, Θ)."""
        ...

    def shifts(self, value: Array) -> Shifts | None:
        """What moves such values (X', Θ) back row by row, of a slice, where that is quicker than :meth:`pull`."""
        ...

    def spread(self, weight: Array) -> Array:
        """q(x) H[q(x'|x,u)] with θ summed out under the weight q(θ,x), (X, Θ): (U|1, X)."""
        ...

    def surprise(self, weight: Array) -> Array:
        """Σ_x' p(x'|x,u,θ) (−log m(x'|x,u)) under the weight q(θ,x), (X, Θ): (U|1, X, Θ|1).

        It is the derivative of each row of :meth:`spread` (:mod:`npro_aif.tables.surprise`).
        """
        ...

    def in_full(self, shape: tuple[int, int, int, int]) -> Transition:
        """A kernel of its own for each (t, θ, x, u), into which :meth:`put` writes."""
        ...

    def put(self, t: Array, row: Transition) -> Self:
        """The kernel with another slice at t."""
        ...


class Spreading(Protocol):
    """What says how uncertain the next state is."""

    def spread(self, weight: Array) -> Array: ...


class Tabled(Protocol):
    """What can be a table."""

    def table(self) -> Array: ...


class PlainTransition:
    """The answers of a transition that has no faster way of its own, for its class to inherit."""

    def entries(self: Tabled) -> tuple[Array | None, Array]:
        return None, self.table()

    def at_entries(self, cost: Array) -> Array:
        return cost

    @property
    def layable(self) -> bool:
        return False

    def laid(self) -> Self:
        return self

    def narrowed(self) -> Self:
        return self

    def shifts(self, value: Array) -> Shifts | None:
        return None

    def surprise(self: Spreading, weight: Array) -> Array:
        return derivative(self.spread, weight)


class Emission(Kernel, Protocol):
    """p(y|x,θ): it sums flows over θ, which is faster laid out as its tables are, (Θ, X).

    Where observations read the control, X stands for the pairs (x', u), x' slowest.
    """

    def certain_table(self) -> Array:
        """The outcome for each given, (T|1, Θ|1, X), of a kernel whose outcomes are certain."""
        ...

    def grouped(self, members: Array, num_controls: int, num_parameters: int) -> Emission:
        """A slice by what is seen: (Θ|1, X·U, Y) → (H·Θ, V·U, Y), with the x of each (v, h) in ``members``, (V, H)."""
        ...

    def likelihood(self, outcome: Array | int) -> Array:
        """p(outcome | given), of the givens' shape."""
        ...

    def predict(self, weight: Array) -> Array:
        """Σ_{θ,x} weight(θ,x) p(y|x,θ), (Y,)."""
        ...

    def evidence(self, weight: Array) -> Evidence:
        """What the observation tells about θ under the weight q(θ,x), (Θ, X)."""
        ...
