"""Files in the `.POMDP` format: what they say, and what is refused with its line and column."""

from __future__ import annotations

import numpy as np
import pytest

import npro_aif as aif
from npro_aif.pomdp.parser import parse

PREAMBLE = """# two states
discount: 0.9
values: reward
states: here there
actions: stay go
observations: dark light
"""
BODY = """
T: stay identity
T: go
0 1
1 0
O: *
0.8 0.2
0.1 0.9
R: * : * : * : * -1
"""


def test_wildcards_and_later_sections_write_over_earlier_ones() -> None:
    text = (
        PREAMBLE + BODY + "T: go : here\n0.5 0.5\nO: go : * : light 1 O: go : * : dark 0 R: go : there : here : light 3"
    )
    problem = parse(text)
    assert problem.states == ("here", "there")
    np.testing.assert_allclose(problem.transition, [[[1, 0], [0, 1]], [[0.5, 0.5], [1, 0]]])
    np.testing.assert_allclose(problem.emission, [[[0.8, 0.2], [0.1, 0.9]], [[0, 1], [0, 1]]])
    assert [problem.reward(1, 1, 0, y) for y in (0, 1)] == [-1, 3]
    assert [table.shape for table in problem.rewards] == [(2, 1, 1), (2, 2, 2)]
    means = problem.mean_rewards()  # by (x, u, x')
    np.testing.assert_allclose(means, [[[-1, -1], [-1, -1]], [[-1, -1], [3, -1]]])


def test_the_mean_over_observations() -> None:
    problem = parse(PREAMBLE + BODY + "R: stay : here : here\n10 0\nR: go : there\n1 2\n3 4")
    np.testing.assert_allclose(problem.mean_rewards()[0, 0], [8, -1])
    np.testing.assert_allclose(problem.mean_rewards()[1, 1], [0.8 + 0.4, 0.3 + 3.6])


def test_costs_are_negative_rewards() -> None:
    problem = parse(PREAMBLE.replace("values: reward", "values: cost") + BODY)
    assert problem.reward(0, 0, 0, 0) == 1


STARTS = {
    "": [1 / 3, 1 / 3, 1 / 3],
    "start: uniform": [1 / 3, 1 / 3, 1 / 3],
    "start: b": [0, 1, 0],
    "start: 2": [0, 0, 1],
    "start: 0.5 0.25 0.25": [0.5, 0.25, 0.25],
    "start: 1 0 0": [1, 0, 0],
    "start include: a 2": [0.5, 0, 0.5],
    "start exclude: a": [0, 0.5, 0.5],
}


@pytest.mark.parametrize("start", STARTS)
def test_the_start(start: str) -> None:
    text = f"discount: .5 values: reward states: a b c actions: 1 observations: 2\n{start}\nT: 0 : * reset O: * uniform"
    problem = parse(text)
    np.testing.assert_allclose(problem.start, STARTS[start])
    np.testing.assert_allclose(problem.transition[0], [STARTS[start]] * 3)


def test_a_file_without_observations_shows_its_states() -> None:
    text = "discount: 0.5 values: reward states: 2 actions: 2 T: * uniform\nR: 0 : 0 : 1 7 R: 1 : 1\n3 4"
    problem = parse(text)
    assert not problem.is_hidden
    np.testing.assert_allclose(problem.mean_rewards(), [[[0, 7], [0, 0]], [[0, 0], [3, 4]]])


def test_numbers_of_every_kind() -> None:
    text = PREAMBLE.replace("0.9", "+9e-1") + BODY + "R: go : here : there : dark -.5e+1"
    assert parse(text).reward(0, 1, 1, 0) == -5


MISTAKES = {  # name: (what is written over, with what, line, column, message)
    "a missing probability": ("0 1\n1 0", "0 1\n1", 12, 1, "found 'O', expected number 4 of 4 (T: go has 2×2 numbers)"),
    "a row of 0.9": ("0.8 0.2", "0.7 0.2", 13, 1, "found that O: stay : here sums to 0.9, expected 1"),
    "one entry of a row": ("T: stay identity", "T: stay : * : here .5", 8, 20, "T: stay : here sums to 0.5"),
    "an unknown state": (
        "R: * : *",
        "R: * : nowhere",
        15,
        8,
        "found 'nowhere', expected one of the 2 states: here, there",
    ),
    "a state beyond": ("R: * : *", "R: * : 2", 15, 8, "found '2', expected one of the 2 states"),
    "a number too many": ("0 1\n1 0", "0 1 0\n1 0", 11, 3, "found one number more, 0, expected the next section"),
    "no row": ("T: stay identity", "", 15, 20, "found no probabilities for T: stay : here"),
    "more than one": ("0.8 0.2", "1.8 0.2", 13, 1, "found a probability of 1.8"),
    "an unknown first section": ("T: stay", "X: stay", 8, 1, "found 'X', expected a section: discount:, "),
    "an unknown section": ("T: go", "X: go", 9, 1, "found 'X', expected a section: discount:, "),
    "an unknown word": ("identity", "equal", 8, 9, "found 'equal', expected 2×2 numbers or uniform or identity"),
    "a strange sign": ("identity", "= identity", 8, 9, "found '=', expected a word, a number"),
    "a wrong number": ("0.8 0.2", "0.8a 0.2", 13, 1, "found '0.8a', expected a word, a number"),
    "a name twice": ("here there", "here here", 4, 14, "found 'here' twice among the states"),
    "a discount beyond one": ("0.9", "1.9", 2, 11, "found a discount of 1.9, expected one from 0 to 1"),
    "neither reward nor cost": ("values: reward", "values: money", 3, 9, "found 'money', expected reward or cost"),
    "a section again": ("states:", "discount: 1 states:", 4, 1, "found discount again (it is in line 2)"),
    "no actions": ("actions: stay go", "", 8, 1, "found T before 'actions:', expected it after"),
    "no discount": ("discount: 0.9", "", 15, 20, "found no 'discount:', expected one"),
    "too large a block": ("R: * : * : * : *", "R: *", 15, 6, "expected ': <state>' (R is too large)"),
    "a point too many": ("0.8 0.2", "0.8.1 0.2", 13, 1, "found '0.8.1'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_refused_with_their_place(mistake: str) -> None:
    old, new, line, column, message = MISTAKES[mistake]
    text = PREAMBLE + BODY.rstrip()
    assert old in text
    with pytest.raises(aif.PomdpError) as caught:
        parse(text.replace(old, new, 1), "my.POMDP")
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert str(caught.value).startswith(f"my.POMDP, line {line}, column {column}: ")
