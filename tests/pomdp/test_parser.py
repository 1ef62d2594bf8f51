"""Files in the `.POMDP` format: what they say, and what is refused with its line and column."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize("start", ["start: 0", "start: 1", "start: 1.0", "start: here", "start: uniform", ""])
def test_the_start_where_there_is_one_state(start: str) -> None:
    """A number alone is the state's, as everywhere in the format; 1, which no state has, is its probability."""
    names = "here" if "here" in start else "1"
    problem = parse(f"discount: .5 values: reward states: {names} actions: 1\n{start}\nT: 0 identity")
    assert problem.start.tolist() == [1]


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
    "a reward beyond floating point": ("-1", "1e400", 15, 18, "found 1e400, expected a number from -1e+30 to 1e+30"),
    "a reward beyond float32": ("-1", "-1e39", 15, 18, "found -1e39, expected a number from -1e+30 to 1e+30"),
    "a probability beyond floating point": ("0.8 0.2", "0.8 1e400", 13, 5, "found a probability of 1e400"),
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


def test_a_start_that_is_no_state_and_no_belief() -> None:
    with pytest.raises(aif.PomdpError, match=r"line 2, column 8: found that start sums to 0, expected 1"):
        parse("discount: .5 values: reward states: 1 actions: 1\nstart: 0.0\nT: 0 identity")


UNREADABLE = {  # what a file holds: line, column and byte of the complaint
    b"\xff\xfe\x80": (1, 1, "0xff"),
    "discount: 1\n# un échantillon".encode("latin-1"): (2, 6, "0xe9"),
    "discount: 1\r\n\r\nvalues: é".encode("utf-8-sig")[:-1]: (3, 9, "0xc3"),
    "discount: 1".encode("utf-16"): (1, 1, "0xff"),
}


@pytest.mark.parametrize("data", UNREADABLE)
def test_files_in_another_encoding_are_refused_with_their_place(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "my.POMDP"
    path.write_bytes(data)
    line, column, byte = UNREADABLE[data]
    with pytest.raises(aif.PomdpError, match=f"found the byte {byte}, expected text in UTF-8") as caught:
        aif.read_pomdp(path)
    assert str(caught.value).startswith(f"my.POMDP, line {line}, column {column}: ")


def test_the_mark_of_utf_8_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "my.POMDP"
    path.write_bytes((PREAMBLE + "# à Chloé" + BODY).encode("utf-8-sig"))
    _, belief = aif.read_pomdp(path)
    assert belief.state.tolist() == [[0.5, 0.5]]
    path.write_bytes(b"\xef\xbb\xbfnonsense")
    with pytest.raises(aif.PomdpError, match=r"my\.POMDP, line 1, column 1: found 'nonsense'"):
        aif.read_pomdp(path)
