"""Fitting an agent to what it did: its beliefs are filtered, and each choice counts with its probability.

Equal beliefs with the same number of steps to go are one decision, which is planned once; only how often each control
was chosen there matters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array

from npro_aif._jax import eval_context
from npro_aif.acting.filter import Filter
from npro_aif.belief import Belief
from npro_aif.learning.choice import choice_logits, first_costs_of
from npro_aif.learning.evidence import Follower, filter_inputs
from npro_aif.learning.records import as_records
from npro_aif.numerics import is_concrete
from npro_aif.planning.planner import Planner
from npro_aif.planning.support import power_of_two
from npro_aif.program.checks import check_belief
from npro_aif.program.program import Fixed, Program, program_of

DIGITS = 6  # beliefs that agree to so many digits are one


class Decisions(NamedTuple):
    """The decisions of some episodes and the beliefs behind them, padded with decisions that have no counts."""

    belief: Belief  # (B, Θ) and (B, Θ, X)
    horizon: Any  # (B,) the number of steps looked ahead
    elapsed: Any  # (B,) the number of steps that had passed
    counts: Any  # (B, U) how often each control was chosen


def decisions(
    model: Callable[..., Any],
    belief: Belief,
    data: Any,
    *,
    horizon: int,
    max_steps: int | None = None,
    size: int | None = None,
) -> Decisions:
    """The decisions in recorded episodes, with each belief once.

    :param model: the world as the agent knows it, with which its beliefs are filtered.
    :param belief: the agent's belief before the first control (and before the first look).
    :param data: recorded episodes, as for :func:`npro_aif.episodes`.
    :param horizon: how many steps the agent looks ahead.
    :param max_steps: how long an episode lasts; the horizon is never longer than the steps that are left.
    :param size: pad to this many decisions, so that several data sets compile once; the next power of two by default.

    >>> from npro_aif.models.tmaze import initial_belief, tmaze
    >>> data = {"controls": np.array([[2, 0], [2, 0]]), "observations": {"cue": np.array([[1, -1], [1, -1]])}}
    >>> choices = decisions(tmaze, initial_belief(), data, horizon=2)  # South, then North, in both episodes
    >>> choices.counts.tolist(), choices.belief.parameter.tolist()
    ([[0.0, 0.0, 2.0, 0.0], [2.0, 0.0, 0.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]])
    """
    records = as_records(data, model, belief)
    program = program_of(model, belief, 1)
    check_belief(belief, program.signature)
    records.check(program.signature)
    if not is_concrete(records._replace(truth=None)):
        raise ValueError("data: found traced arrays, expected numbers: what was done is recorded")
    with eval_context():
        controls, seen, first = map(np.asarray, filter_inputs(Filter(program.base), records))
    if controls.ndim != 2:
        raise ValueError(f"controls: found shape {controls.shape}, expected (N, T)")
    has_numbers = is_concrete(belief) and (not program.perceives_numbers or is_concrete(program.fixed.numbers))
    if has_numbers:  # also inside a NumPyro program: the beliefs do not depend on fitted numbers
        with eval_context():
            beliefs = _beliefs(program.base)(program.base.fixed, belief, controls, seen, first)
        beliefs = jax.tree.map(np.asarray, beliefs)
    else:
        beliefs = _beliefs(program.base)(program.fixed, belief, controls, seen, first)
    ahead = [horizon if max_steps is None else min(horizon, max_steps - t) for t in range(controls.shape[1])]
    places: dict[Any, int] = {}
    chosen: list[tuple[int, int]] = []  # the episode and step where each decision occurs first
    counts: list[np.ndarray] = []
    elapsed = program.takes_elapsed
    for n, row in enumerate(controls):
        for t, control in enumerate(row):
            if control < 0:
                continue
            if ahead[t] < 1:
                raise ValueError(f"max_steps: found {max_steps}, expected at least {t + 1}: the length of an episode")
            if has_numbers:
                belief_name: Any = tuple(np.round(table[n, t], DIGITS).tobytes() for table in beliefs)
            else:
                belief_name = first[n].tobytes(), row[:t].tobytes(), seen[n, :t].tobytes()
            name = belief_name, ahead[t], t if elapsed else 0
            if name not in places:
                places[name] = len(places)
                chosen.append((n, t))
                counts.append(np.zeros(program.signature.num_controls))
            counts[places[name]][control] += 1
    if not chosen:
        raise ValueError("data: found no control that was done, expected some")
    size = power_of_two(len(chosen)) if size is None else size
    if size < len(chosen):
        raise ValueError(f"size: found {size}, expected at least the {len(chosen)} decisions in the data")
    place = np.array(chosen)[np.minimum(np.arange(size), len(chosen) - 1)]
    rows = np.zeros((size, counts[0].size))
    rows[: len(counts)] = counts
    picked = Belief(*(table[place[:, 0], place[:, 1]] for table in beliefs))
    steps = np.array(ahead, np.int32)[place[:, 1]]
    return Decisions(picked, steps, place[:, 1].astype(np.int32) if elapsed else np.zeros(size, np.int32), rows)


@functools.lru_cache(maxsize=16)
def _beliefs(program: Program) -> Callable[..., Belief]:
    """The belief before every control of every episode, (N, T, Θ) and (N, T, Θ, X)."""
    follow = Follower(program)

    def one(fixed: Fixed, belief: Belief, controls: Array, seen: Array, first: Array) -> Belief:
        return jax.vmap(lambda now: now.belief())(follow(fixed, belief, controls, seen, first)[1])

    return jax.jit(jax.vmap(one, (None, None, 0, 0, 0)))


def behaviour(
    name: str,
    planner: Planner,
    belief: Belief,
    data: Any,
    *,
    precision: Any = 1.0,
    horizon: int | None = None,
    max_steps: int | None = None,
) -> Array:
    """Condition a NumPyro program on what an agent did: add a factor with log p(u) of its choices, and return it, ().

    At every step the agent chooses by :class:`Choice` from its belief at that time.

    :param planner: how the agent plans; its model or objective holds the numbers to fit (preferences, weights).
    :param belief: the agent's belief before the first control (and before the first look).
    :param data: :class:`Decisions`; or :class:`Records` or episodes, from which they are made.
    :param precision: how surely the agent takes the best control.
    :param horizon: how many steps it looks ahead, the planner's largest by default.
    :param max_steps: how long an episode lasts; the horizon is never longer than the steps that are left.

    >>> import npro_aif as aif, numpyro.distributions as dist
    >>> from numpyro.handlers import seed, trace
    >>> from npro_aif.models.tmaze import initial_belief, tmaze
    >>> data = aif.Records(np.array([[2]]), {"cue": np.array([[1]]), "place": np.array([[0]])})
    >>> def program(data):
    ...     gamma = numpyro.sample("gamma", dist.LogNormal(1.0, 0.5))
    ...     maze = functools.partial(tmaze, gamma=gamma)
    ...     planner = aif.Planner(maze, solver=aif.CoordinateSolver(restarts=1), max_horizon=2)
    ...     behaviour("choices", planner, initial_belief(), data)
    >>> list(trace(seed(program, 0)).get_trace(data))
    ['gamma', 'choices']
    """
    if not isinstance(data, Decisions):
        ahead = planner.max_horizon if horizon is None else horizon
        if ahead is None:
            raise ValueError("horizon: found None, expected a number of steps")
        data = decisions(planner.model, belief, data, horizon=ahead, max_steps=max_steps)
    costs = first_costs_of(planner, data.belief, data.horizon, elapsed=data.elapsed)  # (B, U)
    log = jax.nn.log_softmax(choice_logits(costs, precision))
    chosen = jnp.asarray(data.counts) > 0
    value = jnp.where(chosen, data.counts * jnp.where(chosen, log, 0.0), 0.0).sum()
    numpyro.factor(name, value)
    return value
