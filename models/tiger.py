"""The Tiger (Kaelbling, Littman, Cassandra 1998), with reset: it waits behind one of two doors, and one may listen.

Listening costs 1 and tells the right side with probability 0.85. A door gives +10 or, with the tiger behind it, −100,
and then the tiger is put behind a new door. Its place is hidden, so that only the words heard can guide the policy: the
memory counts the words for right since the last door, less those for left.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

SIDES = ("left", "right")
CONTROLS = ("listen", "open left", "open right")
LISTEN, OPEN_LEFT, OPEN_RIGHT = range(3)
ACCURACY = 0.85
REWARD = np.array([[-1.0, -100.0, 10.0], [-1.0, 10.0, -100.0]])  # by side and control
CLIP = 2  # the largest difference that the memory counts


def initial_belief(right: float = 0.5) -> aif.Belief:
    """The tiger is on the right with this probability.

    >>> initial_belief().state.tolist()
    [[0.5, 0.5]]
    """
    return aif.Belief(jnp.ones(1), jnp.array([[1 - right, right]]))


def moves() -> np.ndarray:
    """p(side' | side, control), (2, 3, 2)."""
    table = np.full((2, 3, 2), 0.5)
    table[:, LISTEN] = np.eye(2)
    return table


def words(accuracy: float = ACCURACY) -> np.ndarray:
    """p(word | side, control), (2, 3, 2): a coin after a door."""
    table = np.full((2, 3, 2), 0.5)
    table[:, LISTEN] = [[accuracy, 1 - accuracy], [1 - accuracy, accuracy]]
    return table


def tiger(
    belief: aif.Belief,
    horizon: int | jax.Array = 4,
    *,
    memory: int = CLIP,
    accuracy: float = ACCURACY,
    scale: float = 1.0,
) -> None:
    """The Tiger with its rewards as log-preferences.

    :param memory: the largest difference between the words for the two sides that the memory counts.
    :param accuracy: how often listening tells the right side.
    :param scale: nats for each unit of reward.

    >>> from numpyro.handlers import seed, trace
    >>> list(trace(seed(tiger, 0)).get_trace(initial_belief(), horizon=1))
    ['tiger_0', 'count_0', 'u_1', 'tiger_1', 'word_1', 'count_1', 'reward_1']
    """
    to, heard, reward = jnp.asarray(moves()), jnp.asarray(words(accuracy)), jnp.asarray(scale * REWARD)
    x = aif.state("tiger", dist.Categorical(probs=belief.state[0]), labels=SIDES, hidden=True)
    size = 2 * memory + 1
    contents = tuple(f"{n:+d}" for n in range(-memory, memory + 1))
    count = aif.memory("count", memory, size, labels=contents)

    def step(carry: tuple[jax.Array, jax.Array], t: jax.Array) -> tuple[jax.Array, jax.Array]:
        before, count = carry
        u = aif.control("u", dist.Categorical(probs=jnp.ones(3) / 3), labels=CONTROLS)
        x = aif.state("tiger", dist.Categorical(probs=to[before, u]), labels=SIDES, hidden=True)
        word = aif.observation("word", dist.Categorical(probs=heard[x, u]), labels=SIDES)
        more = jnp.clip(count + 2 * word - 1, 0, size - 1)  # type: ignore[operator]
        count = aif.memory("count", jnp.where(u == LISTEN, more, memory), size)
        aif.preference("reward", reward[before, u])
        return x, count

    aif.rollout(step, (x, count), horizon)
