"""A machine that wears unseen: run it, inspect it, repair it, for half a year of weeks.

Its wear is hidden, an inspection costs a week's output and may err, a repair makes it new. A state that is not marked
as hidden is planned with as if it will be seen; marked as hidden, the plan knows that it has to look.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

WEAR, CONTROLS, WEEKS = ("new", "worn", "broken"), ("run", "inspect", "repair"), 26
RUN, INSPECT, REPAIR = range(3)
WORN_OUT = np.array([[0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]])  # by a week of running
MOVE = np.stack([WORN_OUT, np.eye(3), np.eye(3)[[0, 0, 0]]], axis=1)  # by wear and control
READING = np.array([[0.95, 0.05, 0.0], [0.3, 0.7, 0.0], [0.02, 0.98, 0.0]])  # fine, faulty, none
GAIN = np.array([[2.0, -0.2, -6.0], [1.0, -0.2, -6.0], [-4.0, -0.2, -6.0]])  # by wear and control
LONG = 5  # weeks since the last repair are counted up to this


def machine(belief, horizon=WEEKS, *, hidden=True):
    wear = aif.state("wear", dist.Categorical(probs=belief.state[0]), labels=WEAR, hidden=hidden)
    last = aif.memory("reading", 2, 3, labels=("fine", "faulty", "none"))  # since the last repair
    since = aif.memory("weeks", 0, LONG + 1)

    def step(carry, t):
        before, last, since = carry
        u = aif.control("do", dist.Categorical(probs=jnp.ones(3) / 3), labels=CONTROLS)
        wear = aif.state("wear", dist.Categorical(probs=jnp.asarray(MOVE)[before, u]), labels=WEAR, hidden=hidden)
        none = jnp.array([0.0, 0.0, 1.0])
        probs = jnp.where((u == INSPECT)[..., None], jnp.asarray(READING)[wear], none)
        reading = aif.observation("reading seen", dist.Categorical(probs=probs))
        last = aif.memory("reading", jnp.where(u == INSPECT, reading, jnp.where(u == REPAIR, 2, last)), 3)
        since = aif.memory("weeks", jnp.where(u == REPAIR, 0, jnp.minimum(since + (u == RUN), LONG)), LONG + 1)
        aif.preference("gain", jnp.asarray(GAIN)[before, u])
        return wear, last, since

    aif.rollout(step, (wear, last, since), horizon)


@functools.cache  # what is compiled serves again
def planner(model):
    guide = aif.guides.TemporalGuide(model, learn=("control",))
    return aif.Planner(model, guide, aif.Planning(), aif.CoordinateSolver(), max_horizon=WEEKS)


belief = aif.Belief(jnp.ones(1), jnp.array([[1.0, 0.0, 0.0]]))  # it is new
bound = WEEKS * np.log(3) - float(aif.perfect_information(machine, belief, WEEKS))
print(f"if the wear were seen: {bound:.2f} at most")
for hidden in (True, False):
    model = functools.partial(machine, hidden=hidden)
    plan = planner(model)(jax.random.key(0), belief)
    counts = plan.control.sum(0)
    print(f"\nhidden={hidden}: the plan expects {-plan.terms['risk']:.2f}")
    print("  weeks of", ", ".join(f"{name} {float(n):.1f}" for name, n in zip(CONTROLS, counts, strict=True)))
    agent = aif.Agent(planner(model), belief, WEEKS, WEEKS, act_by="probability")
    worth = aif.evaluate(agent, machine, belief, WEEKS, max_beliefs=300, episodes=60)
    print(f"  worth of following it, replanning: {worth}")
    if hidden:
        print(plan.tree(depth=6))
