"""Random worlds for searches, and the least cost of a policy that remembers everything by a tree of beliefs.

Many random worlds are one program: its parameter says which world it is, and a belief that holds the parameters of one
of them possible is a problem in that world. The costs are plain NumPy, one loop for each thing that may happen.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif

WORLDS, THETAS, STATES, CONTROLS, HORIZON = 25, 2, 3, 2, 3
OUTCOMES = list(itertools.product(range(2), range(2)))  # of y and z, of which z has plan=False


class Family(NamedTuple):
    """Random worlds by their parameters: Θ = worlds × the parameters of each."""

    control: np.ndarray  # (X, U) the prior; it sees the state where that is not hidden
    move: np.ndarray  # (Θ, X, U, X')
    y: np.ndarray  # (Θ, X, U, Y): it reads the control
    z: np.ndarray  # (Θ, X, Z)
    preference: np.ndarray  # (T, Θ, X, U, X'): another one at each time
    liked: np.ndarray  # (T, Y)
    certain: bool  # moves, and z

    def __hash__(self) -> int:
        return id(self)

    def model(self, belief: aif.Belief, horizon: int = HORIZON) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]), hidden=not self.certain)
        prior, move, sight_y, sight_z = map(jnp.asarray, (self.control, self.move, self.y, self.z))
        preference, liked = jnp.asarray(self.preference), jnp.asarray(self.liked)

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=prior[x] if self.certain else prior[0]))
            if self.certain:
                new = aif.state("x", aif.DeterministicCategorical(move.argmax(-1)[theta, x, u], STATES), hidden=False)
                z: Any = aif.DeterministicCategorical(sight_z.argmax(-1)[theta, new], 2)
            else:
                new = aif.state("x", dist.Categorical(probs=move[theta, x, u]), hidden=True)
                z = dist.Categorical(probs=sight_z[theta, new])
            y = aif.observation("y", dist.Categorical(probs=sight_y[theta, new, u]))
            aif.observation("z", z, plan=False)
            aif.preference("goal", preference[t - 1, theta, x, u, new])
            aif.preference("liked", liked[t - 1, y])
            return new

        aif.rollout(step, x, horizon)

    def belief(self, world: int) -> aif.Belief:
        rng = np.random.default_rng(world)
        parameter = np.zeros(WORLDS * THETAS)
        parameter[world * THETAS :][:THETAS] = rng.dirichlet(np.ones(THETAS))
        return aif.Belief(jnp.asarray(parameter), jnp.asarray(rows(rng, WORLDS * THETAS, STATES)))

    def outcomes(self, joint: np.ndarray, u: int) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        """The joint (Θ, X') after a control, with each thing that may be seen."""
        after = np.einsum("ix,ixk->ik", joint, self.move[:, :, u])
        for y, z in OUTCOMES:
            seen = after * self.y[:, :, u, y] * self.z[:, :, z]
            if seen.sum() > 0:
                yield (y, z), seen

    def cost(self, joint: np.ndarray, u: int, t: int) -> float:
        """The cost of one step, times the probability of being here."""
        arrived = joint[:, :, None] * self.move[:, :, u]
        cost = -joint.sum(0) @ np.log(self.control[:, u])
        cost -= (arrived * self.preference[t, :, :, u]).sum()
        return cost - float(np.einsum("ik,iky,y->", arrived.sum(1), self.y[:, :, u], self.liked[t]))

    def told(self, joint: np.ndarray, u: int) -> tuple[float, float]:
        """E[H[y,z|x',u,θ]] and I(y,z; x',θ|u) from the belief that is proportional to ``joint``."""
        joint = joint / joint.sum()
        after = np.einsum("ix,ixk->ik", joint, self.move[:, :, u])
        noise = sum(p * entropy(self.y[i, k, u]) + p * entropy(self.z[i, k]) for (i, k), p in np.ndenumerate(after))
        seen = np.array([part.sum() for _, part in self.outcomes(joint, u)])
        return float(noise), entropy(seen) - float(noise)


class Worth(NamedTuple):
    """The weights of ambiguity and novelty in F_active; both 0 in F_planning."""

    ambiguity: float = 0.0
    novelty: float = 0.0

    def step(self, worlds: Family, joint: np.ndarray, u: int, t: int) -> float:
        """What one step costs, times the probability of being here."""
        ambiguity, gain = worlds.told(joint, u) if self.ambiguity or self.novelty else (0.0, 0.0)
        return worlds.cost(joint, u, t) + joint.sum() * (self.ambiguity * ambiguity - self.novelty * gain)


PLANNING = Worth()


def entropy(p: np.ndarray) -> float:
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def rows(rng: np.random.Generator, *shape: int, sharp: float = 0.4) -> np.ndarray:
    table = rng.dirichlet(np.full(shape[-1], 0.7), shape[:-1])
    certain = np.eye(shape[-1])[rng.integers(shape[-1], size=shape[:-1])]
    table = np.where(rng.random(shape[:-1])[..., None] < sharp, certain, table)
    return table / table.sum(-1, keepdims=True)


@functools.cache
def family(certain: bool, *, timeless: bool = False) -> Family:
    rng = np.random.default_rng(7 + certain)
    num = WORLDS * THETAS
    sharp = 1.0 if certain else 0.4
    preference = 2 * rng.normal(size=(HORIZON, num, STATES, CONTROLS, STATES))
    liked = rng.normal(size=(HORIZON, 2))
    if timeless:
        preference, liked = (np.broadcast_to(table[:1], table.shape) for table in (preference, liked))
    return Family(
        rng.dirichlet(np.full(CONTROLS, 5.0), STATES if certain else 1).repeat(1 if certain else STATES, 0),
        rows(rng, num, STATES, CONTROLS, STATES, sharp=sharp),
        rows(rng, num, STATES, CONTROLS, 2),
        rows(rng, num, STATES, 2, sharp=sharp),
        preference,
        liked,
        certain,
    )


def optimum(worlds: Family, belief: aif.Belief, horizon: int, worth: Worth = PLANNING) -> float:
    """The least expected cost of a policy of everything, by a tree of beliefs."""

    def best(joint: np.ndarray, t: int) -> float:
        if t == horizon:
            return 0.0
        return min(
            worth.step(worlds, joint, u, t) + sum(best(seen, t + 1) for _, seen in worlds.outcomes(joint, u))
            for u in range(CONTROLS)
        )

    return best(np.asarray(belief.parameter)[:, None] * np.asarray(belief.state), 0)


def replayed(worlds: Family, plan: aif.Plan, worth: Worth = PLANNING) -> float:
    """What the plan's own policy costs, by the tree of everything that may be seen."""
    policy = plan.params["contingency"]

    def follow(joint: np.ndarray, place: int, t: int) -> float:
        if t == int(plan.horizon):
            return 0.0
        u = policy.controls[place]
        later = (follow(seen, policy.follow(place, outcome), t + 1) for outcome, seen in worlds.outcomes(joint, u))
        return worth.step(worlds, joint, u, t) + sum(later)

    joint = np.asarray(plan.belief.parameter)[:, None] * np.asarray(plan.belief.state)
    return sum(share * follow(joint, place, 0) for share, place in policy.starts)
