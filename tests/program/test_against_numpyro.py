"""A program is read as plain NumPyro would run it, or refused by name: closures, handlers, indices, numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import npro_aif as aif
from benchmarks.fuzz_programs import cases, judge
from npro_aif.errors import ModelError
from tests.broken import KEY, LIKING, SENSOR, TRANSITION, UNIFORM, Slice, planner, refuses, with_site

pytestmark = pytest.mark.usefixtures("quick_compile")


def coordinate(model: Any, objective: Any = None, max_horizon: int | None = None) -> aif.Planner:
    guide = aif.guides.TemporalGuide(model, learn=("control",))
    return aif.Planner(model, guide, objective or aif.Planning(), aif.CoordinateSolver(max_sweeps=5), max_horizon)


# --- Odd programs against a sum over plain NumPyro's trajectories; benchmarks/fuzz_programs.py has all of them ---

ALL = cases()
FEW = {
    "the step reads x0": "refused",
    "the last y in a closure, 3 steps": "refused",
    "a counter in the model": "refused",
    "a site of the first step only": "refused",
    "horizon + 1": "refused",
    "jnp.minimum(horizon, 1)": "refused",
    "condition theta and x_0": "right",
    "substitute a joint table's site": "right",
    "condition u_2": "refused",
    "do x_1": "refused",
    "scale 2": "refused",
    "scope": "refused",
    "block y_1": "refused",
    "mask around goal in the step": "refused",
    "condition around u in the step": "refused",
    "numpyro.param": "refused",
    "y: Categorical.mask(False)": "refused",
    "y: Categorical.expand(2).to_event": "refused",
    "a factor 'bonus_t'": "refused",
    "a parameter 'y_1'": "refused",
    "labels ('a', 'a')": "refused",
    "R[x + 1]": "refused",
    "R[x - 1]": "refused",
    "R[x - 1], guarded": "right",
    "three parameters, tables for two": "refused",
    "T[u, x]": "refused",
    "rows that sum to 1.0005": "right",
    "rows that sum to 1.005": "refused",
    "log of the belief": "refused",
    "a random number of a key that moves": "refused",
    "logits of -inf only": "refused",
    "an array changed in place": "right",
    "moves by Sticky": "right",
    "moves by Improper": "refused",
}


# Of two that say the same the longer one is for the long run.
LONG = {"substitute a joint table's site", "rows that sum to 1.0005", "the last y in a closure, 3 steps"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in FEW])
def test_odd_programs(name: str) -> None:
    (case,) = (case for case in ALL if case.name == name)
    verdict = judge(case)
    assert verdict.kind == FEW[name], verdict


def test_a_carry_with_an_axis_of_its_own_is_called_that() -> None:
    (case,) = (case for case in ALL if case.name == "the carry is one-hot")
    assert "the step's carry is an array with 3 entries in its last axis" in judge(case).text


def test_there_are_many_odd_programs() -> None:
    assert len(ALL) >= 200


# --- Handlers ---


def test_what_is_fixed_is_planned_with_by_bayes() -> None:
    """Conditioning on x_0 = 2 tells something of θ: the plan is that of the belief after Bayes."""
    model, belief = (
        Slice().program(),
        aif.Belief(jnp.asarray([0.5, 0.5]), jnp.asarray([[0.1, 0.2, 0.7], [0.6, 0.2, 0.2]])),
    )
    plan = coordinate(handlers.condition(model, data={"x_0": jnp.asarray(2)}))(KEY, belief, horizon=2)
    after = aif.Belief(jnp.asarray([0.7, 0.2]) / 0.9, jnp.asarray([[0.0, 0.0, 1.0]] * 2))
    same = coordinate(model)(KEY, after, horizon=2)
    np.testing.assert_allclose(plan.parameter, [7 / 9, 2 / 9], rtol=1e-6)
    np.testing.assert_allclose(plan.free_energy[-1], same.free_energy[-1], rtol=1e-5)
    updated = aif.update_belief(handlers.substitute(model, data={"theta": jnp.asarray(1)}), belief, None, None)
    np.testing.assert_allclose(updated.parameter, [0, 1], atol=1e-7)


def test_what_is_fixed_must_be_possible() -> None:
    model = handlers.condition(Slice().program(), data={"theta": jnp.asarray(1)})
    belief = aif.Belief(jnp.asarray([1.0, 0.0]), UNIFORM.state)
    refuses(planner(model), ModelError, "what a handler fixes is impossible", belief=belief)


def test_handlers_are_found_at_any_time_of_a_long_plan() -> None:
    model = handlers.condition(Slice().program(), data={"u_4": jnp.asarray(1)})
    refuses(planner(model, max_horizon=6), ModelError, "site 'u_4'", "fixes", horizon=6)


# --- Programs that change ---


def test_a_new_planner_reads_the_model_anew() -> None:
    tables = {"liked": LIKING}

    def preference(x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        aif.preference("goal", tables["liked"][new])

    model = with_site("preference", preference)
    before = coordinate(model)(KEY, UNIFORM, horizon=2)
    old = aif.Filter(model, UNIFORM)
    tables["liked"] = -LIKING
    after = coordinate(model)(KEY, UNIFORM, horizon=2)
    assert abs(float(before.free_energy[-1] - after.free_energy[-1])) > 0.5
    tables["liked"] = LIKING
    again = coordinate(model)(KEY, UNIFORM, horizon=2)
    np.testing.assert_allclose(again.free_energy[-1], before.free_energy[-1])
    assert old(UNIFORM, 0, 1).parameter.shape == (2,)


def test_update_belief_reads_anew_and_a_filter_keeps_its_tables() -> None:
    tables = {"sensor": SENSOR}
    model = with_site(
        "observation",
        lambda theta, x, u, new: aif.observation("y", dist.Categorical(probs=tables["sensor"][theta, new])),
    )
    keeps = aif.Filter(model, UNIFORM)
    first = aif.update_belief(model, UNIFORM, 0, 1)
    np.testing.assert_allclose(keeps(UNIFORM, 0, 1).parameter, first.parameter)
    tables["sensor"] = SENSOR[::-1]
    second = aif.update_belief(model, UNIFORM, 0, 1)
    np.testing.assert_allclose(second.parameter, first.parameter[::-1], rtol=1e-5)
    np.testing.assert_allclose(keeps(UNIFORM, 0, 1).parameter, first.parameter)


def test_what_was_read_is_not_mixed_with_what_has_changed() -> None:
    tables = {"liked": LIKING + 0.123}  # of no other program
    model = with_site(
        "preference", lambda x, u, new, y, t, h: aif.preference("goal", jnp.where(t == h, tables["liked"][new], 0.0))
    )
    reading = coordinate(model)
    before = reading(KEY, UNIFORM, horizon=2)
    tables["liked"] = -LIKING
    both = reading.batch(jnp.stack([KEY, KEY]), jax.tree.map(lambda a: jnp.stack([a, a]), UNIFORM), horizon=2)
    np.testing.assert_allclose(both.free_energy[1, -1], before.free_energy[-1], rtol=1e-6)  # of when it was read
    program = reading.program(UNIFORM, 2)
    some, every = program.world(UNIFORM, 2, jnp.asarray([1])), program.world(UNIFORM, 2)
    np.testing.assert_array_equal(some.parameter, every.parameter[1:2])
    np.testing.assert_array_equal(some.initial, every.initial[1:2])
    np.testing.assert_array_equal(some.preference["goal"], every.preference["goal"])
    assert some.theta.tolist() == [1]


def test_a_program_that_has_changed_is_not_run_again() -> None:
    """As it would be for some of the parameters where a table that depends on them also depends on the horizon."""
    liked = {"by theta": jnp.stack([LIKING, LIKING + 0.5])}

    class Likes(Slice):
        def start(self, belief: aif.Belief) -> tuple[Any, Any]:
            self.theta, x = super().start(belief)
            return self.theta, x

        def preference(self, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
            aif.preference("goal", jnp.where(t == horizon, liked["by theta"][self.theta, new], 0.0))

    program = coordinate(Likes().program()).program(UNIFORM, 2)
    some, every = program.world(UNIFORM, 1, jnp.asarray([1])), program.world(UNIFORM, 1)
    np.testing.assert_array_equal(some.preference["goal"], every.preference["goal"][:, 1:2])
    liked["by theta"] = -liked["by theta"]
    with pytest.raises(ModelError, match="the program has changed since it was read"):
        program.world(UNIFORM, 2, jnp.asarray([0, 1]))


class Closure(Slice):
    """A step that reads x_0, or counts its calls; its first step is that of the sound program."""

    def start(self, belief: aif.Belief) -> tuple[Any, Any]:
        self.count = 0
        theta, self.x0 = super().start(belief)
        return theta, self.x0


class ReadsFirst(Closure):
    def state(self, theta: Any, x: Any, u: Any, t: Any) -> Any:
        return super().state(theta, self.x0, u, t)


class Counts(Closure):
    def preference(self, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        self.count += 1
        aif.preference("goal", jnp.where(t == horizon, LIKING[new], 0.0) * self.count)


class CountsNothing(Slice):
    def preference(self, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        aif.preference("goal", jnp.where(t == horizon, LIKING[new], 0.0) * 1)


@pytest.mark.parametrize(("sound", "wrong", "what"), [(Slice, ReadsFirst, "'x'"), (CountsNothing, Counts, "'goal'")])
def test_a_program_is_not_taken_for_one_that_was_read_before(sound: Any, wrong: Any, what: str) -> None:
    assert np.isfinite(float(coordinate(sound().program())(KEY, UNIFORM, horizon=2).free_energy[-1]))
    refuses(coordinate(wrong().program()), ModelError, what, "found other numbers at step 2 under plain NumPyro")


class Unhashable(Slice):
    """A model that is an object with state."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, belief: aif.Belief, horizon: int = 2) -> None:
        self.program()(belief, horizon=horizon)


