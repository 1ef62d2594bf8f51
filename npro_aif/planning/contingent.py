"""Plans with perfect recall as trees and as draws, from the world's tables and the graph that a search found."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.planning.tree import LEAST, Branch, Tree, by_label, label_of
from npro_aif.program.signature import Signature, marginalize, split
from npro_aif.solvers.search.branching import Branching
from npro_aif.solvers.search.contingency import END, Contingency
from npro_aif.solvers.search.hypotheses import read_steps
from npro_aif.tables.world import World


class _Steps:
    """A world step by step, over hypotheses (row of θ, x)."""

    def __init__(self, world: World):
        self.world: World = jax.tree.map(np.asarray, world)
        self.signature: Signature = world.signature
        self.num_states = self.signature.num_states
        self.horizon = int(world.horizon)
        kernels = self.world.observation | self.world.sensor
        self.sites = [site for site in self.signature.observation + self.signature.sensor]
        self.certain = [not kernels[site.name].learnable for site in self.sites]
        self._steps: dict[int, Branching] = {}

    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """The hypotheses of the present belief, and their probabilities."""
        joint = np.exp(self.world.parameter.astype(np.float64))[:, None] * np.exp(self.world.initial.astype(np.float64))
        joint = joint.ravel() / joint.sum()
        support = np.flatnonzero(joint)
        return support, joint[support]

    def at(self, t: int) -> Branching:
        if t not in self._steps:
            rows = np.arange(len(self.world.parameter))
            self._steps[t] = Branching(read_steps(self.world, [t], rows, 0)[0])
        return self._steps[t]

    def seen(self, t: int, hypothesis: int, control: int, uncertain: tuple[int, ...]) -> tuple[int, ...]:
        """The outcome of every site on arrival, given the outcomes of the uncertain ones."""
        shown = self.at(t).step.shown[hypothesis]
        certain, chance = iter(shown[control if len(shown) > 1 else 0].tolist()), iter(uncertain)
        return tuple(int(next(certain if fixed else chance)) for fixed in self.certain)


def contingent_tree(world: World, contingency: Contingency, depth: int) -> Tree:
    """The first ``depth`` steps of a plan as a tree, with a branch for each observation."""
    steps = _Steps(world)
    support, weight = steps.start()
    depth = min(depth, steps.horizon)
    branches = [
        _branch(steps, contingency, 0, depth, place, {}, share, support, weight) for share, place in contingency.starts
    ]
    return Tree(tuple(branches))


def _branch(
    steps: _Steps,
    contingency: Contingency,
    t: int,
    depth: int,
    place: int,
    seen: dict[str, str],
    probability: float,
    support: np.ndarray,
    weight: np.ndarray,
) -> Branch:
    believed = _believed(steps, support, weight)
    if t == depth or place == END:
        return Branch(t, seen, probability, {}, believed, ())
    control, layer = contingency.controls[place], steps.at(t)
    parts = layer.branches(support, weight, control)
    later = []
    for i in np.argsort(-parts.prob, kind="stable"):
        members = slice(parts.start[i], parts.start[i + 1])
        if parts.prob[i] * probability <= LEAST:
            continue
        values = steps.seen(t, int(parts.support[members][0]), control, layer.outcomes(int(parts.outcome[i]))[1])
        labels = {site.name: site.label(value) for site, value in zip(steps.sites, values, strict=True)}
        then = contingency.follow(place, values)
        later.append(
            _branch(
                steps,
                contingency,
                t + 1,
                depth,
                then,
                labels,
                probability * float(parts.prob[i]),
                parts.support[members],
                parts.weight[members],
            )
        )
    doing = {label_of(steps.signature.control, control): 1.0}
    return Branch(t, seen, probability, doing, believed, tuple(later))


def _believed(steps: _Steps, support: np.ndarray, weight: np.ndarray) -> dict[str, dict[str, float]]:
    """The belief about every state and parameter, by site and label."""
    signature = steps.signature
    state, parameter = np.zeros(signature.num_states), np.zeros(signature.num_parameters)
    np.add.at(state, support % steps.num_states, weight)
    np.add.at(parameter, steps.world.theta[support // steps.num_states], weight)
    tables = [(signature.state, state), (signature.parameter, parameter)]
    return {
        site.name: by_label(site, marginalize(table, sites, site.name)) for sites, table in tables for site in sites
    }


def contingent_draws(world: World, contingency: Contingency, key: Array, num_samples: int) -> dict[str, Array]:
    """Draws by site, stacked over time."""
    steps = _Steps(world)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    support, weight = steps.start()
    shares = np.array([share for share, _ in contingency.starts])
    firsts = rng.choice(len(shares), num_samples, p=shares / shares.sum())
    hypotheses = rng.choice(support, num_samples, p=weight)
    rows = [
        _draw(steps, contingency, contingency.starts[f][1], int(h), rng)
        for f, h in zip(firsts, hypotheses, strict=True)
    ]
    return {name: jnp.asarray(np.stack([row[name] for row in rows])) for name in rows[0]}


def _draw(
    steps: _Steps, contingency: Contingency, place: int, hypothesis: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """One random history under the plan."""
    signature, num_states, loop = steps.signature, steps.num_states, steps.world.loop
    row, x = divmod(hypothesis, num_states)
    states, controls, sights = [x], [], []
    memories = [int(loop.first_memory(np.asarray(x)))]  # type: ignore[arg-type]
    for t in range(steps.horizon):
        layer, control = steps.at(t), contingency.controls[place]
        step = layer.step
        chance = None if step.chance is None else step.chance[hypothesis, control]
        outcome = 0 if chance is None else rng.choice(len(chance), p=chance / chance.sum())
        hypothesis = int(step.to[hypothesis, control, outcome])
        view = control if step.label.shape[1] > 1 else 0
        uncertain = tuple(int(rng.choice(table.shape[-1], p=table[hypothesis, view])) for table in step.sight)
        seen = steps.seen(t, hypothesis, control, uncertain)
        states.append(hypothesis % num_states)
        controls.append(control)
        sights.append(seen)
        values: Any = {site.name: (value, site.size) for site, value in zip(steps.sites, seen, strict=True)}
        content = loop.at(t).next_memory(np.asarray(memories[-1]), np.asarray(states[-1]), control, values)  # type: ignore[arg-type]
        memories.append(int(content))
        place = contingency.follow(place, seen)
    draws = split(int(steps.world.theta[row]), signature.parameter)
    draws |= split(np.array(states), signature.state) | split(np.array(controls), signature.control)
    draws |= {site.name: np.array([seen[i] for seen in sights]) for i, site in enumerate(signature.observation)}
    return {name: np.asarray(v) for name, v in (draws | split(np.array(memories), signature.memory)).items()}
