"""A plan as a decision tree: what is seen and remembered, what is then believed, and which control is done.

There is a branch for everything that the policy tells apart, visible states and memories. The probabilities and beliefs
of a branch belong to the one path that leads to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.inference.temporal import TemporalPosterior
from npro_aif.program.signature import Site, marginalize, split
from npro_aif.tables.world import World

LEAST = 1e-6  # branches with less probability are left out
SHOWN = 0.005  # smaller probabilities of a belief or a policy are not shown


class Branch(NamedTuple):
    """One situation of the plan, and what follows."""

    step: int  # the number of controls done before
    seen: dict[str, str]  # by site that the policy sees, the label of its value
    probability: float  # of reaching the branch
    control: dict[str, float]  # by label, q(u | what is seen); empty at the end of the plan
    believed: dict[str, dict[str, float]]  # by unseen site, its probabilities by label
    branches: tuple[Branch, ...]

    def lines(self, changed: dict[str, str] | None = None) -> list[tuple[str, ...]]:
        """The tree as rows: what is seen (only what changed), probability, control, belief."""
        shown = {k: v for k, v in self.seen.items() if changed is None or changed.get(k) != v} or self.seen
        text = ", ".join(f"{name}={label}" for name, label in shown.items()) or "start"
        line = text, f"{self.probability:.3f}", _mixture(self.control), _beliefs(self.believed)
        rows: list[tuple[str, ...]] = [line]
        for i, branch in enumerate(self.branches):
            last = i == len(self.branches) - 1
            first, *rest = branch.lines(self.seen)
            rows.append((("└─ " if last else "├─ ") + first[0], *first[1:]))
            rows += [(("   " if last else "│  ") + row[0], *row[1:]) for row in rest]
        return rows


class Tree(NamedTuple):
    """A plan's branches from the present on."""

    branches: tuple[Branch, ...]

    def __repr__(self) -> str:
        rows = [("what is seen", "prob.", "then do", "believed"), *(row for b in self.branches for row in b.lines())]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _mixture(control: dict[str, float]) -> str:
    likely = {label: p for label, p in control.items() if p >= SHOWN}
    return " | ".join(label if p > 1 - SHOWN else f"{label} {p:.2f}" for label, p in likely.items())


def _beliefs(believed: dict[str, dict[str, float]]) -> str:
    parts = []
    for name, probs in believed.items():
        label, p = max(probs.items(), key=lambda item: item[1])
        parts.append(f"{name}={label} {p:.2f}")
    return ", ".join(parts)


def make_tree(world: World, posterior: TemporalPosterior, depth: int) -> Tree:
    """The first ``depth`` steps of a plan as a tree."""
    if not hasattr(posterior, "slice"):
        raise ValueError(f"tree: found a {type(posterior).__name__}, expected the plan of a TemporalGuide")
    steps = min(int(world.horizon), depth)
    grow = _Growing(world, posterior, steps)
    return Tree(grow.branches(0, posterior.start(world)))


class _Growing:
    def __init__(self, world: World, posterior: TemporalPosterior, depth: int):
        self.world, self.posterior, self.depth = world, posterior, depth
        self.signature = world.signature
        self.rows = np.asarray(world.loop.by_row(jnp.arange(world.loop.num_classes(world.initial.shape[1]))))

    def branches(self, t: int, mass: Any) -> tuple[Branch, ...]:
        """A branch for every class that has mass (S, Θ) at time t."""
        mass = np.asarray(mass)
        total = np.bincount(self.rows, mass.sum(1), minlength=self.rows.max() + 1)
        return tuple(
            self.branch(t, int(place), np.where((self.rows == place)[:, None], mass, 0.0))
            for place in np.argsort(-total, kind="stable")
            if total[place] > LEAST
        )

    def branch(self, t: int, place: int, mass: np.ndarray) -> Branch:
        signature, world = self.signature, self.world
        values = split(place, signature.policy)
        seen = {site.name: site.label(int(values[site.name])) for site in signature.policy}
        control: dict[str, float] = {}
        later: tuple[Branch, ...] = ()
        if t < self.depth:
            probs = np.exp(np.asarray(self.posterior.control[t][place]))
            control = {label_of(signature.control, u): float(p) for u, p in enumerate(probs)}
            later = self.branches(t + 1, _after(world, self.posterior, t, mass))
        return Branch(t, seen, float(mass.sum()), control, self.believed(mass), later)

    def believed(self, mass: np.ndarray) -> dict[str, dict[str, float]]:
        """What is believed of hidden states and parameters."""
        signature = self.signature
        table = mass.reshape(signature.num_states, signature.num_memories, -1).sum(1) / mass.sum()
        beliefs = {}
        for site in signature.state:
            if site.hidden:
                beliefs[site.name] = by_label(site, marginalize(table.sum(1), signature.state, site.name))
        parameter = np.zeros(signature.num_parameters)
        np.add.at(parameter, np.asarray(self.world.theta), table.sum(0))
        for site in signature.parameter:
            beliefs[site.name] = by_label(site, marginalize(parameter, signature.parameter, site.name))
        return beliefs


@jax.jit
def _after(world: World, posterior: TemporalPosterior, t: Array, mass: Array) -> Array:
    """The mass (S, Θ) one step later."""
    return posterior.slice(world, t, mass).flow.after


def by_label(site: Site, probs: Any) -> dict[str, float]:
    return {site.label(i): float(p) for i, p in enumerate(np.asarray(probs))}


def label_of(sites: tuple[Site, ...], flat: int) -> str:
    values = split(flat, sites)
    return ", ".join(site.label(int(values[site.name])) for site in sites)