def test_an_unhashable_model() -> None:
    model = Unhashable()
    plan = coordinate(model)(KEY, UNIFORM, horizon=2)
    same = coordinate(Slice().program())(KEY, UNIFORM, horizon=2)
    np.testing.assert_allclose(plan.free_energy[-1], same.free_energy[-1], rtol=1e-6)
    assert aif.update_belief(model, UNIFORM, 0, 1).parameter.shape == (2,)


# --- Indices and numbers ---


def test_an_index_out_of_range_names_the_site_and_the_line() -> None:
    model = with_site("state", lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=TRANSITION[x + 1, u])))
    refuses(planner(model), ModelError, "site 'x'", "leaves its table of shape (3, 2, 3)", "TRANSITION[x + 1, u]")


def test_rows_do_not_gain_probability() -> None:
    """1.0008 a row, 200 times, would be 17 % too much."""
    model = with_site("state", lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=1.0008 * TRANSITION[x, u])))
    plan = coordinate(model, max_horizon=200)(KEY, aif.Belief(1.0005 * UNIFORM.parameter, UNIFORM.state))
    np.testing.assert_allclose(plan.state.sum(-1), 1, atol=1e-4)


def test_preferences_at_a_belief_without_one_of_its_parameters() -> None:
    def model(belief: aif.Belief, horizon: int = 1) -> None:
        theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
        x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

        def step(x: Any, t: Any) -> Any:
            u = aif.control("u", dist.Categorical(probs=jnp.full(2, 0.5)))
            x = aif.state("x", dist.Categorical(probs=TRANSITION[x, u]))
            aif.preference("known", jnp.log(belief.parameter[theta]))
            return x

        aif.rollout(step, x, horizon)

    asked = coordinate(model)
    assert np.isfinite(asked(KEY, UNIFORM, horizon=1).free_energy).all()
    with pytest.raises(ModelError, match="preference 'known': found what is not a finite number at this belief"):
        asked(KEY, aif.Belief(jnp.asarray([0.0, 1.0]), UNIFORM.state), horizon=1)


def test_a_deterministic_site_of_numpyro_is_let_through() -> None:
    def carry(x: Any, u: Any, new: Any, y: Any) -> Any:
        with handlers.block():
            numpyro.deterministic("twice", 2 * new)
        return new

    assert np.isfinite(planner(with_site("carry", carry))(KEY, UNIFORM, horizon=2).free_energy).all()
