"""Guides that do not fit their model: refused before anything is compiled, naming the site."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import npro_aif as aif
from npro_aif.errors import GuideError
from tests.broken import KEY, NUM_THETA, NUM_U, NUM_X, NUM_Y, UNIFORM, Slice, planner, refuses, with_site

pytestmark = pytest.mark.usefixtures("quick_compile")

GUIDE_SITES = {"theta": NUM_THETA, "x_0": NUM_X} | {
    f"{name}_{t}": size for t in (1, 2) for name, size in (("u", NUM_U), ("x", NUM_X), ("y", NUM_Y))
}


def mean_field(sites: dict[str, int]) -> Callable[..., None]:
    def guide(belief: aif.Belief, horizon: int = 2) -> None:
        for name, size in sites.items():
            logits = numpyro.param(f"{name}_logits", jnp.zeros(size))
            numpyro.sample(name, dist.Categorical(logits=logits))

    return guide


def guide_error(guide: Any, *parts: str, error: type[Exception] = GuideError, **arguments: Any) -> None:
    model = getattr(guide, "model", None) or Slice().program()
    refuses(planner(model, guide=guide), error, *parts, **arguments)


def test_a_site_of_the_model_that_is_not_in_the_guide() -> None:
    without = {name: size for name, size in GUIDE_SITES.items() if name != "y_2"}
    guide_error(mean_field(without), "site 'y_2'", "found in the model and not in the guide", "expected it in both")


def test_a_site_of_the_guide_that_is_not_in_the_model() -> None:
    guide = mean_field(GUIDE_SITES | {"z_1": 2})
    guide_error(guide, "site 'z_1'", "found in the guide and not in the model", "expected it in both")


def test_a_site_of_another_size_in_the_guide() -> None:
    guide = mean_field(GUIDE_SITES | {"u_2": 5})
    guide_error(guide, "site 'u_2'", "found 5 categories in the guide", "expected the model's 2")


def test_a_continuous_site_in_the_guide() -> None:
    def guide(belief: aif.Belief, horizon: int = 2) -> None:
        mean_field({name: size for name, size in GUIDE_SITES.items() if name != "x_1"})(belief, horizon)
        numpyro.sample("x_1", dist.Normal(0.0, 1.0))

    guide_error(guide, "site 'x_1'", "found Normal, a continuous distribution, in the guide", "expected a discrete one")


def test_the_same_complaints_in_a_loss() -> None:
    """NumPyro's own SVI gets them too, from the objective."""
    for sites, part in (
        ({n: s for n, s in GUIDE_SITES.items() if n != "x_1"}, "'x_1': found in the model and not in the guide"),
        (GUIDE_SITES | {"z": 2}, "'z': found in the guide and not in the model"),
        (GUIDE_SITES | {"theta": 4}, "'theta': found 4 categories"),
    ):
        svi = numpyro.infer.SVI(Slice().program(), mean_field(sites), optax.adam(0.05), loss=aif.Active())
        with pytest.raises(GuideError, match=part):
            svi.evaluate(svi.init(KEY, UNIFORM, horizon=2), UNIFORM, horizon=2)


def test_a_guide_with_too_many_sites() -> None:
    def guide(belief: aif.Belief, horizon: int) -> None:
        sites = GUIDE_SITES | {f"{name}_{t}": GUIDE_SITES[f"{name}_1"] for t in range(3, horizon + 1) for name in "uxy"}
        mean_field(sites)(belief, horizon)

    guide_error(guide, "found 26 sites", "expected at most 25", "TemporalGuide", horizon=8)


def test_a_sequence_guide_that_would_be_too_large() -> None:
    model = Slice().program()
    guide = aif.guides.SequenceGuide(model, max_logits=100_000)
    count = 2**6 + 2**6 * 3**6 + 3**6 * 2**6 * 2
    guide_error(
        guide, f"would have {count:,} logits at horizon 6", "expected at most 100,000", "TemporalGuide", horizon=6
    )
    # With the limit that holds by default, and tables that could not even be allocated.
    guide_error(aif.guides.SequenceGuide(model), "logits at horizon 30", "expected at most 4,000,000", horizon=30)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_sequence_guide_where_theta_decides_what_is_possible(deterministic: bool) -> None:
    """Deterministic dynamics that depend on θ, as integers and as rows."""

    def build(theta: Any, x: Any, u: Any, t: Any) -> Any:
        new = (x + u + theta) % NUM_X
        return aif.state(
            "x", aif.DeterministicCategorical(new, NUM_X) if deterministic else dist.Categorical(jnp.eye(NUM_X)[new])
        )

    model = with_site("state", build)
    refuses(
        planner(model, guide=aif.guides.SequenceGuide(model)),
        GuideError,
        "site 'x_t'",
        "depends on the parameter (theta)",
        "expected the same support for every θ, or use TemporalGuide",
    )


def test_a_sequence_guide_where_theta_decides_where_one_is() -> None:
    def build(theta: Any, x: Any, u: Any, t: Any) -> Any:
        return aif.state("x", aif.DeterministicCategorical((x + u) % NUM_X, NUM_X))

    model = with_site("state", build)
    belief = aif.Belief(jnp.full(2, 0.5), jnp.eye(2, NUM_X))
    refuses(
        planner(model, guide=aif.guides.SequenceGuide(model)),
        GuideError,
        "site 'x_0'",
        "depends on the parameter (theta)",
        "expected the same support for every θ, or use TemporalGuide",
        belief=belief,
    )


def test_a_sequence_guide_where_theta_decides_where_one_was() -> None:
    """What is possible after the first step does not depend on θ, so that F is finite."""
    model = Slice().program()  # from every state to every other
    belief = aif.Belief(jnp.full(2, 0.5), jnp.eye(2, NUM_X))
    plan = planner(model, guide=aif.guides.SequenceGuide(model))(KEY, belief, horizon=2)
    assert jnp.isfinite(plan.free_energy).all()
    assert float(plan.free_energy[-1]) < 100


def test_a_traced_horizon_with_a_sequence_guide() -> None:
    model = Slice().program()
    plans = planner(model, guide=aif.guides.SequenceGuide(model))
    with pytest.raises(ValueError, match="horizon: found a traced value, expected a Python int"):
        jax.jit(lambda horizon: plans(KEY, UNIFORM, horizon=horizon))(2)


def test_logits_of_another_shape() -> None:
    model = Slice().program()
    guide = aif.guides.TemporalGuide(model, learn=("control",))
    for params, part in (
        ({}, "found no parameter 'control_logits', expected logits of shape (2, 3, 2)"),
        ({"control_logits": jnp.zeros((2, 3, 4))}, "has shape (2, 3, 4), expected (2, 3, 2)"),
    ):
        with pytest.raises(GuideError, match=re.escape(part)):
            aif.Marginal().loss(KEY, params, model, guide, UNIFORM, horizon=2)
