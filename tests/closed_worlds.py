"""Random worlds with hidden states and memories, and what to compare plans in them with: brute force and belief trees.

Everything here is plain NumPy over the world's own tables, one loop for each index; nothing of the package is used but
the language in which the programs are written.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import npro_aif as aif


class ClosedWorld(NamedTuple):
    """A world's numbers: V visible × H hidden states (x = v H + h), U controls, Y outcomes, Θ parameters."""

    parameter: np.ndarray  # (Θ,)
    initial: np.ndarray  # (Θ, X)
    control: np.ndarray  # (V, U) the prior
    move: np.ndarray  # (Θ, X, U, X)
    sight: np.ndarray  # (Θ, X, U, Y)
    preference: np.ndarray  # (X, U, X, Θ)
    liked: np.ndarray  # (Y,) a preference on the observation
    num_hidden: int
    horizon: int
    memory: str  # "all" (v_0, then v, u and y of every step), "seen" (u and y) or "last" (the last y)
    certain: bool  # whether observations are certain, and written so

    @property
    def num_states(self) -> int:
        return self.initial.shape[1]

    @property
    def num_visible(self) -> int:
        return self.num_states // self.num_hidden

    @property
    def num_memories(self) -> int:
        num_u, num_y = self.sight.shape[2:]
        if self.memory == "last":
            return num_y + 1
        per_step = num_u * num_y * (self.num_visible if self.memory == "all" else 1)
        return (self.num_visible if self.memory == "all" else 1) * sum(per_step**t for t in range(self.horizon + 1))

    def first(self, v: Any) -> Any:
        """The memory's first content."""
        return v if self.memory == "all" else 0 * v

    def remember(self, m: Any, v: Any, u: Any, y: Any) -> Any:
        """The next content: a number whose digits are everything so far; longer histories come after shorter ones."""
        if self.memory == "last":
            return 1 + y + 0 * m
        num_u, num_y = self.sight.shape[2:]
        base = self.num_visible if self.memory == "all" else 1
        per_step = num_u * num_y * base
        digit = (v * num_u + u) * num_y + y if self.memory == "all" else u * num_y + y
        return jnp.minimum(base + m * per_step + digit, self.num_memories - 1)

    def belief(self) -> aif.Belief:
        return aif.Belief(jnp.asarray(self.parameter), jnp.asarray(self.initial))

    def model(self, belief: aif.Belief, horizon: int) -> None:
        num_v, num_h, num_m = self.num_visible, self.num_hidden, self.num_memories
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.initial_state({"v": num_v, "h": num_h}, belief.state[theta])
        m = aif.memory("m", self.first(x["v"]), num_m)
        rows = self.move.reshape(*self.move.shape[:3], num_v, num_h)
        total = rows.sum(-1, keepdims=True)
        hidden = jnp.asarray(np.where(total > 0, rows / np.where(total > 0, total, 1.0), 1 / num_h))
        visible, sight = jnp.asarray(total[..., 0]), jnp.asarray(self.sight)

        def step(carry: Any, t: Any) -> Any:
            v, h, m = carry
            u = aif.control("u", dist.Categorical(probs=jnp.asarray(self.control)[v]))
            before = v * num_h + h
            new_v = aif.state("v", dist.Categorical(probs=visible[theta, before, u]))
            new_h = aif.state("h", dist.Categorical(probs=hidden[theta, before, u, new_v]), hidden=True)
            probs = sight[theta, new_v * num_h + new_h, u]
            certain = aif.DeterministicCategorical(jnp.argmax(probs, -1), probs.shape[-1]) if self.certain else None
            y = aif.observation("y", certain or dist.Categorical(probs=probs))
            m = aif.memory("m", self.remember(m, new_v, u, y), num_m)
            cost = jnp.asarray(self.preference)
            aif.preference("goal", cost[before, u, new_v * num_h + new_h, theta])
            aif.preference("liked", jnp.asarray(self.liked)[y])
            return new_v, new_h, m

        aif.rollout(step, (x["v"], x["h"], m), horizon)


