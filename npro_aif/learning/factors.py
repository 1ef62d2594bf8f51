"""Recorded episodes inside a NumPyro program: a factor with their evidence, from which worlds are learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpyro
from jax import Array

from npro_aif.belief import Belief
from npro_aif.learning.evidence import records_evidence
from npro_aif.learning.records import as_records


def episodes(name: str, model: Callable[..., Any], belief: Belief, data: Any) -> Array:
    """Condition a NumPyro program on recorded episodes: add a factor with log p(y|u), and return it by episode, (N,).

    The model is a planning program that holds the numbers to learn; its preferences do not count.

    :param belief: the belief before the first control of each episode.
    :param data: :class:`Records` (or a dict of their fields), or episodes from :func:`npro_aif.run_episodes`.

    >>> import functools, jax, numpy as np
    >>> import numpyro.distributions as dist
    >>> from numpyro.handlers import seed, trace
    >>> from npro_aif.models.tmaze import initial_belief, tmaze
    >>> def program(data):
    ...     accuracy = numpyro.sample("accuracy", dist.Beta(2, 2))
    ...     episodes("maze", functools.partial(tmaze, cue_accuracy=accuracy), initial_belief(), data)
    >>> data = {"controls": np.array([[2, 2], [2, 2]]), "observations": {"cue": np.array([[0, 0], [1, -1]])}}
    >>> list(trace(seed(program, 0)).get_trace(data))
    ['accuracy', 'maze']
    """
    evidence = records_evidence(model, belief, as_records(data, model, belief))
    numpyro.factor(name, evidence.sum())
    return evidence
