"""The house: which room may import which, no import cycle, and a package that has everything in it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import npro_aif

ROOT = Path(__file__).parents[1]
FOLDERS = {"npro_aif": ROOT / "npro_aif", "npro_aif.models": ROOT / "models", "npro_aif.guides": ROOT / "guides"}

# A room imports from the rooms above it, and never the other way; those in one line may import each other.
FLOORS = (
    {"_jax", "_numpyro", "errors", "extras", "numerics", "shards", "sizes", "pickling"},
    {"language", "belief", "distributions", "sites", "states"},
    {"tables", "program", "pomdp"},
    {"inference"},
    {"guides"},
    {"solvers"},
    {"planning"},
    {"acting"},
    {"learning"},
    {""},  # the public names
    {"models"},
    {"analysis", "envs", "baselines"},
    {"experiments"},
    {"cli"},
)
EXTRAS = {"arviz", "xarray", "matplotlib", "minigrid", "pymdp", "cloudpickle"}  # what a module may be imported late for


class Import(NamedTuple):
    """One import of one module by another."""

    source: str
    target: str  # as it is written, perhaps with a name in it
    late: bool  # inside a function


def modules() -> dict[str, Path]:
    """Every module of the package by its full name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[Import]:
    """What a module imports, at its top, under TYPE_CHECKING and inside functions."""

    def visit(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.Import):
                yield from (Import(name, alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{name}: a relative import"
                for alias in child.names:
                    whole = f"{child.module}.{alias.name}"
                    yield Import(name, whole if whole in MODULES else str(child.module), late)
            yield from visit(child, inside)

    return visit(ast.parse(MODULES[name].read_text()), late=False)


OWN = [found for name in MODULES for found in imports(name) if found.target in MODULES]


def floor(module: str) -> int:
    room = module.removeprefix("npro_aif").lstrip(".").split(".")[0]
    return next(i for i, rooms in enumerate(FLOORS) if room in rooms)


def test_every_module_is_in_a_room() -> None:
    for name in MODULES:
        floor(name)


def test_a_room_imports_only_from_the_rooms_above() -> None:
    wrong = [f"{i.source} imports {i.target}" for i in OWN if floor(i.target) > floor(i.source)]
    assert not wrong


def test_there_is_no_import_cycle_late_imports_included() -> None:
    graph = {name: {i.target for i in OWN if i.source == name} for name in MODULES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join((*path[path.index(name) :], name))
        if name not in done:
            for target in graph[name]:
                visit(target, (*path, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


def test_only_the_command_line_and_extras_are_imported_late() -> None:
    def needs_extra(target: str) -> bool:
        return any(i.target.split(".")[0] in EXTRAS for i in imports(target) if not i.late)

    late = [i for i in OWN if i.late and i.source != "npro_aif.cli" and not needs_extra(i.target)]
    assert not late


def test_models_use_public_names_only() -> None:
    models = "npro_aif.models."
    used = {i.target for i in OWN if i.source.startswith(models) and not i.target.startswith(models)}
    assert used == {"npro_aif"}


# --- What an import costs -------------------------------------------------------------------------------------------

LOADED = """
import importlib, sys, npro_aif as aif
def loaded(): return {name for name in sys.modules if name.split(".")[0] in ("npro_aif", "jax", "numpyro", "optax")}
print(*sorted(loaded()))
aif.Planner, aif.Agent, aif.run_episodes, aif.Active, aif.CoordinateSolver
print(*sorted(loaded()))
assert set(dir(aif)) >= set(aif.__all__)
from npro_aif import *
assert all(value is getattr(aif, name) for name, value in globals().items() if name in aif.__all__)
for name in ("doorkey", "free_energy", "reactivity", "terms", "tmaze"):
    importlib.import_module(f"npro_aif.analysis.{name}_figure")
print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""


def test_an_import_loads_what_is_used_only() -> None:
    """No figure needs a display: none imports pyplot, so that no backend is chosen."""
    command = [sys.executable, "-W", "ignore", "-c", LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *lines, figures = done.stdout.splitlines()
    assert figures == "True False"
    first, acting = (set(line.split()) for line in lines)
    assert first == {"npro_aif"}
    assert {"jax", "npro_aif.planning.planner", "npro_aif.acting.run"} <= acting
    rooms = {name.split(".")[1] for name in acting if name.startswith("npro_aif.")}
    assert not rooms & {"learning", "pomdp", "models", "envs", "analysis", "baselines", "experiments", "cli"}


def test_public_names_are_where_type_checkers_see_them() -> None:
    tree = ast.parse(MODULES["npro_aif"].read_text())
    seen = {
        alias.name: f"{node.module}.{alias.name}" if alias.name == "guides" else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("npro_aif")
        for alias in node.names
    }
    assert seen == {name: f"npro_aif.{module}" for name, module in npro_aif._PLACES.items()}
    assert sorted(seen) == sorted(npro_aif.__all__)
    with pytest.raises(AttributeError, match="module 'npro_aif' has no attribute 'planer'"):
        _ = npro_aif.planer


# What JAX and NumPyro do not document, or document as theirs to change.
PRIVATE = re.compile(
    r"^(jax\.(_src|core|extend|interpreters)|jaxlib|numpyro\.primitives|numpyro\.util|numpyro\.infer\.util)(\.|$)"
    r"|^numpyro\.distributions\.(util|distribution)(\.|$)|^(jax|numpyro|optax|funsor)\.(.*\.)?_"
)
ADAPTERS = {"npro_aif._jax", "npro_aif._numpyro"}


def outer_names(tree: ast.AST) -> Iterator[str]:
    """The dotted names of a module that begin at an import: imported themselves, or as attributes of what is."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in known:
            yield ".".join([known[node.id], *reversed(parts)])


def test_private_names_are_used_in_two_modules_only() -> None:
    used = {name: set(filter(PRIVATE.search, outer_names(ast.parse(p.read_text())))) for name, p in MODULES.items()}
    assert {name: names for name, names in used.items() if names and name not in ADAPTERS} == {}
    assert all(used[name] for name in ADAPTERS)


def test_every_room_says_its_idea() -> None:
    for name, path in MODULES.items():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{name} has no docstring"


def packages() -> list[str]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


def test_the_list_of_packages_is_that_of_the_folders() -> None:
    assert sorted(packages()) == sorted(name for name, path in MODULES.items() if path.name == "__init__.py")


def test_tests_mirror_the_rooms() -> None:
    rooms = {name.split(".")[1] for name in packages() if "." in name}
    assert rooms == {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[0] not in "._"}


IMPORT_ALL = """
import importlib, pathlib, pkgutil, sys, warnings
warnings.simplefilter("ignore")
import npro_aif
assert pathlib.Path(npro_aif.__file__).is_relative_to(sys.argv[1]), npro_aif.__file__
names = [module.name for module in pkgutil.walk_packages(npro_aif.__path__, "npro_aif.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.slow  # `make types` installs and checks a copy each time
def test_every_module_comes_out_of_the_wheel(tmp_path: Path) -> None:
    """The wheel is built as a release is, from a copy, unpacked, and imported from there, not from the repository."""
    source = tmp_path / "source"
    for folder in FOLDERS.values():
        shutil.copytree(folder, source / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    assert (unpacked / "npro_aif" / "py.typed").exists()
    command = [sys.executable, "-c", IMPORT_ALL, str(unpacked)]
    result = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(unpacked), "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) == len(MODULES) - 1  # all but npro_aif itself


def test_the_core_needs_no_extra() -> None:
    script = [sys.executable, str(ROOT / "tests" / "core_alone.py"), "--hide"]
    quick = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # as the README's programs were compiled before
    done = subprocess.run(script, env=quick, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("South\nNorth\nsign\nwest\n")
