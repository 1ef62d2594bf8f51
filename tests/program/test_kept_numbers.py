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


@pytest.mark.parametrize("damage", [b"", b"PK no such thing", None])
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


# --- Programs that call Python ---


def called(table: Any) -> Any:
    """A model whose preference is looked up by Python, in a function that is made anew at every run."""

    def preference(x: Any, u: Any, new: Any, y: Any, t: Any, horizon: Any) -> None:
        shape = jax.ShapeDtypeStruct(jnp.shape(new), jnp.float32)
        value = jax.pure_callback(lambda x: table[np.asarray(x)], shape, new, vmap_method="expand_dims")
        aif.preference("goal", value)

    return with_site("preference", preference)


def test_programs_that_differ_in_a_python_function_alone_are_told_apart(folder: Path) -> None:
    """Their equations are equal but for the function that is called."""
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


def test_a_function_that_is_called_is_the_same_from_run_to_run() -> None:
    """So a planner does not think that the program has changed."""
    table = np.arange(3, dtype=np.float32)
    plans = planner(called(table), objective=aif.Planning())
    plans(KEY, UNIFORM, horizon=2)
    narrow = UNIFORM._replace(parameter=jnp.array([1.0, 0.0]))
    assert np.isfinite(plans(KEY, narrow, horizon=2).free_energy[-1])
