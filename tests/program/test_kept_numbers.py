"""Numbers of programs that are kept in a folder: the same in another process, and never those of another program."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import npro_aif as aif
from npro_aif.errors import ModelError
from npro_aif.program import evaluated, kept, program
from npro_aif.program.jaxprs import content_name, lasting_name
from tests.broken import KEY, LIKING, SENSOR, UNIFORM, Slice, planner, refuses, with_site

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(kept.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is computed from now on; no program is remembered."""
    traces: list[Any] = []
    compute = evaluated.compute

    def count(trace: Any, signature: Any) -> Any:
        traces.append(trace)
        return compute(trace, signature)

    monkeypatch.setattr(evaluated, "compute", count)
    monkeypatch.setattr(program, "_known", type(program._known)())
    return traces


def read(model: Any, horizon: int = 3) -> Any:
    """A program that is read as by another process, which remembers none."""
    program._known.clear()
    return aif.Filter(model, UNIFORM).program if horizon == 1 else program.program_of(model, UNIFORM, horizon)


def test_numbers_are_computed_once_and_the_same(folder: Path, computed: list[Any]) -> None:
    model = Slice().program()
    first, second = read(model), read(model)
    assert len(computed) == 1
    assert len(list(folder.iterdir())) == 1
    for own, other in zip(jax.tree.leaves(first.fixed), jax.tree.leaves(second.fixed), strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(own), np.asarray(other))
    plans = [aif.Planner(model, objective=aif.Planning())(KEY, UNIFORM, horizon=2) for _ in range(2)]
    np.testing.assert_array_equal(*(plan.policy for plan in plans))


def test_another_table_horizon_or_precision_is_another_file(folder: Path, computed: list[Any], x64: None) -> None:
    def liking(table: Any) -> Any:
        return with_site("preference", lambda x, u, new, y, t, horizon: aif.preference("goal", table[new]))

    for model, horizon in ((liking(LIKING), 3), (liking(2 * LIKING), 3), (liking(LIKING), 2)):
        read(model, horizon)
    with jax.enable_x64(False):
        read(liking(LIKING))
    assert len(computed) == len(list(folder.iterdir())) == 4


def test_another_version_is_another_file(folder: Path, computed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    read(Slice().program())
    monkeypatch.setattr(kept, "_code", lambda: "of another version")
    read(Slice().program())
    assert len(computed) == 2


@pytest.mark.parametrize("damage", [b"", b"PK no such thing", np.lib.format.MAGIC_PREFIX, None])
def test_a_damaged_file_is_named_and_made_again(folder: Path, computed: list[Any], damage: bytes | None) -> None:
    model = Slice().program()
    read(model)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-40] if damage is None else damage)
    with pytest.warns(UserWarning, match=f"{path.name}: found no numbers that can be read"):
        read(model)
    read(model)
    assert len(computed) == 2


def test_what_is_wrong_is_refused_every_time(folder: Path) -> None:
    wrong = with_site(
        "observation", lambda theta, x, u, new: aif.observation("y", dist.Categorical(probs=SENSOR[:, 0] + 0 * theta))
    )
    for _ in range(2):
        refuses(planner(wrong), ModelError, "site 'y'")
    assert not list(folder.iterdir())


