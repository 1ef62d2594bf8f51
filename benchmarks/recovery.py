"""Recovery of the truth from simulated data: for worlds, for agents, and for learning while acting.

    python benchmarks/recovery.py world|behaviour|acting [--count N] [--folder results/recovery]

Every data set, agent or seed that is finished is a line in a file; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

import npro_aif as aif
from npro_aif.models import reactivity_maze, tmaze, windy_grid

ACCURACY = 0.8
COVERED = 5.0, 95.0  # the percentiles of a 90 % interval
SPREAD = 0.75  # of log preference, log weight and log precision between agents
SIDE = 41  # points on each side of the grid
SAMPLED = 6  # agents that NUTS fits too
AGENTS, DATA_SETS, SEEDS = 60, 20, 10


# --- World: the accuracy of a cue, and a table of moves ---


def learn_accuracy(data: Any) -> None:
    """A cue that is right more often than not; without a visible reward its mirror image would fit the data as well."""
    accuracy = numpyro.sample("accuracy", dist.Uniform(0.5, 1.0))
    aif.episodes("maze", functools.partial(tmaze.tmaze, cue_accuracy=accuracy), tmaze.initial_belief(), data)


@functools.cache
def accuracy_sampler(num_warmup: int = 500, num_samples: int = 1000) -> MCMC:
    return MCMC(
        NUTS(learn_accuracy),
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,  # the data are arguments: one compilation for all data sets
    )


def one_world(seed: int) -> dict[str, Any]:
    """NUTS on 200 episodes with random controls."""
    model = functools.partial(tmaze.tmaze, cue_accuracy=ACCURACY)
    data = aif.simulate(jax.random.key(seed), model, tmaze.initial_belief(), num_episodes=200, num_steps=4)
    mcmc = accuracy_sampler()
    start = time.perf_counter(), time.process_time()
    mcmc.run(jax.random.key(1000 + seed), data._replace(truth=None), extra_fields=("diverging",))
    draws = np.asarray(mcmc.get_samples(group_by_chain=True)["accuracy"])
    low, high = np.percentile(draws, COVERED)
    return {
        "mean": float(draws.mean()),
        "low": float(low),
        "high": float(high),
        "covered": bool(low <= ACCURACY <= high),
        "r_hat": float(split_gelman_rubin(draws)),
        "divergences": int(np.asarray(mcmc.get_extra_fields()["diverging"]).sum()),
        "seconds": time.perf_counter() - start[0],
        "cpu_seconds": time.process_time() - start[1],
    }


def learned_table(num_episodes: int = 100, num_steps: int = 40, seed: int = 0) -> dict[str, Any]:
    """p(cell'|cell,u) of the windy grid with a Dirichlet prior of one count a row, from random episodes."""
    num_cells = windy_grid.SIZE**2
    truth = np.eye(num_cells)[windy_grid.transitions()]
    belief = aif.Belief(jnp.ones(1), jnp.full((1, num_cells), 1 / num_cells))
    model = functools.partial(windy_grid.windy_grid, table=jnp.asarray(truth))
    data = aif.simulate(jax.random.key(seed), model, belief, num_episodes, num_steps, look=True)
    before = np.concatenate([data.first["place"][:, None], data.observations["place"][:, :-1]], 1)
    prior = aif.Counts(jnp.full((num_cells, 4, num_cells), 1 / num_cells))
    counts = prior.learn((before, data.controls), data.observations["place"])
    often = np.asarray(counts.visits - prior.visits) >= 10 - 1e-3
    apart = 0.5 * np.abs(np.asarray(counts.mean) - truth).sum(-1)
    return {"rows": int(often.sum()), "worst": float(apart[often].max()), "mean": float(apart[often].mean())}


def report_world(rows: list[dict[str, Any]]) -> None:
    covered = sum(row["covered"] for row in rows)
    print(f"accuracy: the 90 % interval covers {ACCURACY} in {covered} of {len(rows)} data sets")
    print(f"  largest r-hat {max(r['r_hat'] for r in rows):.4f}, divergences {sum(r['divergences'] for r in rows)}")
    print(f"  seconds each: {np.mean([r['seconds'] for r in rows]):.1f}, of one core {rows[-1]['cpu_seconds']:.1f}")
    table = learned_table()
    print(
        f"windy grid: {table['rows']} of 100 rows visited ten times; total variation at most {table['worst']:.3f}, "
        f"on average {table['mean']:.3f}"
    )


# --- Behaviour: agents with drawn preference, weight and precision ---


def tmaze_planner(preference: Any, weight: Any) -> aif.Planner:
    model = functools.partial(tmaze.tmaze, gamma=preference, cue_accuracy=ACCURACY)
    return aif.Planner(model, objective=aif.Active(weight=weight), solver=SOLVER, max_horizon=4)


def reactivity_planner(preference: Any, weight: Any) -> aif.Planner:
    """Every control equally likely a priori: another prior would not scale with the rest."""
    model = functools.partial(reactivity_maze.reactivity_maze, scale=preference, cue_cost=1.0)
    return aif.Planner(model, objective=aif.Active(weight=weight), solver=SOLVER, max_horizon=3)


SOLVER = aif.CoordinateSolver(restarts=1, max_sweeps=30)
# Planner, belief, steps, and preference and precision of the agent in the middle. Where choices are nearly random, or
# nearly certain, they tell little: spread and precisions were chosen on the seeds 1000 to 1099 (docs/learning.md).
MAZES: dict[str, Any] = {
    "tmaze": (tmaze_planner, tmaze.initial_belief, 4, 3.0, 3.0),
    "reactivity": (reactivity_planner, reactivity_maze.initial_belief, 3, 4.0, 1.0),
}


def choose(maze: str, belief: aif.Belief, t: Any, preference: Any, weight: Any, precision: Any) -> jax.Array:
    """What an agent does: probabilities (U,)."""
    planner, _, steps, *_ = MAZES[maze]
    return aif.Choice(planner(preference, weight), belief, steps - t, precision).probs


POLICIES = {maze: functools.partial(choose, maze) for maze in MAZES}


def fit(maze: str, data: Any) -> None:
    """The population that agents are drawn from, and one of them."""
    planner, belief, _, liked, sure = MAZES[maze]
    preference = numpyro.sample("preference", dist.LogNormal(np.log(liked), SPREAD))
    weight = numpyro.sample("weight", dist.LogNormal(0.0, SPREAD))
    precision = numpyro.sample("precision", dist.LogNormal(np.log(sure), SPREAD))
    aif.behaviour("choices", planner(preference, weight), belief(), data, precision=precision)


@functools.cache
def agent_sampler(maze: str, num_warmup: int = 150, num_samples: int = 250) -> Callable[..., Any]:
    """NUTS of one agent, whose decisions (padded to 32 or 64) are arguments: compiled once for all agents."""

    def run(key: jax.Array, data: Any) -> Any:
        kernel = NUTS(functools.partial(fit, maze), dense_mass=True)  # the three correlate, only products show
        mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
        mcmc.run(key, data, extra_fields=("diverging", "num_steps"))
        return mcmc.get_samples(), mcmc.get_extra_fields()

    return jax.jit(run)


def simulated_agent(maze: str, seed: int, num_episodes: int = 20) -> tuple[dict[str, float], Any]:
    """The true numbers of an agent, and its decisions."""
    planner, belief, steps, liked, sure = MAZES[maze]
    rng = np.random.default_rng(seed)
    drawn = np.exp(rng.normal(np.log([liked, 1.0, sure]), SPREAD))
    truth = dict(zip(("preference", "weight", "precision"), map(float, drawn), strict=True))
    model = planner(1.0, 1.0).model  # perception does not depend on preferences
    data = aif.simulate(
        jax.random.key(seed),
        model,
        belief(),
        num_episodes,
        steps,
        policy=POLICIES[maze],
        numbers=tuple(jnp.asarray(value) for value in drawn),
        look=maze == "reactivity",
    )
    return truth, aif.decisions(model, belief(), data, horizon=steps, max_steps=steps)


@functools.cache
def axes(maze: str) -> tuple[np.ndarray, np.ndarray]:
    """log (precision x preference) and log (precision x weight) that are looked at, (S,) each."""
    (*_, liked, sure), half = MAZES[maze], 3.2 * np.sqrt(2) * SPREAD
    return tuple(np.linspace(middle - half, middle + half, SIDE) for middle in np.log([sure * liked, sure]))


def log_prior(maze: str) -> np.ndarray:
    """Of both products, (S, S): they share the precision."""
    first, second = (axis - axis.mean() for axis in axes(maze))
    square = (
        (first[:, None] ** 2 + second**2 - first[:, None] * second) * 2 / 3
    )  # of a covariance (2, 1; 1, 2) SPREAD^2
    return -0.5 * square / SPREAD**2


@functools.cache
def agents(maze: str, seeds: range) -> tuple[dict[int, Any], np.ndarray]:
    """All agents of a maze, each with its truth and where in the second its choices are; log p(u) of every decision.

    Equal decisions are planned once for all agents: (S, S, B, U), with a precision of one.
    """
    planner = MAZES[maze][0]
    places: dict[Any, int] = {}
    rows: list[Any] = []
    of_seed: dict[int, Any] = {}
    for seed in seeds:
        if maze_of(seed) == maze:
            truth, data = simulated_agent(maze, seed)
            made = [row for row in zip(*data.belief, data.horizon, data.counts, strict=True) if row[-1].any()]
            names = [(*((np.round(table, 5) + 0.0).tobytes() for table in row[:2]), int(row[2])) for row in made]
            for name, row in zip(names, made, strict=True):
                if name not in places:
                    places[name] = len(places)
                    rows.append(row[:3])
            of_seed[seed] = truth, data, [places[name] for name in names]
    parameter, state, horizon = (jnp.asarray(np.stack(column)) for column in zip(*rows, strict=True))

    @jax.jit
    def log_choices(points: jax.Array) -> jax.Array:
        def one(point: jax.Array) -> jax.Array:
            own = planner(*jnp.exp(point))
            choose = jax.vmap(lambda b, h: aif.Choice(own, b, h).logits)
            return jax.nn.log_softmax(choose(aif.Belief(parameter, state), horizon))

        return jax.lax.map(one, points)

    points = np.stack(np.meshgrid(*axes(maze), indexing="ij"), -1)
    return of_seed, np.stack([np.asarray(log_choices(jnp.asarray(row, jnp.float32))) for row in points])


def maze_of(seed: int) -> str:
    return "tmaze" if seed % 2 == 0 else "reactivity"


def one_agent(seed: int, seeds: range) -> dict[str, Any]:
    """The exact posterior of both products on a grid."""
    maze = maze_of(seed)
    of_seed, log_choices = agents(maze, seeds)
    truth, data, places = of_seed[seed]
    counts = data.counts[: len(places)]
    log = log_prior(maze) + np.where(counts > 0, counts * log_choices[:, :, places], 0.0).sum((2, 3))
    posterior = np.exp(log - log.max())
    posterior /= posterior.sum()
    row: dict[str, Any] = {"maze": maze, "decisions": len(places), "edge": edge(posterior)}
    for name, axis, mass in zip(
        ("preference", "weight"), axes(maze), (posterior.sum(1), posterior.sum(0)), strict=True
    ):
        true = np.log(truth["precision"] * truth[name])
        low, high = np.interp(np.array(COVERED) / 100, np.cumsum(mass) - mass / 2, axis)
        row[name] = {
            "true": float(true),
            "mean": float(mass @ axis),
            "low": float(low),
            "high": float(high),
            "covered": bool(low <= true <= high),
        }
    return row


def edge(posterior: np.ndarray) -> float:
    """The mass at the border of the grid, which should be none."""
    return float(1 - posterior[1:-1, 1:-1].sum())


def sampled_agent(seed: int) -> dict[str, Any]:
    """The same by NUTS, as for an agent with more than two unknown numbers."""
    maze = maze_of(seed)
    _, data = simulated_agent(maze, seed)
    draws, fields = agent_sampler(maze)(jax.random.key(1000 + seed), data)
    row: dict[str, Any] = {"divergences": int(fields["diverging"].sum())}
    for name in ("preference", "weight"):
        product = np.log(np.asarray(draws["precision"] * draws[name]))
        row[name] = {"mean": float(product.mean()), "effective": float(effective_sample_size(product[None]))}
    return row


def report_behaviour(rows: list[dict[str, Any]], folder: Path) -> None:
    for name in ("preference", "weight"):
        true, mean = (np.array([row[name][key] for row in rows]) for key in ("true", "mean"))
        covered = sum(row[name]["covered"] for row in rows)
        r = np.corrcoef(true, mean)[0, 1] if len(rows) > 2 else np.nan
        print(f"precision x {name}: r = {r:.3f} on a log scale; the 90 % interval covers {covered} of {len(rows)}")
        for maze in MAZES:
            own = [row["maze"] == maze for row in rows]
            if sum(own) > 2:
                print(f"  {maze}: r = {np.corrcoef(true[own], mean[own])[0, 1]:.3f} of {sum(own)} agents")
    print(f"mass at the border of the grid: {max(row['edge'] for row in rows):.4f} at most")
    draw_behaviour(rows, folder / "behaviour.png")


def report_sampled(rows: list[dict[str, Any]], sampled: list[dict[str, Any]]) -> None:
    """How far NUTS is from the grid, in standard deviations of the posterior."""
    apart = [
        abs(own[name]["mean"] - row[name]["mean"]) / (row[name]["high"] - row[name]["low"]) * 3.29
        for row, own in zip(rows, sampled, strict=False)
        for name in ("preference", "weight")
    ]
    effective = [own[name]["effective"] for own in sampled for name in ("preference", "weight")]
    print(f"NUTS, the first {len(sampled)} agents: {sum(own['divergences'] for own in sampled)} divergences; means are")
    print(
        f"  {max(apart):.2f} standard deviations from the grid's at most; effective draws {min(effective):.0f} or more"
    )


def draw_behaviour(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4))
    for axis, name in zip(axes, ("preference", "weight"), strict=True):
        for maze, colour in zip(MAZES, ("tab:blue", "tab:orange"), strict=True):
            own = [row[name] for row in rows if row["maze"] == maze]
            if own:
                true, mean, low, high = (np.array([row[key] for row in own]) for key in ("true", "mean", "low", "high"))
                error = np.maximum([mean - low, high - mean], 0)
                axis.errorbar(true, mean, error, fmt="o", ms=3, lw=0.7, color=colour, label=maze)
        limits = axis.get_xlim()
        axis.plot(limits, limits, color="grey", lw=0.8)
        axis.set(xlabel=f"true log(precision x {name})", ylabel="posterior mean, 90 % interval")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


