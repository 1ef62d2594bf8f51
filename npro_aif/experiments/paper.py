"""The settings of the paper's numbers: everything that ``--paper`` sets, task by task, with its source.

*Text* is the paper; *code* is its authors' public code (biaslab, EpistemicPriorsGradientDescentJAX) as read and checked
by re-implementation. Where the two disagree the code is what the published numbers need, and docs/paper.md says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym

from npro_aif.belief import Belief
from npro_aif.envs.published import PublishedDoorKey, PublishedReactivityMaze, PublishedTMaze
from npro_aif.guides import Start
from npro_aif.guides.base import FACTORS
from npro_aif.inference.epistemic import EpistemicPriors, Weights
from npro_aif.inference.objectives import Active
from npro_aif.inference.posterior import Part
from npro_aif.models import doorkey_published, reactivity_maze, tmaze


@dataclass(frozen=True, eq=False)
class WithoutMoves(Active):
    """F_active without the epistemic prior over controls, p̃(u): wandering is not paid for."""

    @property
    def weights(self) -> Weights:
        return super().weights._replace(entropy=0.0)

    def priors(self, part: Part) -> EpistemicPriors:
        priors = super().priors(part)
        if priors.normalizers is None:
            return priors
        # The normaliser of a prior with no weight is log |U|; here there is no such prior.
        return priors._replace(normalizers=priors.normalizers._replace(control=0 * priors.normalizers.control))


class Paper(NamedTuple):
    """The paper's settings of a task, in place of ours."""

    model: Callable[..., Any]
    environment: Callable[[], gym.Env]
    belief: Belief  # before the first observation
    horizon: int
    learn: tuple[str, ...]
    support: str  # of the sequence guide
    start: Start
    active: Active
    num_steps: int
    learning_rate: float
    solver_seed: int  # of the key that every step's start is made from
    first_seed: int  # of the episodes
    sequential: bool  # whether the episodes are one stream of draws
    tie_tolerance: float = 0.0  # code: a bare argmax, the first of equal ones


authors_tmaze = functools.partial(tmaze.tmaze, arm_shortcut=True)  # one object each: what is compiled for it is kept
authors_details = functools.partial(reactivity_maze.reactivity_maze, details=True)


def paper_tmaze() -> Paper:
    return Paper(
        model=authors_tmaze,  # code: South from an arm leads to the start; text: neighbours only
        environment=PublishedTMaze,  # code: θ by random.Random(18)
        belief=tmaze.initial_belief(),  # text: at the start, the reward left or right alike
        horizon=4,  # text
        learn=FACTORS,  # of no effect: the guide over whole sequences learns all
        support="all",  # code: unrestricted tables, log p at least log 1e-10
        start=Start(seed=18),  # code: q(u) logits N(0,1) from PRNGKey(18), for every plan of every step and episode
        active=Active(normalize=True, gradient="through", planning_correction=False),  # code
        num_steps=1500,  # code and appendix B; the main text says 5000
        learning_rate=0.05,  # appendix B
        solver_seed=18,  # code, as above
        first_seed=0,  # the stream decides, not the seed
        sequential=False,  # the episode k has the k-th draw of θ, and nothing else is drawn that counts
    )


def paper_reactivity(details: bool) -> Paper:
    """The Reactivity Maze as the paper has it.

    :param details: with the details of the code that the text does not have (see the model).
    """
    environment = PublishedReactivityMaze
    return Paper(
        model=authors_details if details else reactivity_maze.reactivity_maze,
        # code: one random.Random(42) through all episodes; the first control is planned before any observation
        environment=functools.partial(environment, details=True, first_look=False) if details else environment,
        # text: uniform over the places that are navigated; code: over all seven
        belief=reactivity_maze.initial_belief(reactivity_maze.LOCATIONS if details else reactivity_maze.NAVIGATION),
        horizon=3,  # text
        learn=FACTORS,  # code
        support="model",  # this guide has no other
        start=Start({"control": 0.01, "state": 0.01, "observation": 0.01}),  # code
        active=Active(normalize=True),  # code, but for what of p̃ is differentiated: docs/paper.md
        num_steps=1000,  # code
        learning_rate=0.01,  # code
        solver_seed=42,  # code: 42 + step; here the step is folded into the key
        first_seed=0,  # the stream decides, not the seed
        sequential=True,  # code: one stream through all episodes
    )


# code: the same stream with the details, but the baselines look before their first control
paper_baselines = functools.partial(PublishedReactivityMaze, details=True)


@functools.lru_cache  # one model for one size
def _doorkey_model(size: int) -> Callable[..., Any]:
    return functools.partial(doorkey_published.doorkey_published, size=size)


def paper_doorkey(size: int) -> Paper:
    return Paper(
        model=_doorkey_model(size),  # code: 7 actions, 3 statuses, 360 layouts, a goal that can be left; text: T = 20
        environment=functools.partial(PublishedDoorKey, size=size),
        belief=doorkey_published.initial_belief(size),  # code: uniform over layouts and states
        horizon=20,  # text
        learn=("parameter", "control"),  # code
        support="model",  # this guide has no other
        start=Start({"parameter": 1.0, "control": 1.0}),  # code: N(0,1), seed 42 + t
        active=WithoutMoves(normalize=True),  # code: one joint view, no p̃(u), weight 1
        num_steps=3000,  # text
        learning_rate=0.01,  # text
        solver_seed=42,  # code, as above
        first_seed=42,  # code: environment seeds 42–141
        sequential=False,  # MiniGrid draws from each seed
    )