def closed_world(seed: int, memory: str = "all", horizon: int = 2, *, certain: bool = False) -> ClosedWorld:
    """A random world with up to 2 hidden and (if the memory needs them seen) 1 or 2 visible values, some of it certain.

    :param certain: all observations are, and there are two parameters.
    """
    rng = np.random.default_rng(seed)
    num_v = 1 if memory == "seen" else int(rng.integers(1, 3))
    num_h, num_u, num_y, num_theta = int(rng.integers(1, 3)), 2, 2, int(rng.integers(1, 3))
    num_x = num_v * num_h
    if certain:
        num_theta = 2

    def rows(*shape: int) -> np.ndarray:
        table = rng.dirichlet(np.full(shape[-1], 0.7), shape[:-1])
        sharp = np.eye(shape[-1])[rng.integers(shape[-1], size=shape[:-1])]
        table = np.where(rng.random(shape[:-1])[..., None] < 0.3, sharp, table)
        return table / table.sum(-1, keepdims=True)

    world = ClosedWorld(
        parameter=rng.dirichlet(np.ones(num_theta)),
        initial=rows(num_theta, num_x),
        control=rng.dirichlet(np.full(num_u, 5.0), num_v),
        move=rows(num_theta, num_x, num_u, num_x),
        sight=rows(num_theta, num_x, num_u, num_y),
        preference=2 * rng.normal(size=(num_x, num_u, num_x, num_theta)),
        liked=rng.normal(size=num_y),
        num_hidden=num_h,
        horizon=horizon,
        memory=memory,
        certain=certain,
    )
    return world._replace(sight=np.eye(num_y)[world.sight.argmax(-1)]) if certain else world


def seen_world(seed: int, horizon: int = 2) -> ClosedWorld:
    """A random world without hidden states in which neither the moves nor x_0 tell anything about θ."""
    world = closed_world(seed, "all", horizon, certain=True)._replace(num_hidden=1, certain=False)
    rng = np.random.default_rng(seed)
    initial, move = world.initial[:1], world.move[:1]
    return world._replace(
        initial=np.repeat(initial, 2, 0),
        move=np.repeat(move, 2, 0),
        sight=rng.dirichlet(np.ones(world.sight.shape[-1]), world.sight.shape[:-1]),
        control=rng.dirichlet(np.full(world.sight.shape[2], 5.0), world.num_states),
    )


def tree_value(world: ClosedWorld) -> float:
    """The least expected cost of a policy that remembers everything: a dynamic programme over the tree of beliefs."""
    num_h = world.num_hidden
    visible = np.arange(world.num_states) // num_h

    def best(joint: np.ndarray, v: int, steps: int) -> float:
        """The least cost to go times the probability of being here; joint (Θ, X) over the x of this v."""
        if steps == 0 or joint.sum() == 0:
            return 0.0
        costs = []
        for u in range(world.control.shape[1]):
            arrived = np.einsum("ix,ixk->ixk", joint, world.move[:, :, u])
            cost = -joint.sum() * np.log(world.control[v, u])
            cost -= np.einsum("ixk,xki->", arrived, world.preference[:, u])
            after = arrived.sum(1)  # (Θ, X')
            seen = after[:, :, None] * world.sight[:, :, u]  # (Θ, X', Y)
            cost -= (seen.sum((0, 1)) * world.liked).sum()
            for to, y in itertools.product(range(world.num_visible), range(len(world.liked))):
                cost += best(np.where(visible == to, seen[:, :, y], 0.0), to, steps - 1)
            costs.append(cost)
        return min(costs)

    start = world.parameter[:, None] * world.initial
    return sum(best(np.where(visible == v, start, 0.0), v, world.horizon) for v in range(world.num_visible))


