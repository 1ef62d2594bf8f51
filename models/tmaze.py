"""The T-maze: five places, moves between neighbours, and a cue that tells which arm has the reward.

cue – start – junction lie in one line (South to North), the arms left and right of the junction. The paper's
observation y is the cue; where the agent stands is seen too, but takes part in belief updates only.
"""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

import npro_aif as aif

PLACES = ("cue", "start", "left", "junction", "right")
CONTROLS = ("North", "East", "South", "West")
SIDES = ("left", "right")
CUE, START, LEFT, JUNCTION, RIGHT = range(5)
NORTH, EAST, SOUTH, WEST = range(4)

MOVES = {  # (from, control) → to; everything else is a wall
    (CUE, NORTH): START,
    (START, SOUTH): CUE,
    (START, NORTH): JUNCTION,
    (JUNCTION, SOUTH): START,
    (JUNCTION, WEST): LEFT,
    (JUNCTION, EAST): RIGHT,
    (LEFT, EAST): JUNCTION,
    (RIGHT, WEST): JUNCTION,
}
SHORTCUTS = {(LEFT, SOUTH): START, (RIGHT, SOUTH): START}  # only in the maze of the paper's code
MEMORIES = {  # what the policy may remember: the first content, and the meanings of the contents
    "told": (0, ("nothing", "left", "right")),
    "count": (2, ("2 left", "1 left", "even", "1 right", "2 right")),
}
GAMMA = 4.0  # the paper's text says 2, with which staying at the cue is worth more than the reward


@functools.cache
def transitions(arm_shortcut: bool = False) -> np.ndarray:
    """The next place, (5, 4)."""
    table = np.tile(np.arange(5)[:, None], (1, 4))
    for (place, control), to in (MOVES | (SHORTCUTS if arm_shortcut else {})).items():
        table[place, control] = to
    return table


def cue_probabilities(accuracy: Any = 1.0) -> Any:
    """p(cue | place, θ), (5, 2, 2): right at the cue with this probability, a coin elsewhere."""
    numbers: Any = jnp if isinstance(accuracy, Array) else np
    right = np.eye(2)
    at_cue = (np.arange(5) == CUE)[:, None, None]
    return numbers.where(at_cue, accuracy * right + (1 - accuracy) * (1 - right), 0.5)


def goal_preference(gamma: Any) -> Any:
    """log p̂(x_T|θ), (5, 2): the softmax of +γ on the rewarded arm and −γ on the other."""
    numbers: Any = jnp if isinstance(gamma, Array) else np
    sign = np.zeros((5, 2))
    sign[LEFT], sign[RIGHT] = (1, -1), (-1, 1)
    table = gamma * sign
    most = numbers.abs(gamma)  # taken out of the sum, which would overflow for a large γ
    return table - most - numbers.log(numbers.exp(table - most).sum(0))


def tmaze(
    belief: aif.Belief,
    horizon: int = 4,
    *,
    gamma: float | Array = GAMMA,
    arm_shortcut: bool = False,
    cue_accuracy: float | Array = 1.0,
    memory: Literal["told", "count"] | None = None,
) -> None:
    """The T-maze as a NumPyro program.

    :param gamma: how much better the rewarded arm is than any other place, and the other arm worse (log units).
    :param arm_shortcut: South from an arm leads to the start, as in the paper's code; by its text it is a wall.
    :param cue_accuracy: how often the cue is right.
    :param memory: what the policy remembers of the cue: the last word that it was "told" there, or a "count" of its
        words for the right arm less those for the left one, up to two.

    >>> from numpyro.handlers import seed, trace
    >>> list(trace(seed(tmaze, 0)).get_trace(initial_belief(), horizon=1))
    ['theta', 'x_0', 'u_1', 'x_1', 'cue_1', 'goal_1']
    """
    if memory not in (None, *MEMORIES):
        raise ValueError(f"memory: found {memory!r}, expected None or one of {', '.join(MEMORIES)}")
    next_place = jnp.asarray(transitions(arm_shortcut), int)
    cue_probs = jnp.asarray(cue_probabilities(cue_accuracy))
    goal = jnp.asarray(goal_preference(gamma))
    theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter), labels=SIDES)
    x = aif.state("x", dist.Categorical(probs=belief.state[theta]), labels=PLACES)
    first, contents = MEMORIES[memory] if memory else (0, ())
    m = aif.memory(memory, first, len(contents), labels=contents) if memory else None

    def step(carry: tuple[Array, Any], t: Array) -> tuple[Array, Any]:
        x, m = carry
        u = aif.control("u", dist.Categorical(probs=jnp.full(4, 0.25)), labels=CONTROLS)
        x = aif.state("x", aif.DeterministicCategorical(next_place[x, u], 5))
        cue: Any = aif.observation("cue", dist.Categorical(probs=cue_probs[x, theta]), labels=SIDES)
        aif.observation("place", aif.DeterministicCategorical(x, 5), plan=False, labels=PLACES)
        if memory:
            word = cue + 1 if memory == "told" else jnp.clip(m + 2 * cue - 1, 0, len(contents) - 1)
            m = aif.memory(memory, jnp.where(x == CUE, word, m), len(contents))
        aif.preference("goal", jnp.where(t == horizon, goal[x, theta], 0.0))
        return x, m

    aif.rollout(step, (x, m), horizon)


def initial_belief(place: int = START, theta: int | None = None) -> aif.Belief:
    """The belief at a place, with the reward's side unknown or known.

    >>> belief = initial_belief(CUE, theta=1)
    >>> belief.parameter.tolist(), belief.state.shape
    ([0.0, 1.0], (2, 5))
    """
    parameter = jnp.full(2, 0.5) if theta is None else jax.nn.one_hot(theta, 2)
    return aif.Belief(parameter, jnp.tile(jax.nn.one_hot(place, 5), (2, 1)))
