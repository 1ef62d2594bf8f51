"""Hidden states and memories that are used as they cannot be: refused by name, with what to do instead."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.guides import SequenceGuide, TemporalGuide

pytestmark = pytest.mark.usefixtures("quick_compile")

HALF = jnp.array([0.5, 0.5])
ROWS = jnp.array([[0.9, 0.1], [0.2, 0.8]])
BELIEF = aif.Belief(HALF, jnp.full((2, 4), 0.25))


def world(**changes: Any) -> Any:
    """A world with a visible and a hidden state and a memory, one part of which is changed."""

    def model(belief: aif.Belief, horizon: int = 2) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        start = aif.initial_state({"v": 2, "h": 2}, belief.state[theta])
        m = changes.get("first", lambda v, h: aif.memory("m", v, 3))(start["v"], start["h"])

        def step(carry: Any, t: Any) -> Any:
            v, h, m = carry
            prior = changes.get("prior", lambda v, h, m: HALF)(v, h, m)
            u = aif.control("u", dist.Categorical(probs=prior))
            moves = changes.get("move", lambda v, u, m: ROWS[u])(v, u, m)
            new_v = aif.state("v", dist.Categorical(probs=moves))
            new_h = aif.state("h", dist.Categorical(probs=ROWS[h]), hidden=True)
            seen = changes.get("sight", lambda h, m: ROWS[h])(new_h, m)
            y = aif.observation("y", dist.Categorical(probs=seen))
            sensed = aif.observation("z", dist.Categorical(probs=ROWS[new_v]), plan=False)
            arguments = m, v, new_v, new_h, theta, y, sensed
            m = changes.get("remember", lambda m, *rest: aif.memory("m", jnp.minimum(m + rest[4], 2), 3))(*arguments)
            aif.preference("goal", changes.get("goal", lambda v, m: 1.0 * v)(new_v, m))
            return new_v, new_h, m

        aif.rollout(step, (start["v"], start["h"], m), horizon)

    return model


CASES = {
    "a memory that reads a hidden state": (
        {"remember": lambda m, v, nv, h, theta, y, z: aif.memory("m", jnp.minimum(m + h, 2), 3)},
        "memory 'm': found a content that depends on the hidden state 'h'",
    ),
    "a first content that reads a hidden state": (
        {"first": lambda v, h: aif.memory("m", h, 3)},
        "memory 'm': found a content that depends on the hidden state 'h'",
    ),
    "a memory that reads a parameter": (
        {"remember": lambda m, v, nv, h, theta, y, z: aif.memory("m", theta + 0 * m, 3)},
        "memory 'm': found a content that depends on the parameter 'theta'",
    ),
    "a memory that reads the previous state": (
        {"remember": lambda m, v, nv, h, theta, y, z: aif.memory("m", v + 0 * m, 3)},
        "memory 'm': found a content that depends on the previous state 'v', 'h'",
    ),
    "a memory that reads what is not planned": (
        {"remember": lambda m, v, nv, h, theta, y, z: aif.memory("m", (y if z is None else z) + 0 * m, 3)},
        "memory 'm': found a content that depends on the observation 'z'",
    ),
    "a memory that is too small": (
        {"remember": lambda m, v, nv, h, theta, y, z: aif.memory("m", m + y, 3)},
        r"memory 'm': found contents that run over 0..3, expected 0..2 \(its size is 3\)",
    ),
    "a memory that is not set in the step": (
        {"remember": lambda m, *rest: m},
        "memory 'm': found before the rollout but not in the step",
    ),
    "a memory of another size": (
        {"remember": lambda m, v, nv, h, theta, y, z: aif.memory("m", y, 2)},
        "memory 'm': found a size of 3 before the rollout and of 2 in the step",
    ),
    "a prior that reads a memory": (
        {"prior": lambda v, h, m: ROWS[jnp.minimum(m, 1)]},
        "site 'u': found a distribution that depends on the memory 'm'; expected: only the policy",
    ),
    "a prior that sees a hidden state": (
        {"prior": lambda v, h, m: ROWS[h]},
        "site 'u': found a prior that depends on the hidden state 'h', expected visible states only",
    ),
    "a move that reads a memory": (
        {"move": lambda v, u, m: ROWS[jnp.minimum(m, 1)]},
        "site 'v': found a distribution that depends on the memory 'm'",
    ),
    "an observation that reads a memory": (
        {"sight": lambda h, m: ROWS[jnp.minimum(m, 1)]},
        "site 'y': found a distribution that depends on the memory 'm'",
    ),
    "a preference that reads a memory": (
        {"goal": lambda v, m: 1.0 * (m == 2)},
        "site 'goal': found a distribution that depends on the new memory 'm'",
    ),
    "labels of another number": (
        {"first": lambda v, h: aif.memory("m", v, 3, labels=("a", "b"))},
        "memory 'm': found 2 labels, expected 3",
    ),
    "a memory of a size that is no whole number": (
        {"first": lambda v, h: aif.memory("m", v, 2.5)},  # type: ignore[arg-type]
        "memory 'm': its size: found 2.5, expected a whole number of at least 1",
    ),
    "a memory that is too large": (
        {"first": lambda v, h: aif.memory("m", v, 10**10)},
        "memory 'm': found 10,000,000,000 contents, expected at most 1,048,576",
    ),
    "a history of too many steps": (
        {"first": lambda v, h: aif.history("m", 30, {"u": 2, "y": 3})},
        r"history 'm': found 30 steps of 7 values each, 7\^30 contents; expected at most 1,048,576, a length of 7",
    ),
    "a history of steps with too many values": (
        {"first": lambda v, h: aif.history("m", 1, {"u": 2_000, "y": 3_000})},
        r"found 1 steps of 6,000,001 values each, 6,000,001\^1 contents; expected at most 1,048,576, a length of 0",
    ),
    "a history of no whole number of steps": (
        {"first": lambda v, h: aif.history("m", 1.5, {"u": 2, "y": 3})},  # type: ignore[arg-type]
        "history 'm': its length: found 1.5, expected a whole number of at least 1",
    ),
    "a memory that is no integer": (
        {"first": lambda v, h: aif.memory("m", 1.0 * v, 3)},
        "memory 'm': found float32, expected integers from 0 to 2",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused(case: str) -> None:
    changes, message = CASES[case]
    planner = aif.Planner(world(**changes), objective=aif.Planning(), solver=aif.CoordinateSolver(max_sweeps=1))
    with pytest.raises(aif.ModelError, match=message):
        planner(jax.random.key(0), BELIEF)


def test_what_a_guide_may_learn() -> None:
    model = world()
    for learn in (("control", "state"), ("observation",)):
        planner = aif.Planner(model, TemporalGuide(model, learn=learn), aif.Planning(), aif.CoordinateSolver())
        with pytest.raises(aif.GuideError, match="expected 'control' and 'parameter' only"):
            planner(jax.random.key(0), BELIEF)
    with pytest.raises(aif.GuideError, match="q\\(u\\) is over whole plans"):
        aif.Planner(model, SequenceGuide(model))(jax.random.key(0), BELIEF, 1)


def test_a_state_cannot_be_hidden_and_not() -> None:
    def model(belief: aif.Belief, horizon: int = 1) -> None:
        x = aif.state("x", dist.Categorical(probs=belief.state[0]), hidden=False)

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=HALF))
            return aif.state("x", dist.Categorical(probs=ROWS[u]), hidden=True)

        aif.rollout(step, x, horizon)

    with pytest.raises(aif.ModelError, match="site 'x': found hidden=False before the rollout and hidden=True"):
        aif.Planner(model, solver=aif.CoordinateSolver())(jax.random.key(0), aif.Belief(jnp.ones(1), HALF[None]))


def test_a_spread_belief_over_what_the_policy_sees_warns_once() -> None:
    def model(hidden: bool | None) -> Any:
        def program(belief: aif.Belief, horizon: int = 1) -> None:
            x = aif.state("wear", dist.Categorical(probs=belief.state[0]), hidden=hidden)

            def step(x: Any, t: Any) -> Any:
                u = aif.control("u", dist.Categorical(probs=HALF))
                aif.preference("goal", jnp.where(u == x, 1.0, 0.0))
                return aif.state("wear", dist.Categorical(probs=ROWS[x]), hidden=hidden)

            aif.rollout(step, x, horizon)

        return program

    belief = aif.Belief(jnp.ones(1), jnp.array([[0.4, 0.6]]))

    def act(hidden: bool | None, **options: Any) -> int:
        planner = aif.Planner(model(hidden), objective=aif.Planning(), solver=aif.CoordinateSolver(max_sweeps=2))
        agent = aif.Agent(planner, belief, **options)
        first = agent.act(None)
        agent.reset()
        assert agent.act(None) == first  # and no second warning
        return first

    with pytest.warns(UserWarning, match="the policy sees 'wear', the agent does not know it"):
        assert act(None) == 1
    assert act(False) == act(True) == act(None, act_by="cost") == 1
    with pytest.raises(ValueError, match="act_by: found 'luck'"):
        act(None, act_by="luck")
