"""Single precision holds: with preferences from 1e-3 to 1e6, a thousand steps and probabilities of 1e-30."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.guides import TemporalGuide
from npro_aif.program.program import program_of
from npro_aif.solvers import Problem
from tests.support import assert_close

pytestmark = pytest.mark.usefixtures("quick_compile")

LONG, SHORT = 1000, 3
STATES, CONTROLS, TRUTHS = 3, 2, 2
SCALES = (1e-3, 1.0, 1e3, 1e6)
POLICY, LAYOUT = ("control",), ("control", "parameter")
MOST, ALL = ("control", "parameter", "state"), ("control", "parameter", "state", "observation")
RARE = 1e-30

rng = np.random.default_rng(0)
MOVES = rng.dirichlet(np.ones(STATES), (TRUTHS, STATES, CONTROLS))
MOVES[0, 0, 0] = [RARE, 1.0, RARE]
SENSES = rng.dirichlet(np.ones(2), (TRUTHS, STATES))
SENSES[1, 2] = [1.0, RARE]
LIKED = rng.normal(size=STATES)
LOGITS = rng.normal(size=(LONG, STATES, CONTROLS))


def model(belief: aif.Belief, horizon: int = LONG) -> None:
    theta = aif.parameter("theta", dist.Categorical(probs=belief.parameter))
    x = aif.state("x", dist.Categorical(probs=belief.state[theta]))

    def step(x: Any, t: Any) -> Any:
        u = aif.control("u", dist.Categorical(probs=jnp.full(CONTROLS, 1 / CONTROLS)))
        x = aif.state("x", dist.Categorical(probs=jnp.asarray(MOVES)[theta, x, u]))
        aif.observation("y", dist.Categorical(probs=jnp.asarray(SENSES)[theta, x]))
        aif.preference("liked", jnp.asarray(LIKED)[x])
        return x

    aif.rollout(step, x, horizon)


def solved(objective: Any, learn: tuple[str, ...]) -> list[dict[str, np.ndarray]]:
    """F and the marginals for every scale and horizon, in the present precision."""
    belief = aif.Belief(jnp.full(TRUTHS, 1 / TRUTHS), jnp.full((TRUTHS, STATES), 1 / STATES))
    guide = TemporalGuide(model, learn=learn)
    world = program_of(model, belief, LONG).world(belief, LONG)

    @jax.jit
    def solve(scale: Any, horizon: Any) -> Any:
        own = world._replace(preference={k: scale * v for k, v in world.preference.items()}, horizon=horizon)
        params = {name: jnp.zeros(table.shape) for name, table in guide.tables(own, LONG).items()}
        params["control_logits"] = jnp.asarray(LOGITS)
        problem = Problem(own, guide, objective, LONG)
        solution = aif.CoordinateSolver(restarts=1).solve(problem, jax.random.key(0), params)
        marginals = solution.posterior.marginals(own)
        return solution.free_energy[-1], marginals, solution.info.converged, solution.posterior

    found = []
    for scale in SCALES:
        for horizon in (SHORT, LONG):
            value, marginals, converged, posterior = solve(jnp.asarray(scale), jnp.asarray(horizon, jnp.int32))
            tables = {"control": marginals.control[:horizon], "state": marginals.state[: horizon + 1]}
            tables |= {"parameter": marginals.parameter, "y": marginals.observation["y"][:horizon]}
            found.append({"F": value, "converged": converged, "posterior": posterior, **tables})
    return jax.tree.map(np.asarray, found)


def in_double(objective: Any, posterior: Any, scale: float, horizon: int) -> Any:
    """F of a posterior's own numbers in double precision."""
    belief = aif.Belief(jnp.full(TRUTHS, 1 / TRUTHS), jnp.full((TRUTHS, STATES), 1 / STATES))
    world = program_of(model, belief, LONG).world(belief, LONG)
    world = world._replace(preference={k: scale * v for k, v in world.preference.items()}, horizon=jnp.asarray(horizon))
    return objective.free_energy(world, jax.tree.map(lambda table: jnp.asarray(table, float), posterior))


CASES = [
    (aif.Planning(), POLICY),
    pytest.param(aif.Active(gradient="through"), MOST, marks=pytest.mark.slow),
]
MORE = [
    (aif.Marginal(), ALL),
    (aif.Active(), ALL),
    (aif.Planning(), ALL),
    (aif.Marginal(), POLICY),
    (aif.Active(gradient="through"), POLICY),
    (aif.Active(), POLICY),
    (aif.Planning(), LAYOUT),
    (aif.Marginal(), LAYOUT),
    (aif.Active(gradient="through"), LAYOUT),
    (aif.Active(), LAYOUT),
]


def check(objective: Any, learn: tuple[str, ...]) -> None:
    single = solved(objective, learn)
    with jax.enable_x64(True):
        double = solved(objective, learn)
    for i, (row, exact) in enumerate(zip(single, double, strict=True)):
        note = f"{objective} {learn}, preferences of {SCALES[i // 2]}, {(SHORT, LONG)[i % 2]} steps"
        for name in ("control", "state", "parameter", "y"):
            assert_close(row[name].sum(-1), 1.0, 1e-5, f"{note}: {name}")
        if not objective.epistemic or (row["converged"] and exact["converged"]):
            assert_close(row["F"], exact["F"], 1e-5, note)
        elif objective.gradient == "through":  # it was stopped on its way: F must be that of where it is
            with jax.enable_x64(True):
                own = in_double(objective, row["posterior"], SCALES[i // 2], (SHORT, LONG)[i % 2])
            assert_close(row["F"], own, 1e-5, note)
        # Sweeps with held costs may end at another fixed point where they do not settle.


@pytest.mark.parametrize(("objective", "learn"), CASES, ids=str)
def test_single_precision_holds(objective: Any, learn: tuple[str, ...]) -> None:
    check(objective, learn)


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "learn"), MORE, ids=str)
def test_single_precision_holds_everywhere(objective: Any, learn: tuple[str, ...]) -> None:
    check(objective, learn)
