"""Bad arguments: what is in the wrong place, of the wrong kind or not a distribution is refused by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import SVI

import npro_aif as aif
from npro_aif.errors import ModelError
from npro_aif.models.tmaze import initial_belief, tmaze

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)
BELIEF = initial_belief()
THREE = jax.tree.map(lambda table: jnp.stack([table] * 3), BELIEF)
KEYS = jax.random.split(KEY, 3)


@pytest.fixture(scope="module")
def planner() -> aif.Planner:
    planner = aif.Planner(tmaze, solver=aif.CoordinateSolver(max_sweeps=2), max_horizon=2)
    planner.program(BELIEF)  # read with a sound belief, whichever of these tests a worker comes to first
    return planner


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": aif.Active}, r"objective: found <class .*Active'>, expected one such as aif.Active\(\)"),
        ({"objective": "active"}, "objective: found 'active'"),
        ({"guide": aif.Active()}, "guide: found Active.*, expected a guide"),
        ({"guide": aif.guides.TemporalGuide}, "guide: found <class .*TemporalGuide'>, expected a guide such as"),
        ({"solver": aif.CoordinateSolver}, "solver: found <class .*CoordinateSolver'>, expected one such as"),
        ({"solver": optax.sgd(0.1)}, "solver: found GradientTransformation"),
        ({"max_horizon": 0}, "max_horizon: found 0"),
    ],
)
def test_planners(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aif.Planner(tmaze, **settings)


@pytest.mark.parametrize(
    ("belief", "message"),
    [
        (tuple(BELIEF), "belief: found tuple, expected aif.Belief"),
        (KEY, "belief: found .*, expected aif.Belief"),
        (aif.Belief([0.5, 0.5], BELIEF.state), "belief.parameter: found list, expected an array"),  # type: ignore[arg-type]
    ],
)
def test_beliefs_of_another_kind(planner: aif.Planner, belief: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        planner(KEY, belief)
    with pytest.raises(ModelError, match=message):
        aif.update_belief(tmaze, belief, None, {"cue": 0})


@pytest.mark.parametrize(
    ("beliefs", "message"),
    [
        (THREE._replace(state=THREE.state.at[1].mul(3.0)), r"beliefs\[1\].state: found that row 0 sums to 3"),
        (THREE._replace(parameter=THREE.parameter.at[2, 0].set(jnp.nan)), r"beliefs\[2\].parameter: .* nan"),
        (THREE._replace(parameter=THREE.parameter.at[0].set(jnp.array([-1.0, 2.0]))), "negative probability -1"),
        (THREE._replace(state=THREE.state[..., :4]), r"beliefs\[0\]: found state of shape \(2, 4\), expected \(2, 5\)"),
        (THREE._replace(state=THREE.state[:, 0]), r"expected \(B, Θ\) and \(B, Θ, X\)"),
    ],
)
def test_batches_of_beliefs(planner: aif.Planner, beliefs: aif.Belief, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        planner.batch(KEYS, beliefs)


def test_one_key_for_a_batch(planner: aif.Planner) -> None:
    with pytest.raises(ValueError, match=r"keys: found shape \(\), expected several"):
        planner.batch(KEY, THREE)


def test_a_batch_has_as_many_steps_as_were_asked_for(planner: aif.Planner) -> None:
    plans = planner.batch(KEYS, THREE, horizon=1)
    assert plans.control.shape == (3, 1, 4)
    assert plans.state.shape == (3, 2, 5)
    older = planner.batch(jax.vmap(jax.random.key_data)(KEYS), THREE, horizon=1)
    assert older.control.shape == plans.control.shape


def test_a_longer_horizon_than_the_largest(planner: aif.Planner) -> None:
    with pytest.raises(ValueError, match=r"horizon: found 3, expected at most max_horizon=2 .*that the model declares"):
        planner(KEY, BELIEF, horizon=3)


def test_a_control_site_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"control: found 'z', expected the sites \['u'\] only"):
        aif.update_belief(tmaze, BELIEF, {"u": 1, "z": 1}, {"cue": 0})


def broken(end: Callable[[Any, Any, Any], None]) -> Callable[..., None]:
    """A model whose rollout is ``end(step, x, horizon)``."""

    def model(belief: aif.Belief, horizon: int = 2) -> None:
        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.array([0.5, 0.5])))
            return aif.state("x", aif.DeterministicCategorical(u, 2))

        end(step, aif.state("x", dist.Categorical(probs=belief.state[0])), horizon)

    return model


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda step, x, horizon: aif.rollout(step, x, 7), "rollout: found 7 steps whatever the model's horizon is"),
        (
            lambda step, x, horizon: aif.rollout(lambda x, t: (step(x, t), None)[1], x, horizon),
            "rollout: found that the step returns None",
        ),
    ],
)
def test_rollouts(end: Callable[[Any, Any, Any], None], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        aif.Planner(broken(end))(KEY, aif.Belief(jnp.ones(1), jnp.array([[0.5, 0.5]])))


def test_the_models_own_horizon_is_numpyros_default() -> None:
    svi = SVI(tmaze, aif.guides.TemporalGuide(tmaze), optax.adam(0.05), loss=aif.Planning())
    state = svi.init(KEY, BELIEF)
    assert float(svi.evaluate(state, BELIEF)) == pytest.approx(float(svi.evaluate(state, BELIEF, horizon=4)))
