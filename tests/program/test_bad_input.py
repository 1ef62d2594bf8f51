"""Bad input: each mistake in a program gives an error that names the site, what was found and what is expected.

Every test asks a planner for a plan and checks that it refused before any planning code was traced.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import npro_aif as aif
from npro_aif.errors import ModelError
from tests.broken import (
    CONTROL,
    KEY,
    LIKING,
    NUM_U,
    NUM_X,
    NUM_Y,
    SENSOR,
    SQUARE,
    TRANSITION,
    UNIFORM,
    Slice,
    planner,
    refuses,
    rows,
    with_site,
)

pytestmark = pytest.mark.usefixtures("quick_compile")


def model_error(model: Callable[..., None], *parts: str, **arguments: Any) -> None:
    refuses(planner(model), ModelError, *parts, **arguments)


def test_the_sound_program_is_accepted() -> None:
    plan = planner(Slice().program())(KEY, UNIFORM, horizon=2)
    assert jnp.isfinite(plan.free_energy).all()


# Sites that are no discrete roles


NORMAL = dist.Normal(0.0, 1.0)


@pytest.mark.parametrize(
    ("method", "build", "site"),
    [
        ("control", lambda theta, x, t: aif.control("u", NORMAL), "'u_t'"),
        ("state", lambda theta, x, u, t: aif.state("x", NORMAL), "'x_t'"),
        ("observation", lambda theta, x, u, new: aif.observation("y", NORMAL), "'y_t'"),
        ("observation", lambda theta, x, u, new: numpyro.sample("noise", NORMAL), "'noise'"),
        ("start", lambda belief: (aif.parameter("theta", NORMAL), 0), "'theta'"),
    ],
)
def test_a_continuous_site(method: str, build: Any, site: str) -> None:
    model_error(with_site(method, build), site, "found Normal, a continuous distribution", "expected a discrete one")


def test_an_infinite_support() -> None:
    model = with_site("observation", lambda theta, x, u, new: aif.observation("y", dist.Poisson(1.0)))
    model_error(model, "'y_t'", "found Poisson", "expected a distribution with finite support")


def test_a_support_that_does_not_start_at_zero() -> None:
    model = with_site("observation", lambda theta, x, u, new: aif.observation("y", dist.DiscreteUniform(1, 3)))
    model_error(model, "'y_t'", "found DiscreteUniform, whose outcomes start at 1", "expected outcomes 0, 1, 2")


def test_an_unmarked_discrete_site() -> None:
    model = with_site("observation", lambda theta, x, u, new: numpyro.sample("z", dist.Categorical(probs=SQUARE[new])))
    model_error(model, "'z'", "found an unmarked discrete site", "expected a role", "aif.observation")


def test_a_plate() -> None:
    def build(theta: Any, x: Any, u: Any, new: Any) -> Any:
        with numpyro.plate("copies", 3):
            return aif.observation("y", dist.Categorical(probs=SENSOR[theta, new]))

    model_error(with_site("observation", build), "plate 'copies'", "expected only the roles")


def test_a_factor_that_is_no_preference() -> None:
    model = with_site("preference", lambda *args: numpyro.factor("bonus", 1.0))
    model_error(model, "factor 'bonus'", "outside aif.preference", "expected aif.preference in the step")


# Probabilities and sizes


@pytest.mark.parametrize(
    ("method", "build", "site", "total"),
    [
        ("control", lambda theta, x, t: aif.control("u", dist.Categorical(probs=0.5 * CONTROL[x])), "'u'", "0.5"),
        (
            "state",
            lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=1.25 * TRANSITION[x, u])),
            "'x'",
            "1.25",
        ),
        (
            "observation",
            lambda theta, x, u, new: aif.observation("y", dist.Categorical(probs=SENSOR[theta, new] + 0.25)),
            "'y'",
            "1.5",
        ),
    ],
)
def test_a_row_that_does_not_sum_to_one(method: str, build: Any, site: str, total: str) -> None:
    model_error(with_site(method, build), f"site {site}", f"found a probability row that sums to {total}", "expected 1")


def test_one_bad_row_among_good_ones() -> None:
    table = TRANSITION.at[2, 1, 0].add(0.125)
    model = with_site("state", lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=table[x, u])))
    model_error(model, "site 'x'", "sums to 1.125", "expected 1")


def test_a_negative_probability() -> None:
    table = jnp.asarray([1.5, -0.5])
    model = with_site("control", lambda theta, x, t: aif.control("u", dist.Categorical(probs=table)))
    model_error(model, "site 'u'", "found a negative probability -0.5", "expected at least 0")


@pytest.mark.parametrize(
    ("belief", "parts"),
    [
        (
            aif.Belief(jnp.full(2, 0.5), jnp.full((2, 4), 0.25)),
            ("4 categories before the rollout", "3 in the step", "'x'"),
        ),
        (
            aif.Belief(jnp.full(3, 1 / 3), jnp.full((2, 3), 1 / 3)),
            ("belief", "(3,)", "(2, 3)", "expected (Θ,) and (Θ, X)"),
        ),
        (aif.Belief(jnp.full(2, 0.5), jnp.full(3, 1 / 3)), ("belief", "(3,)", "expected (Θ,) and (Θ, X)")),
        (aif.Belief(jnp.full((1, 2), 0.5), jnp.full((2, 3), 1 / 3)), ("belief", "(1, 2)", "expected (Θ,) and (Θ, X)")),
        (aif.Belief(jnp.full(2, 0.4), UNIFORM.state), ("belief.parameter", "sums to 0.8", "expected")),
        (aif.Belief(UNIFORM.parameter, UNIFORM.state.at[1, 0].set(0.0)), ("belief.state", "row 1", "sums to 0.66")),
        (aif.Belief(jnp.asarray([1.5, -0.5]), UNIFORM.state), ("belief.parameter", "negative", "-0.5", "expected")),
        (
            aif.Belief(UNIFORM.parameter, jnp.tile(jnp.asarray([1.5, -0.5, 0.0]), (2, 1))),
            ("belief.state", "negative", "-0.5", "expected"),
        ),
        (aif.Belief(jnp.asarray([jnp.nan, 1.0]), UNIFORM.state), ("belief.parameter", "nan", "expected")),
    ],
)
def test_a_belief_that_does_not_fit(belief: aif.Belief, parts: tuple[str, ...]) -> None:
    model_error(Slice().program(), *parts, belief=belief)


def test_a_belief_of_another_shape_than_the_first() -> None:
    """The shapes are checked on every call, not only on the one that compiled."""
    compiled = planner(Slice().program())
    compiled(KEY, UNIFORM, horizon=2)
    with pytest.raises(ModelError, match=re.escape("found state of shape (2, 4), expected (2, 3)")):
        compiled(KEY, aif.Belief(jnp.full(2, 0.5), jnp.full((2, 4), 0.25)), horizon=2)


def test_sizes_that_differ_before_and_in_the_step() -> None:
    table = rows(NUM_X, NUM_U, 4)
    model = with_site("state", lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=table[x, u])))
    model_error(model, "site 'x'", "found 3 categories before the rollout and 4 in the step", "expected the same")


def test_a_joint_table_of_another_size() -> None:
    model = with_site("start", lambda belief: (0, aif.initial_state({"a": 2, "b": 2}, belief.state[0])))
    model_error(model, "'a'", "'b'", "last axis is (3,)", "expected 4")


def test_labels_that_are_too_few() -> None:
    model = with_site(
        "control", lambda theta, x, t: aif.control("u", dist.Categorical(probs=CONTROL[x]), labels=["up"])
    )
    model_error(model, "site 'u'", "found 1 labels", "expected 2")


def test_an_outcome_that_does_not_exist() -> None:
    with pytest.raises(ModelError, match=r"index runs over 0\.\.3, expected 0\.\.2"):
        aif.DeterministicCategorical(jnp.asarray([0, 3]), 3)
    with pytest.raises(ModelError, match="index must be integers, found float32"):
        aif.DeterministicCategorical(jnp.asarray([0.0, 1.0]), 3)
    for wrong in (4.7, 4.0, "4", 0):
        with pytest.raises(ModelError, match=f"DeterministicCategorical: num_categories: found {wrong!r}, expected a"):
            aif.DeterministicCategorical(jnp.asarray(0), wrong)  # type: ignore[arg-type]


# Horizons


@pytest.mark.parametrize("horizon", [0, -1, 1.5, [2]])
def test_a_horizon_that_is_no_positive_whole_number(horizon: Any) -> None:
    expected = "expected a whole number of steps, at least 1"
    model = Slice().program()
    refuses(planner(model), ModelError, "horizon", str(horizon), expected, horizon=horizon)
    for call in (
        lambda: aif.Planner(model, max_horizon=horizon),
        lambda: aif.expected_free_energy(model, UNIFORM, horizon),
        lambda: numpyro.handlers.seed(model, 0)(UNIFORM, horizon=horizon),
    ):
        with pytest.raises(ModelError, match=expected):
            call()


def test_a_horizon_beyond_the_largest() -> None:
    refuses(planner(Slice().program(), max_horizon=2), ValueError, "horizon: found 3", "max_horizon=2", horizon=3)


# What may depend on what


def second_control(theta: Any, x: Any, u: Any, new: Any) -> Any:
    y = aif.observation("y", dist.Categorical(probs=SENSOR[theta, new]))
    aif.control("v", dist.Categorical(probs=rows(NUM_Y, NUM_U)[y]))
    return y


class RemembersObservation(Slice):
    """Hands the last observation to the next control, past the state."""

    def start(self, belief: aif.Belief) -> tuple[Any, Any]:
        theta, x = super().start(belief)
        return theta, (x, jnp.asarray(0))

    def control(self, theta: Any, x: Any, t: Any) -> Any:
        return aif.control("u", dist.Categorical(probs=rows(NUM_Y, NUM_U)[x[1]]))

    def state(self, theta: Any, x: Any, u: Any, t: Any) -> Any:
        return super().state(theta, x[0], u, t)

    def carry(self, x: Any, u: Any, new: Any, y: Any) -> Any:
        return new, y


def test_a_control_that_depends_on_an_observation() -> None:
    model = with_site("observation", second_control)
    model_error(model, "site 'v'", "found", "depends on the observation 'y'", "expected", "previous state only")


def test_a_control_that_depends_on_the_last_observation() -> None:
    model_error(
        RemembersObservation().program(),
        "carry depends on the observation 'y'",
        "expected a function of the new states",
    )


def test_a_control_that_depends_on_a_parameter() -> None:
    model = with_site("control", lambda theta, x, t: aif.control("u", dist.Categorical(probs=CONTROL[theta])))
    model_error(model, "site 'u'", "depends on the parameter 'theta'", "expected", "does not see θ")


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (
            lambda theta, x, u, new: aif.observation("y", dist.Categorical(probs=SENSOR[theta, x])),
            "the previous state 'x'",
        ),
        (
            lambda theta, x, u, new: aif.observation("y", aif.DeterministicCategorical((new + x) % 2, 2)),
            "the previous state 'x'",
        ),
        (
            lambda theta, x, u, new: aif.observation("y", dist.Categorical(probs=SENSOR[theta, x]), plan=False),
            "the previous state 'x'",
        ),
    ],
)
def test_an_observation_that_depends_on_what_came_before(build: Any, found: str) -> None:
    model = with_site("observation", build)
    model_error(model, "site 'y'", f"depends on {found}", "expected", "into the state, as a further state site")


def test_a_carry_that_depends_on_the_control() -> None:
    model = with_site("carry", lambda x, u, new, y: (new + u) % NUM_X)
    model_error(model, "carry depends on the control 'u'", "put what the next step needs into a state site")


def test_a_carry_that_is_another_function_of_the_state() -> None:
    model = with_site("carry", lambda x, u, new, y: (new + 1) % NUM_X)
    model_error(model, "rollout", "not the same function of the new states", "(x)")


def test_a_carry_of_another_structure() -> None:
    model_error(
        with_site("carry", lambda x, u, new, y: (new, new)), "rollout", "carry of structure", "expected the first's"
    )


# Python code that a value steers


def branch_on_state(theta: Any, x: Any, u: Any, t: Any) -> Any:
    table = TRANSITION if x == 0 else TRANSITION[::-1]
    return aif.state("x", dist.Categorical(probs=table[x, u]))


def branch_on_time(x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
    if t == 2:
        aif.preference("goal", LIKING[new])


def branch_on_horizon(x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
    for _ in range(horizon):
        pass
    aif.preference("goal", LIKING[new])


@pytest.mark.parametrize(
    ("method", "build", "what", "line"),
    [
        ("state", branch_on_state, "site 'x_0'", "if x == 0"),
        ("preference", branch_on_time, "t:", "if t == 2"),
        ("preference", branch_on_horizon, "horizon:", "range(horizon)"),
        (
            "control",
            lambda theta, x, t: aif.control("u", dist.Categorical(probs=CONTROL[int(x)])),
            "site 'x_0'",
            "int(x)",
        ),
        (
            "observation",
            lambda theta, x, u, new: aif.observation("y", dist.Categorical(probs=SENSOR[int(theta), new])),
            "site 'theta'",
            "int(theta)",
        ),
    ],
)
def test_python_code_steered_by_a_value(method: str, build: Any, what: str, line: str) -> None:
    model_error(with_site(method, build), what, "steers Python code", line, "expected array code", "jnp.where")


def test_a_numpy_table_indexed_by_a_site() -> None:
    table = np.asarray(TRANSITION)
    model = with_site("state", lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=table[x, u])))
    model_error(model, "site 'x_0'", "indexes a NumPy array", "expected JAX arrays", "jnp.asarray")


# Indices that broadcast wrongly


def goal(table: Callable[[Any, Any], Any]) -> Callable[..., None]:
    return lambda x, u, new, y, t, horizon: aif.preference("goal", table(new, u))


@pytest.mark.parametrize(
    ("method", "build", "site"),
    [
        ("state", lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=SQUARE.T[:, x])), "'x'"),
        (
            "state",
            lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=TRANSITION.transpose(2, 0, 1)[:, x, u])),
            "'x'",
        ),
        ("observation", lambda theta, x, u, new: aif.observation("y", dist.Categorical(probs=SQUARE.T[:, new])), "'y'"),
        (
            "observation",
            lambda theta, x, u, new: aif.observation("y", dist.Categorical(probs=SENSOR[0].T[:, new])),
            "'y'",
        ),
        ("state", lambda theta, x, u, t: aif.state("x", dist.Categorical(probs=TRANSITION[x])), "'x'"),
        (
            "state",
            lambda theta, x, u, t: aif.state("x", aif.DeterministicCategorical(jnp.arange(3)[None].repeat(3, 0)[x], 3)),
            "'x'",
        ),
        ("control", lambda theta, x, t: aif.control("u", dist.Categorical(probs=CONTROL.T[:, x])), "'u'"),
        ("preference", goal(lambda x, u: SQUARE[x]), "'goal'"),
        ("preference", goal(lambda x, u: SQUARE[:, x].sum()), "'goal'"),
    ],
)
def test_an_index_that_broadcasts_wrongly(method: str, build: Any, site: str) -> None:
    model_error(with_site(method, build), site, "index" if method != "preference" else "found", "expected")


# Preferences


@pytest.mark.parametrize("value", [-jnp.inf, jnp.inf, jnp.nan])
def test_a_preference_that_is_not_finite(value: float) -> None:
    model = with_site("preference", goal(lambda x, u: LIKING.at[1].set(value)[x]))
    model_error(model, "preference 'goal'", f"found {value}", "expected finite numbers", "large negative")


def test_a_preference_on_an_observation_that_is_not_finite() -> None:
    def build(x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        aif.preference("wish", jnp.asarray([0.0, -jnp.inf])[y])

    model_error(with_site("preference", build), "preference 'wish'", "found -inf", "expected finite numbers")


def test_a_preference_on_a_control_and_an_observation_jointly() -> None:
    def build(x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        aif.preference("both", rows(NUM_U, NUM_Y)[u, y])

    parts = "preference 'both'", "the observation 'y'", "the control 'u'", "jointly", "expected one or the other"
    model_error(with_site("preference", build), *parts)


def test_a_preference_on_two_observations_jointly() -> None:
    def build(theta: Any, x: Any, u: Any, new: Any) -> Any:
        first = aif.observation("y", dist.Categorical(probs=SENSOR[theta, new]))
        second = aif.observation("z", dist.Categorical(probs=SENSOR[theta, new]))
        aif.preference("both", rows(NUM_Y, NUM_Y)[first, second])

    parts = "preference 'both'", "y and z jointly", "expected one observation site"
    model_error(with_site("observation", build), *parts)


def test_a_preference_on_an_observation_that_is_not_planned_for() -> None:
    def build(theta: Any, x: Any, u: Any, new: Any) -> Any:
        seen = aif.observation("y", dist.Categorical(probs=SENSOR[theta, new]), plan=False)
        if seen is not None:
            aif.preference("wish", jnp.asarray([0.0, 1.0])[seen])

    model_error(with_site("observation", build), "preference 'wish'", "'y', which has plan=False", "expected")


# The shape of a program


def test_sites_that_do_not_pair_up() -> None:
    model = with_site("start", lambda belief: (0, aif.state("z", dist.Categorical(probs=belief.state[0]))))
    with pytest.raises(ModelError, match=r"found a state .* but not .*, expected it in both"):
        planner(model)(KEY, UNIFORM, horizon=2)


def test_a_name_that_is_used_twice() -> None:
    model = with_site(
        "observation", lambda theta, x, u, new: aif.observation("u", dist.Categorical(probs=SENSOR[0, new]))
    )
    model_error(model, "site 'u_t'", "found twice", "expected a name of its own")


def test_a_name_in_two_roles() -> None:
    model = with_site(
        "observation", lambda theta, x, u, new: aif.observation("theta", dist.Categorical(probs=SENSOR[0, new]))
    )
    model_error(model, "site 'theta'", "found in two roles", "expected a name of its own")


def test_a_model_without_controls_or_states() -> None:
    model_error(with_site("control", lambda theta, x, t: 0), "found no aif.control", "expected at least one")
    model_error(with_site("state", lambda theta, x, u, t: 0), "found no aif.state", "expected at least one")


def test_a_model_without_a_rollout() -> None:
    def model(belief: aif.Belief, horizon: int = 2) -> None:
        aif.state("x", dist.Categorical(probs=belief.state[0]))

    model_error(model, "found no aif.rollout", "expected exactly one")


def test_two_rollouts() -> None:
    def model(belief: aif.Belief, horizon: int = 2) -> None:
        Slice().program()(belief, horizon)
        aif.rollout(lambda x, t: x, 0, horizon)

    model_error(model, "found a second rollout", "expected exactly one")


def test_a_rollout_in_a_step() -> None:
    model = with_site("carry", lambda x, u, new, y: aif.rollout(lambda x, t: x, new, 2))
    model_error(model, "found a rollout inside a step", "expected exactly one")


def test_roles_in_the_wrong_place() -> None:
    inside = with_site(
        "observation", lambda theta, x, u, new: aif.parameter("late", dist.Categorical(probs=jnp.ones(1)))
    )
    model_error(inside, "site 'late'", "found parameter inside a rollout's step", "expected it before the rollout")
    outside = with_site("start", lambda belief: (0, aif.control("u", dist.Categorical(probs=jnp.ones(1)))))
    model_error(outside, "site 'u'", "found control outside a rollout", "expected it inside the step")


# Settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda m: aif.guides.TemporalGuide(m, learn=("control", "states")),
            r"learn: found .*'states'.*, expected some of",
        ),
        (lambda m: aif.guides.TemporalGuide(m, learn="control"), r"learn: found 'control', expected some of"),
        (lambda m: aif.guides.SequenceGuide(m, support="some"), "support: found 'some', expected 'model' or 'all'"),
        (lambda m: aif.Active(gradient="stop"), "gradient: found 'stop', expected 'fixed' or 'through'"),
        (lambda m: aif.Active(weight=-1.0), "weight: found -1.0, expected"),
        (lambda m: aif.SVISolver(optax.adam(0.1), 0), "num_steps: found 0, expected at least 1"),
        (lambda m: aif.SVISolver(optax.adam(0.1), tol=0.0), "tol: found 0.0, expected a positive number"),
        (lambda m: aif.CoordinateSolver(restarts=0), "restarts: found 0, expected at least 1"),
    ],
)
def test_unknown_settings(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(Slice().program())
