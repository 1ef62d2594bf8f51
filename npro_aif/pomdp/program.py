"""A `.POMDP` problem as a NumPyro program: hidden states, rewards as preferences, the discount as a decay."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from npro_aif.belief import Belief
from npro_aif.language import (
    DeterministicCategorical,
    check_history,
    check_horizon,
    control,
    history,
    observation,
    preference,
    rollout,
    state,
)
from npro_aif.numerics import is_concrete, whole_number
from npro_aif.pomdp.parser import parse
from npro_aif.pomdp.problem import Problem
from npro_aif.pomdp.tokens import decode

FILES = Path(__file__).parent / "files"
SUFFIX = ".POMDP"
LEFT = 0.01  # a discounted plan ends where later rewards count this much of the first


def read_pomdp(
    path: str | Path,
    *,
    horizon: int | None = None,
    memory: int | None = None,
    discount: float | None = None,
    scale: float = 1.0,
) -> tuple[Callable[..., Any], Belief]:
    """The program and the belief of a file in Cassandra's `.POMDP` format.

    Its sites are the state ``x`` (hidden), the control ``u``, the observation ``y`` of the new state and the control,
    and the preference ``reward``, γ^(t−1) Σ_y p(y|x',u) R(u,x,x',y). In a file without observations the policy sees the
    state, and the agent is told it (``seen``).

    :param path: of the file; a name without a folder may also be that of one that comes with the package (see
        :func:`shipped`).
    :param horizon: how many steps a plan has unless told otherwise; by default as many as the discount leaves above a
        hundredth, so that a file whose discount is 1 needs it.
    :param memory: how many of the last controls and observations the policy of a plan remembers; none by default. More
        than ``horizon - 1`` count as that many, all that there can be in a plan of so many steps: for longer plans say
        their horizon here. Each step more multiplies the contents of the memory, a million of them at most.
    :param discount: in place of the file's own.
    :param scale: nats for each unit of reward.

    >>> model, belief = read_pomdp("tiger.POMDP", horizon=2, memory=1)
    >>> belief.state.tolist()
    [[0.5, 0.5]]
    """
    problem = read_problem(path)
    if discount is not None:
        if not _is_number(discount) or not 0 <= discount <= 1:
            raise ValueError(f"discount: found {discount!r}, expected one from 0 to 1")
        problem = problem._replace(discount=float(discount))
    if not _is_number(scale):
        raise ValueError(f"scale: found {scale!r}, expected how many nats a unit of reward counts")
    if horizon is None:
        horizon = default_horizon(problem)
    check_horizon(horizon)
    memory = min(0 if memory is None else whole_number(memory, "memory", 0), int(horizon) - 1)
    check_history("memory", memory, _remembered(problem))
    model = functools.partial(pomdp, problem=problem, memory=memory, scale=scale, horizon=int(horizon))
    return model, Belief(state=jnp.asarray(problem.start))


def read_problem(path: str | Path) -> Problem:
    """The numbers of a file, or of the one of that name that comes with the package."""
    path = find_file(path)
    return parse(decode(path.read_bytes(), path.name), path.name, path.stem)


def find_file(path: str | Path) -> Path:
    """The file, or where no folder is named the one of that name that comes with the package."""
    folder, name = os.path.split(os.fspath(path))
    for candidate in (Path(path), *([] if folder else [FILES / name])):
        if candidate.is_file():
            return candidate
    named = ", ".join(shipped()) + (" without a folder" if folder else "")
    raise FileNotFoundError(f"path: found no file {os.fspath(path)!r}, expected one, or one of {named}")


def shipped() -> list[str]:
    """The files that come with the package.

    >>> shipped()
    ['grid4x3.POMDP', 'maze.POMDP', 'tiger.POMDP']
    """
    return sorted(path.name for path in FILES.glob(f"*{SUFFIX}"))


def default_horizon(problem: Problem) -> int:
    """How many steps the discount leaves above a hundredth."""
    if problem.discount == 1:
        raise ValueError(f"horizon: found none with a discount of 1 ({problem.name}), expected a number of steps")
    return 1 if problem.discount == 0 else math.ceil(math.log(LEFT) / math.log(problem.discount))


def pomdp(belief: Belief, horizon: int | jax.Array, *, problem: Problem, memory: int = 0, scale: float = 1.0) -> None:
    """The program of a problem; see :func:`read_pomdp`."""
    num_states, num_controls = len(problem.states), len(problem.controls)
    to = jnp.asarray(problem.transition.swapaxes(0, 1))  # (X, U, X')
    seen = jnp.asarray(problem.emission.swapaxes(0, 1))  # (X', U, Y)
    reward = scale * jnp.asarray(problem.mean_rewards())  # (X, U, X'|1)
    names = problem.states, problem.controls, problem.observations
    states, controls, observations = (None if n[:1] == ("0",) else n for n in names)
    sizes = _remembered(problem)

    x = state("x", dist.Categorical(probs=belief.state[0]), labels=states, hidden=problem.is_hidden)
    past = history("past", memory, sizes) if memory else None

    def step(carry: tuple[Any, Any], t: Any) -> tuple[Any, Any]:
        before, past = carry
        u = control("u", dist.Categorical(probs=jnp.full(num_controls, 1 / num_controls)), labels=controls)
        x = state("x", dist.Categorical(probs=to[before, u]), labels=states, hidden=problem.is_hidden)
        values = {"u": u}
        if problem.is_hidden:
            values["y"] = observation("y", dist.Categorical(probs=seen[x, u]), labels=observations)  # type: ignore[assignment]
        else:
            observation("seen", DeterministicCategorical(x, num_states), plan=False, labels=states)
        gain = reward[before, u, 0] if reward.shape[-1] == 1 else reward[before, u, x]
        preference("reward", problem.discount ** (t - 1) * gain)
        return x, history("past", memory, sizes, past, **values) if memory else None

    rollout(step, (x, past), horizon)


def _remembered(problem: Problem) -> dict[str, int]:
    """What a memory holds of each step, with the number of its values."""
    return {"u": len(problem.controls)} | ({"y": len(problem.observations)} if problem.is_hidden else {})


def _is_number(value: Any) -> bool:
    """Whether it is one finite number, where that can be known already."""
    if not is_concrete(value):
        return True
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf" and bool(np.isfinite(value))
