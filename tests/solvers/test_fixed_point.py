"""Where sweeps of F_active settle, q reproduces itself: each factor is the best one at the costs c and d that q makes.

The epistemic costs are computed from q by the oracle and held; the cost of each value of a factor is then the
expectation of everything else in F over the enumerated joint. Nothing is shared with the solver.
"""

import numpy as np
import pytest

import npro_aif as aif
from npro_aif.planning.plan import Plan
from tests import oracle
from tests.solvers.test_sweeps import numbers, solve
from tests.worlds import RandomWorld, TemporalTables, random_world

pytestmark = pytest.mark.usefixtures("quick_compile")

FEW, MANY = (0, 9), range(30)
OBJECTIVES = (aif.Active(), aif.Active(planning_correction=False), aif.Active(normalize=True, weight=0.7))
MAX_SWEEPS = 200
TOLERANCE = 1e-5


def values_of(
    random: RandomWorld, q: TemporalTables, objective: aif.Active
) -> list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Of each learned factor: its variable, its rows, the cost of each value, and whether the cost is defined.

    F is E_q of a sum of logarithms and costs, so that given the other factors a row r(v) of a factor counts
    Σ_v r(v) (log r(v) + cost(v)), or with the planning correction and for controls Σ_v r(v) cost(v). Only rows that q
    visits are returned. c and d are taken as 0 where q has no mass; such a cost is not `defined`, nor is one that such
    a state or control may follow.
    """
    joint = oracle.temporal_joint(random.tables, *q)
    # Without the log normalisers, which are the same for all values.
    held = oracle.epistemic_costs(joint, "temporal", weight=objective.weight)
    costs: list[oracle.Factor] = []
    without_mass: list[oracle.Factor] = []
    for t, pair in enumerate(held, start=1):
        for name, table in zip((f"x{t}", f"u{t}"), pair, strict=True):
            costs.append((table, (name,)))
            without_mass.append((joint.marginal(name) == 0, (name,)))
    costs += [(-table, n) for table, n in oracle.model_factors(random.tables)]
    costs += [(-table, n) for table, n in oracle.preference_factors(random.tables)]
    factors = oracle.temporal_factors(q.parameter, random.tables.initial, q.control, q.state, q.observations)
    lost = np.asarray(sum(oracle.spread(factor, joint.axes) for factor in without_mass)) > 0

    found = []
    for factor in factors:
        table, names = factor
        if names[-1] == "x0":
            continue  # not a factor of q's own
        others = [other for other in factors if other is not factor]
        rest = oracle.product(others, joint.axes)
        logs = [
            (np.log(np.where(table > 0, table, 1.0)), n)
            for table, n in others
            if not (objective.correction and n[-1].startswith("u"))
        ]
        everything = np.asarray(sum(oracle.spread(term, joint.axes) for term in costs + logs))

        def expected(f: np.ndarray, rest: oracle.Joint = rest, names: tuple[str, ...] = names) -> np.ndarray:
            return oracle.Joint(joint.axes, oracle.expectation(rest.table, f)).marginal(*names)

        rows = joint.marginal(*names[:-1]) > 0
        cost = oracle.divide(expected(everything)[rows], expected(np.ones(()))[rows])
        found.append((names[-1], table[rows], cost, expected(lost)[rows] == 0))
    return found


def assert_fixed_point(random: RandomWorld, plan: Plan, objective: aif.Active) -> None:
    for name, rows, cost, defined in values_of(random, numbers(random, plan), objective):
        note = random.description, name
        if name.startswith("u") and objective.correction:  # linear in the policy: only what costs least, and ties
            lowest = np.where(defined | (rows > 0), cost, np.inf).min(-1, keepdims=True)
            tied = cost <= lowest + 2 * TOLERANCE * np.maximum(1.0, np.abs(lowest))
            assert (tied | (rows == 0)).all(), note
        else:
            weights = np.exp(cost.min(-1, keepdims=True) - cost)
            best = weights / weights.sum(-1, keepdims=True)
            np.testing.assert_allclose(rows, best, atol=TOLERANCE, err_msg=str(note))


def settles(seed: int, objective: aif.Active) -> bool:
    """Whether sweeps settle; checks that q is a fixed point if so, and that the solver says so if not."""
    random = random_world(seed)
    plan = solve(random, objective, max_sweeps=MAX_SWEEPS)
    history = np.asarray(plan.free_energy)
    if plan.info.converged:
        assert plan.info.cycle == 0
        assert_fixed_point(random, plan, objective)
    else:
        assert plan.info.cycle >= 2, random.description
        assert history[-1] <= history.min() + 1e-9, random.description  # the best posterior met
    return bool(plan.info.converged)


def test_sweeps_of_active_settle_where_q_reproduces_itself(x64: None) -> None:
    settled = [settles(seed, aif.Active()) for seed in FEW]
    print(f"sweeps do not converge in {settled.count(False)} of {len(settled)} worlds")
    assert any(settled)


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_sweeps_of_active_settle_where_q_reproduces_itself_everywhere(objective: aif.Active, x64: None) -> None:
    settled = {seed: settles(seed, objective) for seed in MANY}
    cycling = [seed for seed, converged in settled.items() if not converged]
    print(f"{objective}: sweeps do not converge in {len(cycling)} of {len(settled)} worlds {cycling}")
    assert len(cycling) < len(settled) / 2