class History(NamedTuple):
    """One possible history, with all memories."""

    probability: float
    theta: int
    states: tuple[int, ...]  # (T+1,)
    controls: tuple[int, ...]  # (T,)
    sights: tuple[int, ...]  # (T,)
    memories: tuple[int, ...]  # (T+1,)


def histories(world: ClosedWorld, policy: np.ndarray, parameter: np.ndarray) -> list[History]:
    """Every history that a policy (T, V·M, U) makes possible, with q(θ) in place of p(θ)."""
    num_h, num_m = world.num_hidden, world.num_memories
    found = []

    def go(probability: float, theta: int, xs: tuple, us: tuple, ys: tuple, ms: tuple) -> None:
        t = len(us)
        if probability <= 0:
            return
        if t == world.horizon:
            found.append(History(probability, theta, xs, us, ys, ms))
            return
        row = policy[t, (xs[-1] // num_h) * num_m + ms[-1]]
        for u, to, y in itertools.product(range(len(row)), range(world.num_states), range(len(world.liked))):
            p = probability * row[u] * world.move[theta, xs[-1], u, to] * world.sight[theta, to, u, y]
            if p > 0:
                m = int(world.remember(jnp.asarray(ms[-1]), to // num_h, u, y))
                go(p, theta, (*xs, to), (*us, u), (*ys, y), (*ms, m))

    for theta, x in itertools.product(range(len(parameter)), range(world.num_states)):
        m = int(world.first(jnp.asarray(x // num_h)))
        go(float(parameter[theta] * world.initial[theta, x]), theta, (x,), (), (), (m,))
    return found


def entropy(*keys: tuple[Any, float]) -> float:
    """Entropy of a distribution given as (key, mass) pairs, equal keys added up."""
    total: dict[Any, float] = {}
    for key, mass in keys:
        total[key] = total.get(key, 0.0) + mass
    return -sum(p * np.log(p) for p in total.values() if p > 0)


def brute_force(world: ClosedWorld, policy: np.ndarray, parameter: np.ndarray) -> dict[str, float]:
    """The terms of F_active (weight 1, raw priors, with the correction), from the list of all histories.

    Every conditional entropy is a difference of entropies of the listed variables:
    H[u|v,m], H[v'|v,m,u], H[y|v',m,u] and H[y|x',u,θ].
    """
    every, num_h = histories(world, policy, parameter), world.num_hidden
    terms = dict.fromkeys(("preference", "prior", "policy", "moves", "sights", "ambiguity"), 0.0)
    for h in every:
        for t, (u, y) in enumerate(zip(h.controls, h.sights, strict=True)):
            x, to = h.states[t], h.states[t + 1]
            terms["preference"] += h.probability * (world.preference[x, u, to, h.theta] + world.liked[y])
            terms["prior"] -= h.probability * np.log(world.control[x // num_h, u])
            row = world.sight[h.theta, to, u]
            terms["ambiguity"] -= h.probability * float((row[row > 0] * np.log(row[row > 0])).sum())

    def conditional(of: Any, given: Any, t: int) -> float:
        pairs = [((given(h, t), of(h, t)), h.probability) for h in every]
        return entropy(*pairs) - entropy(*((key[0], p) for key, p in pairs))

    def seen(h: History, t: int) -> Any:
        return h.states[t] // num_h, h.memories[t]

    for t in range(world.horizon):
        terms["policy"] += conditional(lambda h, t: h.controls[t], seen, t)
        given_move = lambda h, t: (*seen(h, t), h.controls[t])  # noqa: E731
        terms["moves"] += conditional(lambda h, t: h.states[t + 1] // num_h, given_move, t)
        context = lambda h, t: (h.states[t + 1] // num_h, h.memories[t], h.controls[t])  # noqa: E731
        terms["sights"] += conditional(lambda h, t: h.sights[t], context, t)
    gap = parameter * (
        np.log(np.where(parameter > 0, parameter, 1)) - np.log(np.where(parameter > 0, world.parameter, 1))
    )
    terms["complexity"] = float(gap.sum())
    return terms
