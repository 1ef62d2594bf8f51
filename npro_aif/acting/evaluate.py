"""The worth of an agent: the expected log-preference of following it, replanning at every step.

It is exact, over the tree of everything that the agent may observe, where that tree is small; otherwise the model is
simulated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.acting.agent import Agent, AgentState
from npro_aif.acting.solutions import fingerprint
from npro_aif.belief import Belief
from npro_aif.inference.temporal import Slice, TemporalPosterior
from npro_aif.language import check_horizon
from npro_aif.numerics import safe_log
from npro_aif.planning.planner import Planner
from npro_aif.program.program import Fixed, program_of
from npro_aif.program.signature import Site, split
from npro_aif.sizes import MOST_JOINT_OUTCOMES

IMPOSSIBLE = 1e-12  # observations with less probability are left out


class Worth(NamedTuple):
    """What following an agent brings."""

    value: float  # the expected sum of log-preferences, in nats
    standard_error: float  # 0 where it is exact
    exact: bool
    size: int  # beliefs that were decided from, or episodes that were simulated

    def __repr__(self) -> str:
        if self.exact:
            return f"{self.value:.4f} (exact, {self.size} beliefs)"
        return f"{self.value:.4f} ± {self.standard_error:.4f} ({self.size} episodes)"


def evaluate(
    agent: Agent | Planner,
    model: Callable[..., Any],
    belief: Belief,
    horizon: int,
    *,
    reward: Callable[..., Any] | None = None,
    max_beliefs: int = 2_000,
    episodes: int = 1_000,
    seed: int = 0,
) -> Worth:
    """The expected log-preference of ``horizon`` steps in a model, controlled by an agent that replans at every step.

    The agent decides first without an observation, from ``belief``; the preferences are the model's at t = 1 … horizon.

    :param agent: an agent, or a planner to make one of.
    :param model: where it acts; it may be another one than the agent plans with.
    :param reward: counted in place of the preferences: a function ``reward(parameter, before, control, after, t)`` of
        the values in one step, where the first four are dicts by site of arrays on axes (θ, x, x') and t counts from 1:
        ``lambda p, b, u, a, t: (t == 4) & (a["x"] == goal[p["theta"]])``.
    :param max_beliefs: simulate if the tree has more beliefs than this.
    :param episodes: how many to simulate.
    :param seed: of the simulation.

    >>> import npro_aif as aif
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> guide = aif.guides.TemporalGuide(tmaze, learn=("control",))
    >>> planner = aif.Planner(tmaze, guide, aif.Active(), aif.CoordinateSolver(), max_horizon=4)
    >>> evaluate(planner, tmaze, initial_belief(), horizon=4)  # replanning reaches the arm: the log of almost one
    -0.0538 (exact, 7 beliefs)
    """
    check_horizon(horizon)
    who: Any = agent
    if hasattr(who, "solver"):
        who = Agent(who, belief, min(horizon, who.max_horizon or horizon), horizon, record=False)
    world = _Steps(model, belief, horizon, reward)
    tree = _Tree(who, world, max_beliefs)
    try:
        value = tree.value(who.begin()._replace(belief=belief), None)
        return Worth(value, 0.0, True, tree.count)
    except _TooMany:
        values = [_episode(who, world, belief, np.random.default_rng((seed, i))) for i in range(episodes)]
        return Worth(float(np.mean(values)), float(np.std(values) / math.sqrt(episodes)), False, episodes)


class _TooMany(Exception):
    """The tree has more beliefs than are looked at."""


class _Steps:
    """One step of a model from any belief: the expected preference, and the probabilities of observations."""

    def __init__(
        self, model: Callable[..., Any], belief: Belief, horizon: int, reward: Callable[..., Any] | None = None
    ):
        self.program, self.horizon, self.reward = program_of(model, belief, horizon), horizon, reward
        signature = self.program.signature
        self.sites: tuple[Site, ...] = signature.observation + signature.sensor
        self.tabled = math.prod(site.size for site in self.sites) <= MOST_JOINT_OUTCOMES
        self._expect = jax.jit(self._step)

    def expect(self, belief: Belief, t: int, control: int) -> tuple[float, np.ndarray]:
        """E[log p̂] of step t (from 0 on), and the probability of every joint outcome, one axis for each site."""
        preference, seen = self._expect(self.program.fixed, belief, jnp.asarray(t), jnp.asarray(control))
        return float(preference), np.asarray(seen)

    def _step(self, fixed: Fixed, belief: Belief, t: Array, control: Array) -> tuple[Array, Array]:
        world = self.program.bind(fixed, belief, self.horizon).routed().seeing_everything()
        num_states, num_controls = world.initial.shape[1], world.num_controls
        policy = jnp.broadcast_to(safe_log(jax.nn.one_hot(control, num_controls)), (1, num_states, num_controls))
        posterior = TemporalPosterior(
            world.parameter,
            world.initial,
            jnp.broadcast_to(policy, (self.horizon, *policy.shape[1:])),
            world.state,
            world.observation,
        )
        now = posterior.slice(world, t, posterior.start(world))
        gain = now.preference() if self.reward is None else self._rewarded(now, control)
        kernels = world.observation | world.sensor
        weight = now.loop.observed(now.flow.arrived)  # (X'·U*, Θ)
        by_state = weight.reshape(num_states, -1, weight.shape[-1]).sum(1)
        if not self.tabled:
            return gain, by_state
        joint = by_state.T[..., None]  # (Θ, X', outcomes so far)
        for site in self.sites:
            table = jnp.exp(kernels[site.name].at(t).table())  # (Θ|1, X'[·U], Y)
            if table.shape[1] > num_states:
                table = table.reshape(table.shape[0], num_states, num_controls, -1)[:, :, control]
            joint = (joint[..., :, None] * table[..., None, :]).reshape(*joint.shape[:2], -1)
        return gain, joint.sum((0, 1)).reshape([site.size for site in self.sites])

    def _rewarded(self, now: Slice, control: Array) -> Array:
        """The expected reward of a step, by the user's function of everything that happens in it."""
        signature = self.program.signature
        num_states = signature.num_states
        theta, x = now.world.theta[:, None, None], jnp.arange(num_states)
        values = (
            split(theta, signature.parameter),
            split(x[:, None], signature.state),
            split(control, signature.control),
            split(x, signature.state),
        )
        table = jnp.asarray(self.reward(*values, now.t + 1), now.flow.before.dtype)  # type: ignore[misc]
        moves = jnp.exp(now.kernel.given(control).table())[:, :, 0]  # (Θ|1, X|1, X')
        return (now.flow.before.T[:, :, None] * moves * table).sum()


class _Tree:
    """The tree of beliefs that an agent can reach; decisions from equal beliefs are made once."""

    def __init__(self, agent: Agent, steps: _Steps, max_beliefs: int):
        self.agent, self.steps, self.max_beliefs = agent, steps, max_beliefs
        self.count = 0
        self._known: dict[str, float] = {}
        if not steps.tabled:
            names = ", ".join(site.name for site in steps.sites)
            raise ValueError(
                f"model: found more than {MOST_JOINT_OUTCOMES:,} joint outcomes of {names}, expected fewer (run "
                "episodes in an environment instead)"
            )

    def value(self, state: AgentState, observation: Any) -> float:
        """The expected sum of preferences from here on."""
        ((_, after),) = self.agent.decide([state], [observation], record=False)
        rounded: Any = (np.asarray(table).round(6) for table in after.belief)
        name = fingerprint(Belief(*rounded), after.step, after.control)
        if name in self._known:
            return self._known[name]
        self.count += 1
        if self.count > self.max_beliefs:
            raise _TooMany
        preference, seen = self.steps.expect(after.belief, state.step, int(after.control))  # type: ignore[arg-type]
        if after.step < self.steps.horizon:
            preference += sum(p * self.value(after, outcome) for outcome, p in self._outcomes(seen))
        self._known[name] = preference
        return preference

    def _outcomes(self, seen: np.ndarray) -> Iterator[tuple[dict[str, int], float]]:
        for index in itertools.product(*(range(n) for n in seen.shape)):
            if seen[index] > IMPOSSIBLE:
                yield {site.name: i for site, i in zip(self.steps.sites, index, strict=True)}, float(seen[index])


def _episode(agent: Agent, steps: _Steps, belief: Belief, rng: np.random.Generator) -> float:
    """The expected preferences along one random history: only observations are drawn."""
    observation: dict[str, int] | None = None
    state, total = agent.begin()._replace(belief=belief), 0.0
    for t in range(steps.horizon):
        ((_, state),) = agent.decide([state], [observation], record=False)
        preference, seen = steps.expect(state.belief, t, int(state.control))  # type: ignore[arg-type]
        total += preference
        flat = rng.choice(seen.size, p=seen.ravel().astype(float) / seen.sum(dtype=float))
        index = np.unravel_index(flat, seen.shape)
        observation = {site.name: int(i) for site, i in zip(steps.sites, index, strict=True)}
    return total
