"""Sophisticated Inference: the recursion against brute force over decision trees, and pymdp's search against it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from npro_aif.baselines import Search, Sophisticated, Tables, Translation, dense_tables, sophisticated, standard_efe
from npro_aif.baselines.reference import choose, entropy, information, outcomes, predict
from tests.worlds import random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

UNPRUNED = Search(  # every branch that has any probability
    max_nodes=2000,
    policy_prune_threshold=-1.0,
    observation_prune_threshold=0.0,
    entropy_stop_threshold=-1.0,
)


def tables_of(seed: int, horizon: int) -> Tables:
    random = random_world(seed)
    return dense_tables(random.model, random.belief(), horizon)


def best_reactive_plan(tables: Tables, first: int) -> float:
    """The best score over all ways to choose the second control from the first observation, one by one."""
    after = predict(tables, tables.joint, first)
    seen = list(outcomes(tables, after))
    reactions = itertools.product(range(tables.num_controls), repeat=len(seen))

    def score(reaction: tuple[int, ...]) -> float:
        total = 0.0
        for (weight, belief), control in zip(seen, reaction, strict=True):
            later = predict(tables, belief, control)
            total += weight * ((later * tables.preference[1]).sum() + information(tables, later))
        return total

    now = (after * tables.preference[0]).sum() + information(tables, after)
    return float(now + max(score(reaction) for reaction in reactions))


@pytest.mark.parametrize("seed", [1, 9, 18])
def test_the_recursion_finds_the_best_reactions(seed: int) -> None:
    tables = tables_of(seed, 2)
    expected = [best_reactive_plan(tables, u) for u in range(tables.num_controls)]
    np.testing.assert_allclose(sophisticated(tables).value, expected, atol=1e-9)


@pytest.mark.parametrize("seed", [1, 9])
def test_one_step_ahead_both_methods_are_the_same(seed: int) -> None:
    tables = tables_of(seed, 2)
    last = tables._replace(preference=tables.preference[-1:])
    np.testing.assert_allclose(sophisticated(last).value, standard_efe(last).total, atol=1e-12)


def test_reacting_is_worth_at_least_utility_of_a_plan() -> None:
    """Without information to count, what can react is never worse than any fixed plan."""
    tables = tables_of(9, 2)
    blind = tables._replace(observation={name: p * 0 + 1 / p.shape[-1] for name, p in tables.observation.items()})
    np.testing.assert_allclose(sophisticated(blind).value.max(), standard_efe(blind).utility.max(), atol=1e-9)
    seeing = sophisticated(tables._replace(preference=1e3 * tables.preference)).value.max()
    assert seeing >= 1e3 * standard_efe(tables).utility.max() - 1e-6


def test_the_parts() -> None:
    tables = tables_of(18, 2)  # two observation sites
    after = predict(tables, tables.joint, 0)
    found = list(outcomes(tables, after))
    assert sum(weight for weight, _ in found) == pytest.approx(1.0)
    np.testing.assert_allclose(sum(weight * belief for weight, belief in found), after, atol=1e-12)
    assert entropy(np.array([0.5, 0.5, 0.0])) == pytest.approx(np.log(2))
    assert choose(np.array([1.0, 1.0, 0.0]), np.inf).tolist() == [0.5, 0.5, 0.0]
    np.testing.assert_allclose(choose(np.array([1.0, 0.0]), 2.0)[0], 1 / (1 + np.exp(-2.0)))


def test_pymdps_search_without_pruning_is_the_recursion() -> None:
    random, gamma = random_world(1), 3.0
    agent = Sophisticated(
        random.model, random.belief(), 2, gamma=gamma, translation=Translation(factors="joint"), search=UNPRUNED
    )
    agent.reset()
    agent.observe({"y": 0})
    theirs = agent.scores()
    tables = dense_tables(random.model, random.belief(), 2)
    seen = tables.joint * tables.observation["y"][..., 0]
    ours = sophisticated(tables._replace(joint=seen / seen.sum()), gamma).value
    np.testing.assert_allclose(theirs - theirs.max(), ours - ours.max(), atol=2e-3)
