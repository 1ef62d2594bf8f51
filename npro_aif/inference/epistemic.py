r"""The three epistemic priors, and their costs at each control and state.

With raw exponents a(u) = H[x'|x,u], a(x) = −E_q(θ|x) H[q(y|x,θ)] and a(y,x) = KL[q(θ|y,x) ‖ q(θ|x)],

    log p̃ = w · a − [normalize] log Σ exp(w · a),

each with a weight w of its own; the sum runs over the entries where a is defined (q > 0). F_active adds
−E_q[log p̃(u) + log p̃(x) + log p̃(y,x)] = E_q(u)[d(u)] + E_q(x)[c(x)]. The same code serves one time slice and whole
sequences.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from npro_aif.inference.posterior import Part
from npro_aif.numerics import is_concrete, log_normalizer

COSTS = "epistemic costs"  # what a gradient's forward pass keeps of a slice


class Weights(NamedTuple):
    """The weight of each epistemic prior."""

    entropy: float | Array  # of p̃(u): the entropy of moves
    ambiguity: float | Array  # of p̃(x)
    novelty: float | Array  # of p̃(y,x)


class EpistemicCosts(NamedTuple):
    """The costs that F_active adds: E_q(u)[control] + E_q(x)[ambiguity + novelty] + normalizer."""

    control: Array  # (U,) −w · a(u)
    ambiguity: Array  # (X,) −w · a(x), over all observation sites
    novelty: Array  # (X,) −w · Σ_y q(y|x) a(y,x), over all observation sites
    normalizer: Array | None  # () Σ of the log normalisers, where the priors are normalised


class Normalizers(NamedTuple):
    """log Σ exp(w · a), for each observation site separately."""

    control: Array  # ()
    state: dict[str, Array]  # ()
    observation: dict[str, Array]  # ()


class EpistemicPriors(NamedTuple):
    """The priors as tables w · a, for each observation site separately."""

    control: Array  # (U,)
    state: dict[str, Array]  # by observation site, (X,)
    observation: dict[str, Array]  # by observation site, (X, Y)
    predicted: dict[str, Array]  # by observation site, (X, Y) q(y|x)
    normalizers: Normalizers | None

    def costs(self) -> EpistemicCosts:
        """The priors as costs of controls and states."""
        zero = jnp.zeros(())
        ambiguity = sum((-table for table in self.state.values()), start=zero)
        novelty = sum((-(self.predicted[name] * table).sum(-1) for name, table in self.observation.items()), start=zero)
        total = self.normalizers
        normalizer = None
        if total is not None:
            normalizer = total.control + sum(total.state.values()) + sum(total.observation.values())
        return EpistemicCosts(-self.control, ambiguity, novelty, normalizer)

    def log(self) -> EpistemicPriors:
        """The tables log p̃, that is, with their normalisers subtracted."""
        total = self.normalizers
        if total is None:
            return self
        return self._replace(
            control=self.control - total.control,
            state={name: table - total.state[name] for name, table in self.state.items()},
            observation={name: table - total.observation[name] for name, table in self.observation.items()},
            normalizers=None,
        )


def counts(weight: float | Array) -> bool:
    """Whether a term with this weight counts; one with a traced weight may."""
    return not is_concrete(weight) or float(weight) != 0


def epistemic_priors(
    part: Part, *, normalize: bool, weight: float | Array | Weights, joint: bool = True
) -> EpistemicPriors:
    """The priors at one part of a posterior.

    :param weight: one weight for all three, or :class:`Weights`.
    :param joint: count observation sites together; otherwise each by itself, so that shared information counts several
        times.
    """
    evidence = part.evidence(joint=joint)
    weights = weight if isinstance(weight, Weights) else Weights(weight, weight, weight)
    counted = counts(weights.entropy)  # otherwise the entropy of moves, which is expensive, is not computed
    control = weights.entropy * part.move_entropy() if counted else jnp.zeros_like(part.control())
    state = {name: -weights.ambiguity * e.ambiguity for name, e in evidence.items()}
    observation = {name: weights.novelty * e.gain for name, e in evidence.items()}
    predicted = {name: e.observation for name, e in evidence.items()}
    normalizers = None
    if normalize:
        met = part.state() > 0
        normalizers = Normalizers(
            log_normalizer(control, part.control() > 0),
            {name: log_normalizer(table, met) for name, table in state.items()},
            {name: log_normalizer(table, met[:, None] & (predicted[name] > 0)) for name, table in observation.items()},
        )
    return EpistemicPriors(control, state, observation, predicted, normalizers)
