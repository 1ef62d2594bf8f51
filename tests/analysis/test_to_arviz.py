"""Plans and episodes in ArviZ: names, labels, draws that agree with the exact tables, and files."""

from __future__ import annotations

from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
import xarray as xr

import npro_aif as aif
from npro_aif.analysis.recording import Recording
from npro_aif.analysis.to_arviz import episode_to_arviz
from npro_aif.models import tmaze
from npro_aif.planning.to_arviz import plan_to_arviz

pytestmark = pytest.mark.usefixtures("quick_compile")
DRAWS = 2000


def assert_frequencies(values: np.ndarray, exact: np.ndarray) -> None:
    """Draws (n, …) of a category whose exact probabilities are (…, K): within 4 standard errors."""
    frequencies = (values[..., None] == np.arange(exact.shape[-1])).mean(0)
    variance = np.maximum(exact * (1 - exact), 0) / len(values)
    assert (np.abs(frequencies - exact) <= 4 * np.sqrt(variance) + 1e-6).all(), (frequencies, exact)


def assert_draws(plan: aif.Plan, data: az.InferenceData) -> None:
    """Every site's draws against its exact marginal, and the policy where the draws have been."""
    signature = plan.signature
    for role in ("parameter", "state", "control", "observation"):
        for site in signature.sites(role):
            assert_frequencies(data.posterior[site.name].values[0], np.asarray(plan.marginal(site.name), float))
    shape = tuple(site.size for site in signature.state)
    states = np.ravel_multi_index([data.posterior[site.name].values[0] for site in signature.state], shape)
    (control,) = signature.control
    chosen = data.posterior[control.name].values[0]
    for t in range(chosen.shape[1]):
        place = int(np.bincount(states[:, t]).argmax())
        there = states[:, t] == place
        assert_frequencies(chosen[there, t], np.asarray(plan.policy[t, place], float))


def assert_round_trip(data: az.InferenceData, path: Path) -> None:
    data.to_netcdf(str(path))
    loaded = az.from_netcdf(str(path))
    try:
        assert loaded.groups() == data.groups()
        for group in data.groups():
            xr.testing.assert_equal(loaded[group], data[group])
            assert loaded[group].attrs["model"] == data[group].attrs["model"]
            for name, variable in data[group].data_vars.items():
                assert loaded[group][name].attrs == variable.attrs
                assert loaded[group][name].dtype.kind == variable.dtype.kind
    finally:
        loaded.close()


def test_a_plan(recording: Recording, tmp_path: Path) -> None:
    plan = recording.plans[0]
    data = plan.to_arviz(jax.random.key(1), DRAWS)
    assert data.groups() == ["posterior", "exact", "free_energy", "terms"]
    assert data.posterior["x"].dims == ("chain", "draw", "time_with_present")
    assert data.posterior["u"].dims == data.posterior["cue"].dims == ("chain", "draw", "time")
    assert data.posterior["u"].attrs["categories"] == "North, East, South, West"
    assert_draws(plan, data)
    assert_round_trip(data, tmp_path / "plan.nc")

    exact = data.exact
    assert set(exact.coords) == {"time", "time_with_present", "state", "control", "parameter", "observation"}
    assert exact["policy"].dims == ("time", "state", "control")
    assert float(exact["policy"].sel(time=1, state="start", control="South")) == float(
        plan.policy[0, tmaze.START, tmaze.SOUTH]
    )
    assert exact["state_marginal"].sel(time_with_present=0, state="start") == 1
    np.testing.assert_array_equal(exact["control_marginal"].values, plan.control)
    left = exact["observation_marginal"].sel(observation="left")
    np.testing.assert_array_equal(left.values, plan.observation["cue"][:, 0])
    np.testing.assert_array_equal(exact["parameter_marginal"].values, plan.parameter)

    history = data.free_energy["free_energy"]
    assert history.sizes == {"iteration": int(plan.info.iterations) + 1}
    assert float(history[-1]) == float(plan.free_energy[-1])
    assert sum(float(term) for term in data.terms.values()) == pytest.approx(float(plan.free_energy[-1]), abs=1e-5)


def test_summary(recording: Recording) -> None:
    plan = recording.plans[0]
    table = az.summary(plan.to_arviz(num_samples=DRAWS), kind="stats", round_to="none")
    assert "theta" in table.index
    assert "u[1]" in table.index
    assert "x[0]" in table.index
    means = np.asarray(plan.observation["cue"]) @ np.arange(2)
    assert table.loc[[f"cue[{t}]" for t in range(1, 5)], "mean"].to_numpy() == pytest.approx(means, abs=4 * 0.5 / 44)
    assert table.loc["x[0]", "mean"] == tmaze.START


