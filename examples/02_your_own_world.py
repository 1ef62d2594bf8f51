"""Your own world, from scratch: a doctor who may test before choosing a drug.

A patient is ill with one of two causes. Drug A cures cause A and does harm with cause B, and the other way round. A
test tells the cause, nearly always. There are three days. What is the plan?

A world is a NumPyro program with four kinds of variables: the parameter θ (what does not change and is not known: the
cause), states x (how the patient is), controls u (what the doctor does) and observations y (what the test says).
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

CAUSES = ("A", "B")
STATES = ("ill", "tested", "well", "worse")
CONTROLS = ("wait", "test", "drug A", "drug B")
RESULTS = ("none", "says A", "says B")
ILL, TESTED, WELL, WORSE = range(4)
WAIT, TEST, DRUG_A, DRUG_B = range(4)

# Tables are plain arrays. How the patient goes on: p(x'|x, u, θ), so the axes are state, control, cause, new state.
MOVE = np.zeros((4, 4, 2, 4))
MOVE[[ILL, TESTED], WAIT, :, ILL] = 1
MOVE[[ILL, TESTED], TEST, :, TESTED] = 1
for cause in range(2):
    right, wrong = DRUG_A + cause, DRUG_B - cause
    MOVE[[ILL, TESTED], right, cause] = [0.1, 0, 0.9, 0]  # cured in nine cases of ten
    MOVE[[ILL, TESTED], wrong, cause] = [0.1, 0, 0, 0.9]
MOVE[WELL, :, :, WELL] = MOVE[WORSE, :, :, WORSE] = 1  # these two are final

# What is seen: p(y|x, θ). Only a test says anything, and it is right in 98 cases of a hundred.
SEE = np.zeros((4, 2, 3))
SEE[..., 0] = 1
SEE[TESTED] = [[0, 0.98, 0.02], [0, 0.02, 0.98]]

# What is wanted, as log-preferences over how the patient is in the end.
WANT = jnp.array([0.0, 0.0, 3.0, -3.0])


def clinic(belief: aif.Belief, horizon: int = 3) -> None:
    """The program. Roles are sample statements with a name; `rollout` repeats one step into the future."""
    move, see = jnp.asarray(MOVE), jnp.asarray(SEE)
    cause = aif.parameter("cause", dist.Categorical(probs=belief.parameter), labels=CAUSES)
    x = aif.state("x", dist.Categorical(probs=belief.state[cause]), labels=STATES)

    def step(x: jax.Array, t: jax.Array) -> jax.Array:
        u = aif.control("u", dist.Categorical(probs=jnp.full(4, 0.25)), labels=CONTROLS)
        x = aif.state("x", dist.Categorical(probs=move[x, u, cause]))
        aif.observation("result", dist.Categorical(probs=see[x, cause]), labels=RESULTS)
        aif.preference("health", jnp.where(t == horizon, WANT[x], 0.0))  # `where`, as t may be an array
        return x  # what the next step needs

    aif.rollout(step, x, horizon)


# What the doctor believes: both causes are equally likely (Θ,), and with either the patient is ill (Θ, X).
belief = aif.Belief(parameter=jnp.array([0.5, 0.5]), state=jnp.tile(jax.nn.one_hot(ILL, 4), (2, 1)))
key = jax.random.key(0)


def tell(labels: tuple[str, ...], probs: jax.Array) -> str:
    return ", ".join(f"{label} {p:.2f}" for label, p in zip(labels, np.asarray(probs), strict=True))


for objective in (aif.Planning(), aif.Active()):
    guide = aif.guides.TemporalGuide(clinic, learn=("control",))  # decide what to do; do not bend what happens
    planner = aif.Planner(clinic, guide, objective, aif.CoordinateSolver(), max_horizon=3)
    plan = planner(key, belief, horizon=3)
    print(f"{type(objective).__name__:8} first:", tell(CONTROLS, plan.control[0]))

# Planning has no use for a test, as a plan cannot know its result: anything is as good as anything. Active tests first.
# Now the result is seen, the belief is updated by Bayes' rule, and a new plan is made.
belief = aif.update_belief(clinic, belief, control=TEST, observation=RESULTS.index("says B"))
plan = planner(key, belief, horizon=2)
print(f"the test says B, so p(cause = B) = {belief.parameter[1]:.2f}; then: {CONTROLS[int(plan.best_control())]}")
print("and in the end:", tell(STATES, plan.state[-1]))