# --- Acting: the wind is learned on the way to the goal ---

OBJECTIVES: dict[str, Any] = {"with": aif.Active(weight=1.0), "without": aif.Planning()}
STRENGTHS = 3  # the wind of a column may be 0, 1 or 2


def one_learner(seed: int, num_episodes: int = 100) -> dict[str, Any]:
    """Episodes of an agent that begins each with the belief that it learned: which of them ended at the goal."""
    model = functools.partial(windy_grid.windy_grid, strengths=STRENGTHS)
    belief = windy_grid.initial_belief(strengths=STRENGTHS)
    next_cell = windy_grid.transitions()
    row: dict[str, Any] = {}
    for name, objective in OBJECTIVES.items():
        planner = PLANNERS.setdefault(
            name, aif.Planner(model, objective=objective, solver=aif.CoordinateSolver(restarts=1), max_horizon=4)
        )
        agent = aif.Agent(planner, belief, max_steps=4, record=False)
        reached, known = [], []
        for episode in range(num_episodes):
            agent.reset(jax.random.fold_in(jax.random.key(seed), episode))
            at = windy_grid.cell(windy_grid.START)
            for _ in range(4):
                at = int(next_cell[at, agent.act(at)])
            agent.observe(at)
            agent.learn()
            reached.append(at == windy_grid.cell(windy_grid.GOAL))
            known.append(int((np.asarray(agent.belief.parameter) > 0).sum()))
        row[name] = {"reached": reached, "winds": known}
    return row


