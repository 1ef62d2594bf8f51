"""Settings of F_active for DoorKey-8x8 on trial seeds, compared seed by seed; a run continues where it was stopped.

Weight, entropy and lead are traced, so that settings that differ in nothing else share what is compiled (two minutes);
20 episodes then take some 36 s of one core. The reported seeds, 1000 to 1099, are not for this.

    python benchmarks/doorkey_trials.py --folder trials [--first 2000] [--count 200] [--evidence joint|sites]
        [--unvisited free|prior] [--setting weight=0.1,entropy=1,lead=3 …]
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif.acting.agent import Agent
from npro_aif.acting.episodes import blocks_of
from npro_aif.acting.run import run_episodes
from npro_aif.experiments.agents import vfe_agent
from npro_aif.experiments.summary import wilson
from npro_aif.experiments.tasks import Settings, Task, make_task
from npro_aif.inference.objectives import Active
from npro_aif.models import doorkey
from npro_aif.planning.functions import Functions
from npro_aif.solvers import CoordinateSolver
from npro_aif.solvers.envelope import with_numbers

BLOCK = 20  # episodes between two writes
REPORTED = range(1000, 1100)


class Setting(NamedTuple):
    """A setting to try."""

    weight: float = doorkey.WEIGHT
    entropy: float = doorkey.ENTROPY
    lead: int = doorkey.LEAD


def setting_of(text: str) -> Setting:
    """A setting from text such as ``weight=0.2,lead=0``.

    >>> setting_of("weight=0.2,lead=0")
    Setting(weight=0.2, entropy=0.0, lead=0)
    """
    values = dict(part.split("=") for part in text.split(","))
    kinds: dict[str, Callable[[str], Any]] = {"weight": float, "entropy": float, "lead": int}
    return Setting(**{name: kinds[name](value) for name, value in values.items()})


class Trials:
    """An agent whose setting can be changed without compiling anew."""

    def __init__(self, evidence: str, unvisited: str):
        solver = CoordinateSolver(max_sweeps=doorkey.SWEEPS, lead=doorkey.LEAD, unvisited=unvisited)
        active = Active(weight=doorkey.WEIGHT, evidence=evidence)  # type: ignore[arg-type]
        self.task: Task = make_task("doorkey")._replace(active=active, sweeps=solver)
        self.agent: Agent = vfe_agent(self.task, Settings(solver="coordinate", seed=REPORTED[0], act_by="probability"))
        self.setting = Setting()
        functions: Any = self.agent.planner.functions_for(self.agent.initial_belief, self.task.horizon)

        alone = threading.Lock()  # decisions are made on all cores, and two may be traced at once

        def traced(setting: Setting, *arguments: Any) -> Any:
            with alone, tried(functions, solver, setting):
                return functions.first_control(*arguments)

        compiled = jax.jit(traced)

        def present(_: int, *arguments: Any) -> Any:
            weight, entropy, lead = self.setting
            return compiled(Setting(jnp.float32(weight), jnp.float32(entropy), jnp.int32(lead)), *arguments)  # type: ignore[arg-type]

        functions.decide = present

    def play(self, setting: Setting, seeds: list[int]) -> list[dict[str, Any]]:
        """The episodes of these seeds, as rows."""
        self.setting = setting
        played = run_episodes(self.task.environment, self.agent, seeds).episodes
        return [
            {"seed": e.seed, "steps": e.steps, "success": e.reward > 0, "shortest": self.task.outcome(e)["shortest"]}
            for e in played
        ]


@contextmanager
def tried(functions: Functions, solver: CoordinateSolver, setting: Setting) -> Iterator[None]:
    """Let functions be traced with the numbers of a setting."""
    before = functions.objective, functions.solver
    own = copy.copy(solver)
    object.__setattr__(own, "lead", setting.lead)  # past its checks, which a traced number would fail
    numbers: Any = {"weight": setting.weight, "entropy": setting.entropy}
    functions.objective, functions.solver = with_numbers(functions.objective, numbers), own
    try:
        yield
    finally:
        functions.objective, functions.solver = before


def report(rows: dict[str, dict[int, dict[str, Any]]]) -> None:
    """Each setting's success, steps and steps over the shortest path; and its steps less the first one's, by seed."""
    first = next(iter(rows.values()))
    for name, by_seed in rows.items():
        steps = np.array([row["steps"] for row in by_seed.values()])
        shortest = np.array([row["shortest"] for row in by_seed.values()])
        count = sum(row["success"] for row in by_seed.values())
        low, high = wilson(count, len(steps))
        common = sorted(by_seed.keys() & first.keys())
        gap = np.array([by_seed[seed]["steps"] - first[seed]["steps"] for seed in common], float)
        error = gap.std(ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else math.nan
        print(
            f"{name}: {len(steps)} episodes, success {count / len(steps):.1%} [{low:.1%}, {high:.1%}], "
            f"{steps.mean():.2f} steps, {steps.sum() / shortest.sum():.4f} × shortest, "
            f"less the first setting's {gap.mean():+.2f} ± {error:.2f} (standard error, {len(gap)} seeds)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--first", type=int, default=2000)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--evidence", choices=("joint", "sites"), default="joint")
    parser.add_argument("--unvisited", choices=("free", "prior"), default=doorkey.UNVISITED)
    parser.add_argument("--setting", type=setting_of, nargs="+", default=[Setting()])
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.count)
    if set(seeds) & set(REPORTED):
        parser.error(f"found seeds among {REPORTED[0]} to {REPORTED[-1]}, which are reported: try others")
    trials = Trials(arguments.evidence, arguments.unvisited)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[int, dict[str, Any]]] = {}
    for setting in arguments.setting:
        name = f"{arguments.evidence} {arguments.unvisited} " + " ".join(
            f"{k}={v:g}" for k, v in setting._asdict().items()
        )
        path = arguments.folder / f"{name.replace(' ', ',')}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        own = {row["seed"]: row for row in map(json.loads, lines)}
        for block in blocks_of([seed for seed in seeds if seed not in own], BLOCK):
            played = trials.play(setting, list(block))
            with path.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in played)
            own |= {row["seed"]: row for row in played}
        rows[name] = {seed: own[seed] for seed in seeds}
    report(rows)


if __name__ == "__main__":
    main()
