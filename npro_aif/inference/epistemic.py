r"""The three epistemic priors as costs of controls and states.

With raw exponents a(u) = H[x'|x,u], a(x) = −E_q(θ|x) H[q(y|x,θ)] and a(y,x) = KL[q(θ|y,x) ‖ q(θ|x)],

    log p̃ = weight · a − [normalize] log Σ exp(weight · a),

the sum over the entries where a is defined (q > 0). F_active counts −E_q[log p̃(u) + log p̃(x) + log p̃(y,x)]
= E_q(u)[d(u)] + E_q(x)[c(x)]. The same code serves one time slice and whole sequences.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from npro_aif.tables.layout import Evidence
from npro_aif.tables.numerics import log_normalizer


class EpistemicPriors(NamedTuple):
    """log p̃ as tables; of each observation site its own."""

    control: Array  # (U,) log p̃(u)
    state: dict[str, Array]  # by observation site, (X,) log p̃(x)
    observation: dict[str, Array]  # by observation site, (X, Y) log p̃(y,x)


class EpistemicCosts(NamedTuple):
    """What F_active adds: E_q(u)[control] + E_q(x)[ambiguity + novelty] + normalizer."""

    control: Array  # (U,) −weight · a(u)
    ambiguity: Array  # (X,) −weight · a(x), over all observation sites
    novelty: Array  # (X,) −weight · Σ_y q(y|x) a(y,x), over all observation sites
    normalizer: Array  # () Σ of the log normalisers


def _normalizers(
    flow_entropy: Array,
    control: Array,
    evidence: Mapping[str, Evidence],
    state: Array,
    weight: float | Array,
) -> tuple[Array, dict[str, Array], dict[str, Array]]:
    of_control = log_normalizer(weight * flow_entropy, control > 0)
    of_state = {k: log_normalizer(-weight * e.ambiguity, state > 0) for k, e in evidence.items()}
    of_observation = {
        k: log_normalizer(weight * e.novelty, (state[:, None] > 0) & (e.observation > 0)) for k, e in evidence.items()
    }
    return of_control, of_state, of_observation


def epistemic_priors(
    flow_entropy: Array,
    control: Array,
    evidence: Mapping[str, Evidence],
    state: Array,
    *,
    normalize: bool,
    weight: float | Array,
) -> EpistemicPriors:
    """The log priors themselves, for the augmented model.

    :param flow_entropy: (U,) a(u).
    :param control: (U,) q(u).
    :param evidence: what each observation site tells about θ, at each state.
    :param state: (X,) q(x).
    """
    of_control: Array = jnp.zeros(())
    of_state, of_observation = ({k: jnp.zeros(()) for k in evidence} for _ in range(2))
    if normalize:
        of_control, of_state, of_observation = _normalizers(flow_entropy, control, evidence, state, weight)
    return EpistemicPriors(
        weight * flow_entropy - of_control,
        {k: -weight * e.ambiguity - of_state[k] for k, e in evidence.items()},
        {k: weight * e.novelty - of_observation[k] for k, e in evidence.items()},
    )


def epistemic_costs(
    flow_entropy: Array,
    control: Array,
    evidence: Mapping[str, Evidence],
    state: Array,
    *,
    normalize: bool,
    weight: float | Array,
) -> EpistemicCosts:
    """The same priors as costs of controls and states; arguments as in :func:`epistemic_priors`."""
    ambiguity, novelty = jnp.zeros_like(state), jnp.zeros_like(state)
    for e in evidence.values():
        ambiguity = ambiguity + weight * e.ambiguity
        novelty = novelty - weight * (e.observation * e.novelty).sum(-1)
    normalizer: Array = jnp.zeros((), state.dtype)
    if normalize:
        of_control, of_state, of_observation = _normalizers(flow_entropy, control, evidence, state, weight)
        normalizer = of_control + sum(of_state.values()) + sum(of_observation.values())
    return EpistemicCosts(-weight * flow_entropy, ambiguity, novelty, normalizer)