PLANNERS: dict[str, aif.Planner] = {}


def report_acting(rows: list[dict[str, Any]], folder: Path) -> None:
    for name in OBJECTIVES:
        reached = np.array([row[name]["reached"] for row in rows])
        rate, count = reached.mean(), reached.size
        low, high = wilson(int(reached.sum()), count)
        first = [int(np.argmax(each)) + 1 if each.any() else 0 for each in reached]
        print(
            f"{name} novelty about the wind: the goal in {100 * rate:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of "
            f"{count} episodes; reached first in episode {np.mean(first):.1f} on average"
        )
    draw_curve(rows, folder / "acting.png")


def wilson(successes: int, count: int, z: float = 1.96) -> tuple[float, float]:
    rate = successes / count
    centre, half = rate + z**2 / (2 * count), z * np.sqrt(rate * (1 - rate) / count + z**2 / (4 * count**2))
    return (centre - half) / (1 + z**2 / count), (centre + half) / (1 + z**2 / count)


def draw_curve(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.5))
    for name in OBJECTIVES:
        reached = np.array([row[name]["reached"] for row in rows], float).mean(0)
        axis.plot(np.arange(1, len(reached) + 1), reached, label=f"{name} novelty about the wind")
    axis.set(xlabel="episode", ylabel="share of seeds at the goal", ylim=(-0.05, 1.05), xscale="log")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