def test_without_a_folder_that_can_be_written_to_nothing_is_kept(
    tmp_path: Path, computed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for place in (str(blocked / "folder"), ""):
        monkeypatch.setenv(kept.FOLDER, place)
        read(Slice().program())
    assert len(computed) == 2


def test_files_that_were_not_used_for_long_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for horizon in (1, 2, 3):
        program.new_program(Slice().program(), UNIFORM, horizon)
    sizes = sorted(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setattr(kept, "MOST_KEPT_BYTES", sizes[-1] + sizes[-2])
    program.new_program(Slice().program(), UNIFORM, 4)
    assert 1 <= len(list(folder.iterdir())) < 4


def test_whole_numbers_are_kept_to_the_last_digit() -> None:
    for values, dtype in (([-1, 2**53 + 1], np.int64), ([0, 255], np.int64), ([-3, 300], np.int32), ([0, 7], np.int8)):
        table = kept._narrow(np.array(values, dtype))
        assert table.dtype.kind in "iu"
        assert table.tolist() == values


OTHER = """
from npro_aif.program import evaluated
from tests.broken import UNIFORM, Slice
from npro_aif.program.program import program_of
evaluated.compute = None  # it cannot be computed here
print(program_of(Slice().program(), UNIFORM, 3).fixed.tables.state.num_times)
"""


def test_another_process_finds_them(folder: Path) -> None:
    program.new_program(Slice().program(), UNIFORM, 3)
    done = subprocess.run([sys.executable, "-W", "error", "-c", OTHER], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


# --- Programs that look alike ---


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x - 1.0, lambda x: 1.0 - x),
        (lambda x: jnp.where(x > 2, x, 0.0), lambda x: jnp.where(x > 2, 0.0, x)),
        (lambda x: jax.jit(lambda y: y / 2.0)(x), lambda x: jax.jit(lambda y: 2.0 / y)(x)),
        (lambda x: jax.lax.pad(x, 0.0, ((1, 11, 0),)), lambda x: jax.lax.pad(x, 0.0, ((11, 1, 0),))),
        (lambda x: x[1:3], lambda x: x[2:4]),
        (lambda x: x * jnp.float32(2), lambda x: x * jnp.float32(3)),
        (lambda x: x + jnp.arange(5.0), lambda x: x + jnp.arange(5.0)[::-1]),
        (lambda x: jnp.stack([x.sum(), x.max()]), lambda x: jnp.stack([x.max(), x.sum()])),
        (lambda x: x > 0, lambda x: x < 0),
    ],
)
def test_different_equations_have_different_names(one: Any, other: Any) -> None:
    names = [lasting_name(jax.make_jaxpr(function)(jnp.ones(5))) for function in (one, one, other)]
    assert names[0] == names[1] != names[2]


def test_a_number_before_and_after_is_not_the_same(folder: Path) -> None:
    """1 − x is not x − 1, in one process and by the files of another."""
    models = [with_site("preference", functools.partial(minus_one, sign)) for sign in (1, -1)]
    for reader in (read, read, functools.partial(program.program_of, belief=UNIFORM, horizon=3)):
        one, other = (reader(model).fixed.tables.preference["goal"].ravel() for model in models)
        np.testing.assert_allclose(one, -other)
        np.testing.assert_allclose(one, LIKING - 1.5)


