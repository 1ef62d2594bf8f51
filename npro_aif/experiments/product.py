"""Beliefs as in the paper's DoorKey code: a product of marginals q(x)q(θ), with a floor under every probability.

After every exact update the joint belief is replaced by the product of its marginals, which forgets what position and
layout tell about each other. For planning, layouts that are only held up by the floor are left out.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from npro_aif.acting.agent import Agent
from npro_aif.acting.filter import Filter
from npro_aif.belief import Belief
from npro_aif.planning.planner import Planner

FLOOR = 1e-8
AT_FLOOR = 10 * FLOOR  # probabilities up to this are due to the floor


def as_product(belief: Belief, possible: np.ndarray) -> Belief:
    """The product of a belief's marginals, with floors.

    :param possible: (Θ,) which parameters there are at all.

    >>> belief = Belief(jnp.array([0.5, 0.5, 0.0]), jnp.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]))
    >>> as_product(belief, np.array([True, True, False])).state.tolist()
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    """
    parameter = np.asarray(belief.parameter, np.float64)
    state = parameter @ np.asarray(belief.state, np.float64)
    parameter, state = np.where(possible, np.maximum(parameter, FLOOR), 0.0), np.maximum(state, FLOOR)
    tiled = np.broadcast_to(state / state.sum(), (len(parameter), len(state)))
    dtype = jnp.result_type(float)
    return Belief(jnp.asarray(parameter / parameter.sum(), dtype), jnp.asarray(tiled, dtype))


def above_floor(belief: Belief) -> Belief:
    """The belief, or each of a batch, without the parameters that are only held up by the floor."""
    parameter = np.asarray(belief.parameter)
    likely = np.where(parameter > AT_FLOOR, parameter, 0.0)
    return belief._replace(parameter=jnp.asarray(likely / likely.sum(-1, keepdims=True), parameter.dtype))


class ProductPlanner(Planner):
    """Plans with the parameters that are more probable than the floor.

    :param everything: plan with all of them, as the paper's code does; the time grows with their number.
    """

    everything = False

    def _thinned(self, belief: Belief) -> Belief:
        return super()._thinned(belief if self.everything else above_floor(belief))


class ProductFilter(Filter):
    """Exact updates, after each of which the product of the marginals is kept."""

    def __init__(self, program: Any, possible: np.ndarray):
        super().__init__(program)
        self.possible = possible

    def __call__(self, *arguments: Any, **options: Any) -> Belief:
        return as_product(super().__call__(*arguments, **options), self.possible)


class ProductAgent(Agent):
    """An agent whose belief is a product of marginals."""

    def restore(self) -> None:
        super().restore()
        possible = np.asarray(self.initial_belief.parameter) > 0
        self._decider.filter = ProductFilter(self._decider.filter.program, possible)
        self._decider.fused = None  # one call for both would leave out the product
