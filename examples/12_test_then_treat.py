"""Test, then treat: four illnesses, three imperfect tests, and a decision tree beside the plan.

The memory holds the result of each test. With it F_planning is the decision tree's value, to rounding; without it a
plan cannot use a result, and never tests.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

PRIOR = np.array([0.4, 0.3, 0.2, 0.1])  # of the illnesses
POSITIVE = np.array([[0.9, 0.2, 0.1, 0.5], [0.1, 0.85, 0.2, 0.5], [0.5, 0.1, 0.9, 0.2]])  # p(positive | test, illness)
TEST_COST, CURED, HARMED, HORIZON = 0.3, 4.0, -2.0, 3
CONTROLS = ("test A", "test B", "test C", "treat 1", "treat 2", "treat 3", "treat 4")
TESTS = 3
# p(result | control, illness): negative, positive, none; and what doing something brings while nothing was treated
RESULT = np.zeros((7, 4, 3))
RESULT[:TESTS, :, 1], RESULT[:TESTS, :, 0], RESULT[TESTS:, :, 2] = POSITIVE, 1 - POSITIVE, 1
GAIN = np.concatenate([np.full((TESTS, 4), -TEST_COST), np.where(np.eye(4, dtype=bool), CURED, HARMED)])


def clinic(belief, horizon=HORIZON, *, remember=True):
    illness = aif.parameter("illness", dist.Categorical(probs=belief.parameter), labels=("1", "2", "3", "4"))
    x = aif.state("case", dist.Categorical(probs=belief.state[illness]), labels=("open", "closed"))
    none = [aif.memory(f"result {k}", 2, 3, labels=("−", "+", "none")) for k in "ABC"] if remember else []

    def step(carry, t):
        before, results = carry
        u = aif.control("do", dist.Categorical(probs=jnp.ones(7) / 7), labels=CONTROLS)
        x = aif.state("case", aif.DeterministicCategorical(jnp.where(u < TESTS, before, 1), 2))
        y = aif.observation("result", dist.Categorical(probs=jnp.asarray(RESULT)[u, illness]))
        pairs = enumerate(zip("ABC", results, strict=False))
        results = [aif.memory(f"result {k}", jnp.where(u == i, y, m), 3) for i, (k, m) in pairs]
        aif.preference("gain", jnp.where(before == 0, jnp.asarray(GAIN)[u, illness], 0.0))
        return x, results

    aif.rollout(step, (x, none), horizon)


def tree(belief, steps):
    """The decision tree by hand: the best expected gain, and what to do first."""
    if steps == 0:
        return 0.0, None
    options = [(float(belief @ GAIN[u]), u) for u in range(TESTS, 7)]  # treat: the case is closed
    for u in range(TESTS):
        later = [(belief * RESULT[u, :, y]) for y in (0, 1)]
        options.append((-TEST_COST + sum(b.sum() * tree(b / b.sum(), steps - 1)[0] for b in later), u))
    return max(options)


@functools.cache  # what is compiled serves again
def planner(model, objective):
    guide = aif.guides.TemporalGuide(model, learn=("control",))
    return aif.Planner(model, guide, objective, aif.CoordinateSolver(), max_horizon=HORIZON)


belief = aif.Belief(jnp.asarray(PRIOR), jnp.tile(jnp.array([1.0, 0.0]), (4, 1)))
value, first = tree(PRIOR, HORIZON)
print(f"decision tree: {value:.4f}, first {CONTROLS[first]}")
plan = planner(clinic, aif.Planning())(jax.random.key(0), belief)
print(f"Planning with a memory: {-plan.terms['risk']:.4f}, first {CONTROLS[int(plan.control_cost.argmin())]}")
print(plan.tree(depth=2))
print(f"worth of following it: {aif.evaluate(planner(clinic, aif.Planning()), clinic, belief, HORIZON)}")
forgetful = functools.partial(clinic, remember=False)
for objective in (aif.Active(), aif.Planning(), aif.Marginal()):
    worth = aif.evaluate(planner(forgetful, objective), clinic, belief, HORIZON)
    print(f"{type(objective).__name__} without a memory, replanning: worth {worth}")
