"""Odd but plausible programs: each is read as plain NumPyro would run it, or refused by name.

Every program is planned with, and its free energy is compared with a sum over all trajectories whose probabilities come
from plain NumPyro's trace. A program may instead be refused, by a ``ValueError`` (a ``ModelError`` or ``GuideError``
mostly) that names a site or an argument. Anything else is a fault:

    python benchmarks/fuzz_programs.py            # all of them
    python benchmarks/fuzz_programs.py handlers   # one family
"""

from __future__ import annotations

import atexit
import collections
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # what one program compiles serves the others, and compiles in half the time
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="npro-aif-fuzz-")
        atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

import npro_aif as aif
from benchmarks.odd.distributions import distributions
from benchmarks.odd.everyday import everyday
from benchmarks.odd.handled import handled
from benchmarks.odd.indices import indices
from benchmarks.odd.names import names
from benchmarks.odd.numbers import numbers
from benchmarks.odd.parts import BELIEF, HORIZON, NUM_X, Parts, Program, rows
from benchmarks.odd.structures import structures
from benchmarks.odd.tables import rows_of_all_kinds

TOLERANCE = 2e-4
ROLES = ("theta", "x", "u", "y", "goal", "m", "kind", "z", "v", "place")  # the sites' names in these programs


class Case(NamedTuple):
    """One program, and from which belief to plan with it."""

    family: str
    name: str
    model: Program
    belief: aif.Belief = BELIEF
    horizon: int = HORIZON


class Verdict(NamedTuple):
    """The outcome of a case."""

    kind: str  # "right", "refused", "wrong" or "crashed"
    text: str


def cases(family: str | None = None) -> list[Case]:
    """Every program."""
    families = {
        "structures": structures,
        "handlers": handled,
        "distributions": distributions,
        "names": names,
        "indices": indices,
        "numbers": numbers,
        "everyday": everyday,
        "tables": rows_of_all_kinds,
    }
    programs = [
        Case(kind, name, model) for kind, build in families.items() if family in (None, kind) for name, model in build()
    ]
    four = aif.Belief(rows(4, seed=7), rows(4, NUM_X, seed=8))
    one = aif.Belief(jnp.ones(1), rows(1, NUM_X, seed=8))
    fitting = {
        "parameters from one table": four,
        "condition a joint table's site": four,
        "substitute a joint table's site": four,
        "no parameter": one,
        "a state of one value": aif.Belief(BELIEF.parameter, jnp.ones((2, 1))),
        "a second state": aif.Belief(BELIEF.parameter, jnp.full((2, 6), 1 / 6)),
        "a hidden second state": aif.Belief(BELIEF.parameter, jnp.full((2, 6), 1 / 6)),
        "log of the belief": aif.Belief(jnp.asarray([0.0, 1.0]), BELIEF.state),
    }
    programs = [case._replace(belief=fitting.get(case.name, BELIEF)) for case in programs]
    if family in (None, "indices"):
        three = aif.Belief(rows(3, seed=7), rows(3, NUM_X, seed=8))
        programs.append(Case("indices", "three parameters, tables for two", Parts().program(), three))
    if family in (None, "structures"):
        programs += [
            Case("structures", f"{c.name}, 3 steps", c.model, c.belief, 3)
            for c in programs
            if c.family == "structures" and c.name.startswith("the ")
        ]
    return programs


# --- The program under plain NumPyro ---


class Sums(NamedTuple):
    """All trajectories of a program under plain NumPyro."""

    log_prior: np.ndarray  # (N,) Σ log p of all sites but controls
    log_control: np.ndarray  # (N,) Σ log p(u)
    preference: np.ndarray  # (N,)
    values: dict[str, np.ndarray]  # by full name, (N,)


