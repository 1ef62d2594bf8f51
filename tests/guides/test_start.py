"""Where a guide's logits begin is an argument: their scale, factor by factor, and their key."""

import jax
import numpy as np
import optax
import pytest
from numpyro.handlers import seed, trace

import npro_aif as aif
from npro_aif.guides import FACTORS, SequenceGuide, Start, TableGuide, TemporalGuide
from npro_aif.models import reactivity_maze
from npro_aif.models.tmaze import initial_belief, tmaze
from npro_aif.program.program import program_of


def first(guide: TableGuide, key: int = 0, horizon: int = 2) -> dict[str, np.ndarray]:
    belief = initial_belief() if guide.model is tmaze else reactivity_maze.initial_belief()
    world = program_of(guide.model, belief, horizon).world(belief, horizon)
    return {name: np.asarray(v) for name, v in guide.first_params(jax.random.key(key), world, horizon).items()}


def test_by_default_the_policy_is_drawn_and_the_rest_is_the_model() -> None:
    found = first(TemporalGuide(tmaze, FACTORS))
    assert 0.5 < found["control_logits"].std() < 1.5
    assert not found["parameter_logits"].any()


def test_every_factor_has_its_own_scale() -> None:
    scale = {"control": 0.01, "state": 0.1, "parameter": 2.0}
    found = first(TemporalGuide(reactivity_maze.reactivity_maze, FACTORS, Start(scale)))
    assert 0.009 < found["control_logits"].std() < 0.011
    assert 0.099 < found["state_logits"].std() < 0.101
    assert found["parameter_logits"].all()
    assert not found["observation_cue_logits"].any()


def test_a_seed_is_the_key_of_the_policys_logits_for_every_plan() -> None:
    guide = SequenceGuide(tmaze, start=Start(seed=18))
    expected = np.asarray(jax.random.normal(jax.random.PRNGKey(18), (4,)))
    for key in (0, 1):
        np.testing.assert_array_equal(first(guide, key, horizon=1)["control_logits"], expected)
    with trace() as sites, seed(rng_seed=5):  # and so it is where NumPyro runs the guide
        guide(initial_belief(), horizon=1)
    np.testing.assert_array_equal(sites["control_logits"]["value"], expected)


def test_other_factors_of_a_seed_are_drawn_apart() -> None:
    guide = TemporalGuide(reactivity_maze.reactivity_maze, FACTORS, Start({"state": 1.0, "observation": 1.0}, seed=3))
    found = first(guide)
    assert found["state_logits"].ravel()[0] != found["observation_cue_logits"].ravel()[0]
    again = first(guide, key=9)
    for name, values in found.items():
        np.testing.assert_array_equal(values, again[name])


def test_wrong_scales_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"scale: found the factor 'policy', expected some of parameter, control"):
        Start({"policy": 1.0})
    with pytest.raises(ValueError, match=r"scale: found -1.0 for 'control', expected a number that is not negative"):
        aif.guides.Start({"control": -1.0})
    with pytest.raises(ValueError, match="scale: found inf for 'control'"):
        Start({"control": float("inf")})
    with pytest.raises(TypeError, match=r"scale: found 0\.01, expected scales by factor"):
        Start(0.01)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="seed: found 'a', expected a whole number"):
        Start(seed="a")  # type: ignore[arg-type]


def test_a_scale_of_a_factor_that_is_not_learned_is_refused() -> None:
    guides = (
        TemporalGuide(tmaze, learn=("control",), start=Start({"state": 3.0})),
        SequenceGuide(tmaze, start=Start({"parameter": 3.0})),
    )
    for guide, factor in zip(guides, ("state", "parameter"), strict=True):
        planner = aif.Planner(tmaze, guide, solver=aif.SVISolver(optax.adam(0.05), 10))
        with pytest.raises(aif.GuideError, match=f"start: found a scale for '{factor}', which this guide does not"):
            planner(jax.random.key(0), initial_belief(), horizon=4)
