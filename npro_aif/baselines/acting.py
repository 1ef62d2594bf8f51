"""The common part of the baselines as agents (horizon, ties, the form of a control), and the references as agents.

An agent scores its controls by −EFE at every step and does the best one; the horizon is never longer than the steps
that are left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from npro_aif.acting.filter import Filter
from npro_aif.baselines.adapter import Goal, Timing
from npro_aif.baselines.reference import choose, sophisticated, standard_efe
from npro_aif.baselines.tables import dense_tables, reread
from npro_aif.belief import Belief
from npro_aif.inference.efe import expected_free_energy
from npro_aif.planning.choose import Rule, key_words
from npro_aif.program.program import program_of
from npro_aif.program.signature import split

SAME_BELIEF = 6  # two beliefs are the same if they agree to this many decimals; pymdp's are float32
RULE = Rule(tolerance=1e-3)  # nats: scores that differ by less are ties (pymdp's are float32 sums of large terms)
Method = Literal["efe", "sophisticated"]
Model = Callable[..., Any]


class Acting:
    """An agent without its perception and its scores, which subclasses add.

    :param belief: what is believed before the first observation.
    :param horizon: how many steps to look ahead.
    :param max_steps: how long an episode lasts at most; the horizon is never longer than the steps that are left.
    :param gamma: the precision with which controls are drawn, if they are.
    :param stochastic: draw a control from softmax(γ · score) instead of taking the best.
    :param remember: score equal problems (belief and steps to go) once, as they recur in later episodes.
    """

    def __init__(
        self,
        model: Model,
        belief: Belief,
        horizon: int,
        max_steps: int | None = None,
        *,
        gamma: float = 16.0,
        stochastic: bool = False,
        remember: bool = True,
    ):
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps: found {max_steps}, expected at least 1")
        if gamma <= 0:
            raise ValueError(f"gamma: found {gamma}, expected a positive precision")
        self.model, self.initial_belief = model, belief
        self.horizon, self.max_steps = int(horizon), max_steps
        self.gamma, self.stochastic, self.remember = gamma, stochastic, remember
        self.remembered = False  # whether the last scores came from memory
        self._memory: dict[tuple[int, bytes], np.ndarray] = {}
        self.program = program_of(model, belief, self.horizon)
        if self.program.takes_elapsed:
            raise ValueError(
                "model: found an argument 'elapsed', which baselines do not know, expected a model without it"
            )
        self.signature = self.program.signature

    def reset(self, key: Any = None) -> None:
        """Begin an episode.

        :param key: breaks ties, or draws controls where they are drawn; without it the first of the best is taken.
        """
        self.key = None if key is None else key_words(key)
        self.step = 0
        self.control: int | None = None  # the last one, flat

    def act(self, observation: Mapping[str, int]) -> int | dict[str, int]:
        """The control to do next, given what was observed since the last one (or at the start)."""
        self.observe(observation)
        return self._choose(self.scores())

    def observe(self, observation: Mapping[str, int]) -> None:
        """Update the belief with the last control and the observation after it."""
        raise NotImplementedError

    def scores(self) -> np.ndarray:
        """−EFE of each control at the present belief, up to a constant, (U,)."""
        ahead = self.steps_ahead()
        case = ahead, self._known().round(SAME_BELIEF).tobytes()
        self.remembered = self.remember and case in self._memory
        if not self.remembered:
            self._memory[case] = self._score(ahead)
        return self._memory[case]

    def _known(self) -> np.ndarray:
        """The present belief as an array."""
        raise NotImplementedError

    def _score(self, horizon: int) -> np.ndarray:
        """The scores with this many steps to go."""
        raise NotImplementedError

    def steps_ahead(self) -> int:
        """The horizon of the next decision."""
        if self.max_steps is None:
            return self.horizon
        return min(self.horizon, max(1, self.max_steps - self.step))

    def _choose(self, score: np.ndarray) -> int | dict[str, int]:
        if self.stochastic and self.key is not None:
            weights = np.exp(self.gamma * (score - score.max())).tolist()
            (self.control,) = random.Random(f"{self.key} {self.step}").choices(range(len(weights)), weights)
        else:
            self.control = RULE.best(score, self.key, self.step)
        self.step += 1
        sites = self.signature.control
        if len(sites) == 1:
            return self.control
        return {name: int(value) for name, value in split(self.control, sites).items()}


class ReferenceAgent(Acting):
    """Plans with the exact references from the exact joint belief.

    :param method: ``"efe"``, ``"sophisticated"``, or ``"paper"`` for plans by :func:`npro_aif.expected_free_energy`,
        which counts over whole sequences (its observations are the planned ones, its preferences the model's own).
    :param sensors: whether observations with ``plan=False`` take part in planning.
    :param goal: ``"seen"`` if planning expects to see how well it goes.
    :param timing: ``"every"`` for the last step's preference at every step.

    >>> from npro_aif.models.tmaze import tmaze, initial_belief, CONTROLS, START
    >>> agent = ReferenceAgent(tmaze, initial_belief(), horizon=4, max_steps=4)
    >>> CONTROLS[agent.act({"cue": 0, "place": START})]
    'South'
    """

    def __init__(
        self,
        model: Model,
        belief: Belief,
        horizon: int,
        max_steps: int | None = None,
        *,
        method: Method | Literal["paper"] = "sophisticated",
        sensors: bool = True,
        goal: Goal = "silent",
        timing: Timing = "model",
        gamma: float = 16.0,
        stochastic: bool = False,
        remember: bool = True,
    ):
        super().__init__(model, belief, horizon, max_steps, gamma=gamma, stochastic=stochastic, remember=remember)
        self.method, self.sensors, self.goal, self.timing = method, sensors, goal, timing
        self.filter = Filter(self.program)
        self.reset()

    def reset(self, key: Any = None) -> None:
        super().reset(key)
        self.belief = self.initial_belief

    def observe(self, observation: Mapping[str, int]) -> None:
        self.belief = self.filter(self.belief, self.control, observation, step=self.step)

    def _known(self) -> np.ndarray:
        return np.asarray(self.belief.parameter)[:, None] * np.asarray(self.belief.state)

    def _score(self, horizon: int) -> np.ndarray:
        tables = reread(dense_tables(self.model, self.belief, horizon, sensors=self.sensors), self.goal, self.timing)
        if self.method == "sophisticated":
            return sophisticated(tables, self.gamma).value
        if self.method == "efe":
            scores = standard_efe(tables)
            plans, total = scores.plans, scores.total
        else:
            energy = expected_free_energy(self.model, self.belief, horizon)
            plans, total = np.asarray(energy.plans), -np.asarray(energy.total, np.float64)
        prior = tables.control[plans].sum(1) / self.gamma
        return by_first_control(total + prior, plans[:, 0], self.signature.num_controls, self.gamma, self.stochastic)


def by_first_control(
    score: np.ndarray, first: np.ndarray, num_controls: int, gamma: float, together: bool
) -> np.ndarray:
    """The best score among the plans that begin with a control; or (1/γ) log of their total weight.

    >>> by_first_control(np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1]), 2, gamma=1.0, together=False).tolist()
    [3.0, 2.0]
    """
    if not together:
        return np.array([score[first == u].max() for u in range(num_controls)])
    weight = choose(score, gamma)
    total = np.array([weight[first == u].sum() for u in range(num_controls)])
    return np.log(np.maximum(total, np.finfo(float).tiny)) / gamma
