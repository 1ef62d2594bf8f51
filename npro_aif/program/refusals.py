"""Refusals of what a planner cannot read: sites changed by handlers, sites without a role, wrong labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpyro.distributions as dist

from npro_aif._numpyro import is_intervention, plate_names
from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete
from npro_aif.program.rows import check_distribution

FOREIGN = {  # message types of NumPyro that are no part of a planning model, and what to write
    "plate": "only the roles of npro_aif (write several sites instead)",
    "mutable": "numbers, or a state site",
    "control_flow": "jnp functions (aif.rollout rolls the model into the future)",
}


def refuse_changes(msg: Mapping[str, Any], expected: str) -> None:
    """Refuse changes that a handler made to a site and that tables cannot express."""
    if is_intervention(msg):
        raise ModelError(
            f"site '{expected}': found an intervention (handlers.do), expected handlers.condition, or another model"
        )
    if msg["name"] != expected:
        raise ModelError(f"site '{msg['name']}': found a name that a handler changed (scope), expected '{expected}'")
    if msg["scale"] is not None and not (is_concrete(msg["scale"]) and np.all(np.asarray(msg["scale"]) == 1)):
        raise ModelError(
            f"site '{expected}': found its probability scaled by {msg['scale']} (handlers.scale or a plate), expected "
            "no scale; multiply a preference by it instead"
        )
    if isinstance(msg["fn"], dist.MaskedDistribution):
        check_distribution(expected, msg["fn"])
    if plate_names(msg):
        raise ModelError(f"site '{expected}': found in the plate '{plate_names(msg)[0]}', expected none")


def hidden_site(name: str) -> ModelError:
    return ModelError(f"site '{name}': found hidden by a handler (block), expected that the planner sees every site")


def unmarked_site(name: str, fn: dist.Distribution) -> ModelError:
    if isinstance(fn, dist.Unit):
        return ModelError(f"factor '{name}': found outside aif.preference, expected aif.preference in the step")
    if fn.support.is_discrete:
        return ModelError(
            f"site '{name}': found an unmarked discrete site, expected a role: aif.parameter, aif.state, "
            "aif.control or aif.observation"
        )
    return ModelError(
        f"site '{name}': found {type(fn).__name__}, a continuous distribution, expected a discrete one "
        "(Categorical, DeterministicCategorical) with a role, or its value given (obs=, condition, substitute): "
        "aif.discretize makes a parameter of it, aif.with_draws one of its draws"
    )


def check_labels(what: str, name: str, size: int, labels: tuple[str, ...] | None, each: str) -> None:
    if labels is None:
        return
    if len(labels) != size:
        raise ModelError(f"{what} '{name}': found {len(labels)} labels, expected {size} (one for each {each})")
    if len(set(labels)) < size:
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ModelError(f"{what} '{name}': found the label {twice!r} twice, expected another for each {each}")
