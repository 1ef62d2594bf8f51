"""Plans, planners and agents go through bytes into another process, also after use, and do there what they do here."""

from __future__ import annotations

import functools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import npro_aif as aif
from npro_aif.models import tmaze

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(0)
START = {"cue": 0, "place": tmaze.START}
READ = """
import json, pickle, sys
from pathlib import Path
import jax
report = []
for plan, planner, agent in pickle.loads(Path(sys.argv[1]).read_bytes()):
    again = planner(jax.random.key(0), plan.belief, 2)
    drawn = int(plan.sample(jax.random.key(1), 5)["u"].sum())
    told = [len(agent.plans), agent.step, int(agent.act({"cue": 1, "place": 0}))]
    report.append([float(plan.free_energy[-1]), float(again.free_energy[-1]), drawn, *told])
print(json.dumps(report))
"""


def notebook(sharpness: float) -> Any:
    """A model that has no name in any module, as those of a notebook or a factory."""

    def model(belief: aif.Belief, horizon: int = 2) -> None:
        theta = aif.parameter("theta", dist.Categorical(belief.parameter))
        x = aif.state("x", dist.Categorical(belief.state[theta]))

        def step(x: jax.Array, t: jax.Array) -> jax.Array:
            u = aif.control("u", dist.Categorical(probs=jnp.ones(2) / 2))
            x = aif.state("x", aif.DeterministicCategorical(u, 2))
            aif.observation("y", dist.Categorical(logits=sharpness * (x == theta)[..., None] * jnp.array([0.0, 1.0])))
            aif.preference("goal", jnp.where(x == 1, 1.0, 0.0))
            return x

        aif.rollout(step, x, horizon)

    return model


SOLVERS = (aif.CoordinateSolver(max_sweeps=10), aif.SVISolver(optax.adam(0.1), 5))


def test_everything_is_read_in_another_process(tmp_path: Path) -> None:
    belief, everything, expected = tmaze.initial_belief(), [], []
    for solver in SOLVERS[1:]:  # whose optimizer is made of functions without a name
        guide = aif.guides.TemporalGuide(tmaze.tmaze, aif.guides.FACTORS)
        planner = aif.Planner(tmaze.tmaze, guide, solver=solver, max_horizon=2)
        agent = aif.Agent(planner, belief, max_steps=2)
        agent.act(START)
        plan = planner(KEY, belief, 2)
        drawn, value = int(plan.sample(jax.random.key(1), 5)["u"].sum()), float(plan.free_energy[-1])
        everything.append((plan, planner, pickle.loads(pickle.dumps(agent))))
        expected.append([value, value, drawn, 1, 1, agent.act({"cue": 1, "place": 0})])
    file = tmp_path / "everything.pickle"
    file.write_bytes(pickle.dumps(everything))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    result = subprocess.run([sys.executable, "-c", READ, str(file)], env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(json.loads(result.stdout), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "guide", [aif.guides.TemporalGuide, pytest.param(aif.guides.SequenceGuide, marks=pytest.mark.slow)]
)
def test_models_without_a_name(guide: Any) -> None:
    model = notebook(2.0)
    belief = aif.Belief(jnp.array([0.5, 0.5]), jnp.array([[1.0, 0.0], [1.0, 0.0]]))
    solver = aif.SVISolver(optax.chain(optax.clip(1.0), optax.adam(0.1)), 3)
    planner = aif.Planner(model, guide(model), aif.Active(), solver)
    plan = planner(KEY, belief, 2)
    copy, again = pickle.loads(pickle.dumps((plan, planner)))
    np.testing.assert_array_equal(copy.control, plan.control)
    np.testing.assert_allclose(again(KEY, belief, 2).free_energy, plan.free_energy, rtol=1e-6)
    assert copy.complete()._fields == plan.complete()._fields


def test_partial_models_and_batches() -> None:
    model = functools.partial(tmaze.tmaze, arm_shortcut=True)
    planner = aif.Planner(model, solver=SOLVERS[0], max_horizon=2)
    beliefs = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), tmaze.initial_belief())
    plans = pickle.loads(pickle.dumps(planner.batch(jax.random.split(KEY, 2), beliefs)))
    assert plans.control.shape == (2, 2, 4)
