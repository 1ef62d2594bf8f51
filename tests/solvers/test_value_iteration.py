"""Where θ is known and only the policy is learned, planning is dynamic programming, values and all."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.guides import TemporalGuide

NUM_STATES, NUM_CONTROLS, HORIZON = 6, 3, 5


class Mdp(NamedTuple):
    """A random decision process with a reward at every step."""

    transition: np.ndarray  # (X, U, X')
    reward: np.ndarray  # (T, X') log p̂ on arrival at t = 1 … T
    prior: np.ndarray  # (X, U)
    start: np.ndarray  # (X,)


def random_mdp(seed: int) -> Mdp:
    rng = np.random.default_rng(seed)
    return Mdp(
        rng.dirichlet(np.full(NUM_STATES, 0.5), (NUM_STATES, NUM_CONTROLS)),
        rng.normal(0, 2, (HORIZON, NUM_STATES)),
        rng.dirichlet(np.ones(NUM_CONTROLS), NUM_STATES),
        rng.dirichlet(np.ones(NUM_STATES)),
    )


def program(mdp: Mdp) -> Any:
    transition, reward, prior = (jnp.asarray(table) for table in mdp[:3])

    def model(belief: aif.Belief, horizon: int = HORIZON) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=prior[x]))
            x = aif.state("x", dist.Categorical(probs=transition[x, u]))
            aif.preference("reward", reward[t - 1, x])
            return x

        aif.rollout(step, x, horizon)

    return model


def value_iteration(mdp: Mdp, soft: bool) -> tuple[np.ndarray, np.ndarray]:
    """The policies (T, X, U) and the value of the start: the expected cost, −log p(u|x) a step's effort.

    Soft: V = −log Σ_u exp(−Q), the policy ∝ exp(−Q). Hard: V = min_u Q.
    """
    value, policies = np.zeros(NUM_STATES), []
    for t in reversed(range(HORIZON)):
        cost = -np.log(mdp.prior) + mdp.transition @ (value - mdp.reward[t])
        if soft:
            value = -np.log(np.exp(-cost).sum(1))
            policies.append(np.exp(value[:, None] - cost))
        else:
            value = cost.min(1)
            policies.append(np.eye(NUM_CONTROLS)[cost.argmin(1)])
    return np.stack(policies[::-1]), mdp.start @ value


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.usefixtures("quick_compile")
@pytest.mark.parametrize(("objective", "soft"), [(aif.Planning(), False), (aif.Marginal(), True)])
def test_one_sweep_is_value_iteration(seed: int, objective: Any, soft: bool, x64: None) -> None:
    mdp = random_mdp(seed)
    model = program(mdp)
    guide = TemporalGuide(model, learn=("control",))
    planner = aif.Planner(model, guide, objective, aif.CoordinateSolver(max_sweeps=1), max_horizon=HORIZON)
    plan = planner(jax.random.key(seed), aif.Belief(jnp.ones(1), jnp.asarray(mdp.start)[None]))
    policies, value = value_iteration(mdp, soft)
    np.testing.assert_allclose(plan.policy, policies, atol=1e-9)
    np.testing.assert_allclose(plan.free_energy[-1], value, atol=1e-9)
