"""The marginals of a posterior, whatever its factorisation."""

from typing import NamedTuple

from jax import Array


class Marginals(NamedTuple):
    """Marginals of a posterior; rows beyond the horizon repeat the last state and are zero elsewhere."""

    control: Array  # (T, U) q(u_t)
    policy: Array  # (T, P, U) q(u_t|v_{t-1},m_{t-1}), over what the policy sees
    state: Array  # (T+1, X) q(x_t)
    parameter: Array  # (Θ,) q(θ)
    observation: dict[str, Array]  # by site, (T, Y) q(y_t)
    memory: Array  # (T+1, M) q(m_t)
