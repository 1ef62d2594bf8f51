"""What observations tell about the parameters, as the epistemic priors ask for it."""

from typing import NamedTuple

from jax import Array


class Evidence(NamedTuple):
    """What one observation site tells about θ at each state, given a weight q(θ,x)."""

    observation: Array  # (X, Y) q(y|x)
    gain: Array  # (X, Y) KL[q(θ|y,x) ‖ q(θ|x)], zero where q(y,x) = 0
    ambiguity: Array  # (X,) E_q(θ|x) H[q(y|x,θ)]