def minus_one(sign: int, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
    liked = LIKING[new]
    aif.preference("goal", liked - 1.5 if sign > 0 else 1.5 - liked)


# --- Programs that call Python ---


class Look:
    """A table behind a method."""

    def __init__(self, table: Any):
        self.table = table

    def at(self, x: Any) -> Any:
        return self.table[np.asarray(x)]


def closure(table: Any) -> Any:
    return lambda x: table[np.asarray(x)]


def pair(table: Any) -> Any:
    tables = (table, 1.0)
    return lambda x: tables[0][np.asarray(x)]


def keyword(table: Any) -> Any:
    return lambda x, *, table=table: table[np.asarray(x)]


def unfinished(table: Any) -> Any:
    function = lambda x: table[np.asarray(x)] if True else later  # noqa: E731
    if table is None:
        later = None
    return function


def nested(table: Any) -> Any:
    """A function that holds another one, a list and an array, all of them made anew."""
    rows = [np.array(row) for row in table]

    def look(place: Any) -> Any:
        return np.stack(rows)[np.asarray(place)]

    return lambda x: look(x)


WAYS = {f.__name__: f for f in (closure, pair, keyword, nested, unfinished)} | {
    "method": lambda table: Look(table).at,
    "partial": lambda table: functools.partial(lambda table, x: table[np.asarray(x)], table),
}


ANEW = ("closure", "pair", "keyword", "nested", "partial")


def called(table: Any, way: str = "closure") -> Any:
    """A model whose preference is looked up by Python."""
    kept_function = WAYS[way](table)

    def preference(x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        shape = jax.ShapeDtypeStruct(jnp.shape(new), jnp.float32)
        # That of a closure is made anew at every run, as by a lambda inside of a step.
        function = WAYS[way](table) if way in ANEW else kept_function
        aif.preference("goal", jax.pure_callback(function, shape, new, vmap_method="expand_dims"))

    return with_site("preference", preference)


@pytest.mark.parametrize("way", WAYS)
def test_programs_that_differ_in_a_python_function_alone_are_told_apart(way: str) -> None:
    """Their equations are equal but for the function that is called."""
    models = [called(3 * np.eye(3, dtype=np.float32)[goal], way) for goal in (0, 2)]
    best = [aif.Planner(m, objective=aif.Planning())(KEY, UNIFORM, horizon=2).state[-1].argmax() for m in models]
    assert best == [0, 2]


def test_python_functions_are_called_in_every_process(folder: Path) -> None:
    """No numbers are kept of a program that calls one."""
    tables = [3 * np.eye(3, dtype=np.float32)[goal] for goal in range(3)]
    for table in tables:
        plans = [
            aif.Planner(model, objective=aif.Planning())(KEY, UNIFORM, horizon=2)
            for model in (called(table), with_site("preference", functools.partial(liked, table)))
        ]
        np.testing.assert_allclose(*(plan.policy for plan in plans), atol=1e-6)
        np.testing.assert_allclose(*(plan.free_energy[-1] for plan in plans), rtol=1e-6)
    assert len(list(folder.iterdir())) == len(tables)  # of the models without such a function


def liked(table: Any, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
    aif.preference("goal", jnp.asarray(table)[new])


@pytest.mark.parametrize("way", ANEW)
def test_a_function_that_is_called_is_the_same_from_run_to_run(way: str) -> None:
    """So a planner does not think that the program has changed."""
    model = called(np.arange(3, dtype=np.float32), way)
    program.new_program(model, UNIFORM, 2).check_unchanged()
    plans = planner(model, objective=aif.Planning())
    plans(KEY, UNIFORM, horizon=2)
    narrow = UNIFORM._replace(parameter=jnp.array([1.0, 0.0]))
    assert np.isfinite(plans(KEY, narrow, horizon=2).free_energy[-1])


def test_how_a_function_takes_its_arguments_counts() -> None:
    def look(x: Any, left: Any = None, right: Any = None) -> Any:
        return 3 * (np.asarray(x) == (0 if right is None else 2)).astype(np.float32)

    def preference(side: str, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        shape = jax.ShapeDtypeStruct(jnp.shape(new), jnp.float32)
        aif.preference("goal", jax.pure_callback(look, shape, new, **{side: new}, vmap_method="expand_dims"))

    models = [with_site("preference", functools.partial(preference, side)) for side in ("left", "right")]
    best = [aif.Planner(m, objective=aif.Planning())(KEY, UNIFORM, horizon=2).state[-1].argmax() for m in models]
    assert best == [0, 2]


def scaled(rate: float, forward: bool) -> Any:
    """The identity, whose derivative is said to be ``rate``."""
    if forward:
        same = jax.custom_jvp(lambda x: x)
        same.defjvp(lambda primals, tangents: (primals[0], rate * tangents[0]))
        return same
    same = jax.custom_vjp(lambda x: x)  # type: ignore[assignment]
    same.defvjp(lambda x: (x, None), lambda _, change: (rate * change,))  # type: ignore[attr-defined]
    return same


@pytest.mark.parametrize("forward", [True, False])
def test_rules_for_derivatives_tell_programs_apart(forward: bool) -> None:
    """Two programs that differ only in them have the same plans and other gradients."""

    def slope(rate: float) -> float:
        def cost(table: Any) -> Any:
            model = with_site("preference", functools.partial(liked_by, scaled(rate, forward)(table)))
            return aif.Planner(model, objective=aif.Planning())(KEY, UNIFORM, horizon=2).free_energy[-1]

        return float(jax.grad(cost)(LIKING).sum())

    one, ten = slope(1.0), slope(10.0)
    assert one == pytest.approx(-2, abs=1e-4)  # two steps, at each of which some state is liked
    assert ten == pytest.approx(10 * one, rel=1e-4)

    def inside(rate: float) -> Any:
        rule = scaled(rate, forward)
        return with_site("preference", lambda x, u, new, y, t, h: aif.preference("goal", rule(LIKING)[new]))

    names = [program.program_of(inside(rate), UNIFORM, 2) for rate in (1.0, 1.0, 10.0)]
    assert names[0] is names[1]
    assert names[1] is not names[2]

    def twice(rate: float) -> str:
        """The rule stands by itself, and inside of a function that is compiled and has another rule around it."""
        rule = scaled(rate, forward)
        outer = jax.custom_jvp(jax.jit(lambda x: rule(x) * 2))
        outer.defjvp(lambda primals, tangents: (outer(*primals), 2 * tangents[0]))
        return content_name(jax.make_jaxpr(lambda x: outer(x) + jax.jit(lambda y: rule(y) * 2)(x))(LIKING))

    assert twice(1.0) == twice(1.0) != twice(10.0)


def liked_by(table: Any, x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
    aif.preference("goal", table[new])
