"""The information of observations about the parameters, in the form that the epistemic priors need."""

from typing import NamedTuple

from jax import Array


class Evidence(NamedTuple):
    """The information of one observation site about θ at each state, given a weight q(θ,x)."""

    observation: Array  # (X, Y) q(y|x)
    gain: Array  # (X, Y) KL[q(θ|y,x) ‖ q(θ|x)], zero where q(y,x) = 0
    ambiguity: Array  # (X,) E_q(θ|x) H[q(y|x,θ)]