# --- Running, and going on ---


def resumed(path: Path, seeds: range, one: Callable[[int], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows of a file, and those that it lacks, each written as soon as it is there."""
    known = {row["seed"]: row for row in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
    for seed in seeds:
        if seed not in known:
            start = time.perf_counter()
            row = {"seed": seed, **one(seed)}
            row["minutes"] = (time.perf_counter() - start) / 60
            known[seed] = row
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{path.stem} {seed}: {row['minutes']:.2f} minutes", flush=True)
        yield known[seed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("world", "behaviour", "acting"))
    parser.add_argument("--count", type=int, help="how many data sets, agents or seeds; all by default")
    parser.add_argument(
        "--first", type=int, default=0, help="the first seed; settings were chosen on seeds from 1000 on"
    )
    parser.add_argument("--folder", type=Path, default=Path("results/recovery"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    most = {"world": DATA_SETS, "behaviour": AGENTS, "acting": SEEDS}[options.what]
    seeds = range(options.first, options.first + (most if options.count is None else options.count))
    one = {
        "world": one_world,
        "behaviour": functools.partial(one_agent, seeds=seeds),
        "acting": one_learner,
    }[options.what]
    rows = list(resumed(options.folder / f"{options.what}.jsonl", seeds, one))
    if options.what == "world":
        report_world(rows)
    elif options.what == "behaviour":
        report_behaviour(rows, options.folder)
        sampled = list(resumed(options.folder / "sampled.jsonl", seeds[:SAMPLED], sampled_agent))
        report_sampled(rows, sampled)
        rows += sampled
    else:
        report_acting(rows, options.folder)
    print(f"{sum(row['minutes'] for row in rows):.1f} minutes")


if __name__ == "__main__":
    main()