def trajectories(model: Program, belief: aif.Belief, horizon: int) -> Sums:
    """Enumerate a program by running it under plain NumPyro, all latent values substituted."""
    with handlers.seed(rng_seed=0):
        first = handlers.trace(model).get_trace(belief, horizon=horizon)
    latent = {
        name: np.asarray(site["fn"].enumerate_support(expand=False)).ravel()
        for name, site in first.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    for end in (0, -1):  # what a handler in the model fixes does not take another value
        chosen = _choose({name: jnp.asarray(values[end]) for name, values in latent.items()})
        with handlers.seed(rng_seed=0), handlers.substitute(substitute_fn=chosen):
            sites = handlers.trace(model).get_trace(belief, horizon=horizon)
        latent = {name: values for name, values in latent.items() if int(sites[name]["value"]) == int(values[end])}
    grid = np.meshgrid(*latent.values(), indexing="ij")
    values = {name: jnp.asarray(axis.ravel()) for name, axis in zip(latent, grid, strict=True)}
    kinds = {name: kind(name, site) for name, site in first.items() if site["type"] == "sample"}

    def run(assignment: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        with handlers.seed(rng_seed=0), handlers.substitute(substitute_fn=_choose(assignment)):
            sites = handlers.trace(model).get_trace(belief, horizon=horizon)
        total = {"prior": jnp.zeros(()), "control": jnp.zeros(()), "preference": jnp.zeros(())}
        seen = {}
        for name, site in sites.items():
            if site["type"] == "sample":
                log = jnp.sum(site["fn"].log_prob(site["value"])) * (1.0 if site["scale"] is None else site["scale"])
                total[kinds[name]] += log
            if site["type"] in ("sample", "deterministic") and jnp.ndim(site["value"]) == 0:
                seen[name] = site["value"]
        return total, seen

    total, seen = jax.vmap(run)(values)
    numbers = {name: np.asarray(value, float) for name, value in total.items()}
    return Sums(
        numbers["prior"], numbers["control"], numbers["preference"], {k: np.asarray(v) for k, v in seen.items()}
    )


def _choose(assignment: dict[str, Any]) -> Callable[[Any], Any]:
    """Values for the sites that have none yet."""
    return lambda site: assignment.get(site["name"]) if site["value"] is None else None


def kind(name: str, site: dict[str, Any]) -> str:
    if isinstance(site["fn"], dist.Unit):
        return "preference"
    return "control" if name.rsplit("_", 1)[0] in ("u", "v") else "prior"


def free_energy(plan: aif.Plan, sums: Sums, horizon: int) -> float:
    """F_planning of a plan's policy, from plain NumPyro's probabilities: E_q[−log p(u) − log p̂]."""
    signature, policy = plan.signature, np.asarray(plan.policy, float)
    log_policy = np.zeros_like(sums.log_prior)
    for t in range(1, horizon + 1):
        seen = flat([(s, sums.values[f"{s.name}_{t - 1}"]) for s in signature.policy], len(log_policy))
        done = flat([(s, sums.values[f"{s.name}_{t}"]) for s in signature.control], len(log_policy))
        with np.errstate(divide="ignore"):
            log_policy = log_policy + np.log(policy[t - 1][seen, done])
    weight = np.exp(sums.log_prior + log_policy)
    weight = weight / weight.sum()  # what a condition fixes is given
    live = weight > 0
    return float((weight[live] * (-sums.log_control - sums.preference)[live]).sum())


def flat(parts: list[tuple[Any, np.ndarray]], count: int) -> np.ndarray:
    index = np.zeros(count, int)
    for site, value in parts:
        index = index * site.size + value
    return index


def judge(case: Case) -> Verdict:
    """Plan with a program, and compare."""
    getattr(case.model, "prepare", lambda: None)()  # whatever was done with it before
    try:
        guide = aif.guides.TemporalGuide(case.model, learn=("control",))
        solver = aif.CoordinateSolver(max_sweeps=5, restarts=1)
        planner = aif.Planner(case.model, guide, aif.Planning(), solver, max_horizon=case.horizon)
        plan = planner(jax.random.key(0), case.belief, horizon=case.horizon)
        value = float(plan.free_energy[-1])
    except ValueError as error:
        text = str(error)
        named = any(f"'{name}" in text for name in ROLES) or "'" in text
        named |= any(
            what in text for what in ("rollout", "horizon", "belief", "model", "t:", "DeterministicCategorical")
        )
        return Verdict("refused" if named else "crashed", f"{type(error).__name__}: {text}")
    except Exception as error:
        return Verdict("crashed", f"{type(error).__name__}: {str(error)[:200]}")
    try:
        with numpyro.validation_enabled(False):  # it refuses logits of -inf
            expected = free_energy(plan, trajectories(case.model, case.belief, case.horizon), case.horizon)
    except Exception as error:  # plain NumPyro cannot run what was planned with
        return Verdict("wrong", f"F = {value:.4f}, but plain NumPyro: {type(error).__name__}: {str(error)[:120]}")
    right = abs(value - expected) <= TOLERANCE * max(1.0, abs(expected))
    return Verdict("right" if right else "wrong", f"F = {value:.4f}, by plain NumPyro {expected:.4f}")


def main() -> None:
    jax.config.update("jax_disable_most_optimizations", True)  # they run once
    chosen = cases(*sys.argv[1:2])
    start, counts = time.time(), collections.Counter()
    for case in chosen:
        verdict = judge(case)
        counts[verdict.kind] += 1
        print(
            f"{verdict.kind:8} {case.family}: {case.name}\n           {verdict.text.splitlines()[0][:230]}", flush=True
        )
    print(f"\n{len(chosen)} programs in {time.time() - start:.0f} s: {dict(counts)}")
    if counts["wrong"] or counts["crashed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
