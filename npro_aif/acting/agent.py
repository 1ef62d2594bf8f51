"""An agent: it updates its belief with what it observes, plans anew at every step, and does the likeliest control.

What it needs from one step to the next is a belief, the last control and a count; everything else is the planner's.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping

import jax
import numpy as np
from jax import Array

from npro_aif.acting.filter import Filter
from npro_aif.acting.fused import Reflex
from npro_aif.language import Belief
from npro_aif.planning.functions import typed
from npro_aif.planning.plan import TIE_TOLERANCE, Plan
from npro_aif.planning.planner import Planner, trim
from npro_aif.program.checks import check_belief
from npro_aif.program.signature import split

Control = int | dict[str, int]
Observation = int | Mapping[str, int]


class Agent:
    """Acts by planning: ``control = agent.act(observation)``.

    :param planner: plans from beliefs.
    :param belief: what is believed before the first observation.
    :param horizon: how many steps to look ahead, the planner's largest by default.
    :param max_steps: how long an episode lasts at most; the horizon is never longer than the steps that are left.
    :param seed: where solvers start from. Step t of every episode starts from the same initial values, so that equal
        beliefs give equal plans; what differs between episodes is how ties are broken (:meth:`reset`).
    :param warm_start: start each plan from the one before, shifted by one step, instead.
    :param ignore_impossible: leave out observations that the model thinks impossible, instead of raising.
    :param record: keep every plan in ``agent.plans``.

    >>> import npro_aif as aif
    >>> from npro_aif.models import tmaze
    >>> solver = aif.CoordinateSolver(max_sweeps=20)
    >>> planner = aif.Planner(tmaze.tmaze, objective=aif.Active(), solver=solver, max_horizon=4)
    >>> agent = Agent(planner, tmaze.initial_belief(), max_steps=4)
    >>> tmaze.CONTROLS[agent.act({"cue": 0, "place": tmaze.START})]
    'South'
    """

    def __init__(
        self,
        planner: Planner,
        belief: Belief,
        horizon: int | None = None,
        max_steps: int | None = None,
        *,
        seed: int = 0,
        warm_start: bool = False,
        ignore_impossible: bool = False,
        record: bool = True,
    ):
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps: found {max_steps}, expected at least 1")
        self.planner = planner
        program = planner.program(belief, horizon)
        check_belief(belief, program.signature)
        self.initial_belief = Belief(*map(typed, belief))
        self.horizon = int(horizon or planner.max_horizon or program.num_steps)
        self.max_steps = max_steps
        self.seed = seed
        self.warm_start = warm_start
        self.ignore_impossible = ignore_impossible
        self.record = record
        self.filter = Filter(program)
        self.reflex = Reflex(planner, self.filter) if Reflex.serves(planner, self.filter) else None
        self.reset()

    def reset(self, key: Array | None = None) -> None:
        """Begin an episode.

        :param key: breaks the ties between controls; without it the first of them is taken.
        """
        self.key = None if key is None else key_words(key)
        self.belief = self.initial_belief
        self.step = 0  # how many controls were chosen
        self.control: int | None = None  # the last of them, flat
        self.plans: list[Plan] = []

    def act(self, observation: Observation) -> Control:
        """The control to do next, given what was observed since the last one (or at the start)."""
        found = self._decide(observation)
        if not isinstance(found, Plan):
            return self.choose(np.asarray(found))
        if self.record:
            self.plans = [*self.plans, trim(found, self.steps_ahead())]
        elif self.warm_start:
            self.plans = [found]
        return self.choose(np.asarray(found.control)[0])

    def _decide(self, observation: Observation) -> Plan | Array:
        """Update the belief, and plan; where nothing is kept of the plan q(u_1), (U,), will do."""
        warm = self.plans[-1] if self.warm_start and self.plans else None
        key, horizon, whole = self.planning_key(), self.steps_ahead(), self.record or self.warm_start
        if self.reflex is not None:
            name = self.seed, self.step
            found = self.reflex(self.belief, self.control, observation, horizon, key, name, warm, whole=whole)
            if found is not None:
                self.belief = found[0]
                return found[1]
        self.observe(observation)  # which also says what is impossible
        if whole:
            return self.planner.solve(key, self.belief, horizon, warm)
        return self.planner.first_control(key, self.belief, horizon)

    def observe(self, observation: Observation) -> None:
        """Update the belief with the last control and what was observed then."""
        self.belief = self.filter(
            self.belief, self.control, observation, ignore_impossible=self.ignore_impossible, step=self.step
        )

    def steps_ahead(self) -> int:
        """The horizon of the next plan."""
        if self.max_steps is None:
            return self.horizon
        return min(self.horizon, max(1, self.max_steps - self.step))

    def planning_key(self) -> Array:
        """Where the next plan's solver starts from: the same at this step of every episode."""
        return _planning_key(self.seed, self.step)

    def choose(self, probs: np.ndarray) -> Control:
        """Take the likeliest control under q(u_1), (U,), and remember it."""
        tied = probs >= probs.max() - TIE_TOLERANCE
        if self.key is None or tied.sum() == 1:
            self.control = int(tied.argmax())
        else:
            self.control = int(random.Random(f"{self.key} {self.step}").choice(np.flatnonzero(tied)))
        self.step += 1
        sites = self.filter.program.signature.control
        if len(sites) == 1:
            return self.control
        return {name: int(value) for name, value in split(self.control, sites).items()}


def key_words(key: Array) -> tuple[int, ...]:
    """A key as numbers, which seed Python's generator: those of JAX and NumPy take longer for one draw than a plan."""
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


@functools.lru_cache
def _planning_key(seed: int, step: int) -> Array:
    return jax.random.fold_in(jax.random.key(seed), step)