def test_several_sites(reactivity_plan: aif.Plan, tmp_path: Path) -> None:
    plan = reactivity_plan
    data = plan.to_arviz(jax.random.key(2), DRAWS)
    assert_draws(plan, data)
    assert_round_trip(data, tmp_path / "plan.nc")
    exact = data.exact
    assert list(exact["state"].values[[4, 34]]) == ["0,4", "cue,4"]
    assert exact["location_marginal"].dims == ("time_with_present", "location")
    at_the_cue = exact["location_marginal"].sel(location="cue").values
    np.testing.assert_array_equal(at_the_cue, plan.marginal("location")[:, 6])
    one = exact["policy"].sel(time=1, state="0,4", control="knob down")
    assert float(one) == float(plan.policy[0, 4, 5])


def slippery(belief: aif.Belief, horizon: int = 2) -> None:
    """Two places, of which the parameter tells the better one; a small world with chance everywhere."""
    side = aif.parameter("side", dist.Categorical(probs=belief.parameter))
    x = aif.state("x", dist.Categorical(probs=belief.state[side]), labels=("here", "there"))
    move = jnp.array([[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.9, 0.1]]])
    see = jnp.array([[[0.8, 0.2], [0.5, 0.5]], [[0.4, 0.6], [0.1, 0.9]]])

    def step(x: jax.Array, t: jax.Array) -> jax.Array:
        u = aif.control("u", dist.Categorical(probs=jnp.array([0.6, 0.4])), labels=("stay", "go"))
        x = aif.state("x", dist.Categorical(probs=move[x, u]))
        aif.observation("y", dist.Categorical(probs=see[x, side]))
        aif.preference("goal", jnp.where(x == side, 1.0, 0.0))
        return x

    aif.rollout(step, x, horizon)


@pytest.mark.slow  # the draws themselves: tests/inference/test_numpyro_losses.py
def test_a_sequence_guide_draws_what_its_tables_say() -> None:
    belief = aif.Belief(jnp.array([0.3, 0.7]), jnp.array([[0.5, 0.5], [0.9, 0.1]]))
    solver = aif.SVISolver(optax.adam(0.1), 20)
    planner = aif.Planner(slippery, aif.guides.SequenceGuide(slippery), aif.Marginal(), solver)
    plan = planner(jax.random.key(0), belief, 2)
    assert_draws(plan, plan.to_arviz(num_samples=DRAWS))


def test_an_episode(recording: Recording, tmp_path: Path) -> None:
    episode, plans = recording.episode, recording.plans
    data = recording.to_arviz()
    assert data.groups() == ["exact", "free_energy", "terms", "taken", "observed", "outcome"]
    assert_round_trip(data, tmp_path / "episode.nc")

    assert data.exact["policy"].sizes == {"step": 4, "time": 4, "state": 5, "control": 4}
    for step, plan in enumerate(plans):  # horizons 4, 3, 2, 1
        left = 4 - step
        table = data.exact["control_marginal"].sel(step=step)
        np.testing.assert_array_equal(table.values[:left], plan.control)
        assert np.isnan(table.values[left:]).all()
        history = data.free_energy["free_energy"].sel(step=step).dropna("iteration")
        assert float(history[-1]) == float(plan.free_energy[-1])
    assert list(data.taken["label"].values[:3]) == ["South", "North", "North"]
    assert tuple(data.taken["control"].values) == episode.controls
    first = data.exact["control_marginal"].sel(time=1).argmax("control")
    assert tuple(first.values) == episode.controls
    assert list(data.observed["place"].values) == [tmaze.START, tmaze.CUE, tmaze.START, tmaze.JUNCTION]
    assert data.observed["cue"].sel(step=1) == episode.infos[0]["theta"]
    assert float(data.outcome["reward"]) == 1.0
    assert int(data.outcome["steps"]) == 4

    by_hand = episode_to_arviz(plans, episode.controls)
    assert by_hand.groups() == ["exact", "free_energy", "terms", "taken"]
    xr.testing.assert_equal(by_hand.exact, data.exact)


def test_what_is_refused(recording: Recording) -> None:
    plans = recording.plans
    with pytest.raises(ValueError, match="plans: found none"):
        episode_to_arviz([])
    with pytest.raises(ValueError, match="controls: found 1, expected one for each of the 4 plans"):
        episode_to_arviz(plans, [0])
    with pytest.raises(ValueError, match="controls: found 9"):
        episode_to_arviz(plans, [9, 0, 0, 0])
    with pytest.raises(ValueError, match="observations: found 0"):
        episode_to_arviz(plans, observations=[])
    batch = jax.tree.map(lambda array: array[None], plans[0])
    with pytest.raises(ValueError, match="plan: found a batch of shape"):
        plan_to_arviz(batch)
