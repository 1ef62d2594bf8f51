"""The core without any extra: the README's programs run, DoorKey plans, and each missing package is named.

Run as a script, in an environment that has the core alone or with ``--hide`` in any other.
"""

import functools
import importlib
import importlib.abc
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HIDDEN = ("gymnasium", "minigrid", "arviz", "xarray", "h5netcdf", "matplotlib", "typer", "rich", "pymdp", "cloudpickle")


class Hide(importlib.abc.MetaPathFinder):
    """A finder that hides packages."""

    def find_spec(self, name: str, *args: Any) -> None:
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def refusal(action: Any) -> str:
    """The message of an action that lacks a package."""
    try:
        action()
    except (ImportError, SystemExit) as error:
        return str(error)
    raise AssertionError(f"{action}: found no error")


def main() -> None:
    if "--hide" in sys.argv:
        sys.meta_path.insert(0, Hide())
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", readme, re.DOTALL))
    file = Path(tempfile.mkdtemp()) / "fishing.py"  # a file, as the program's lines are asked for
    file.write_text(code)
    names: dict[str, Any] = {"__name__": "fishing"}
    exec(compile(code, str(file), "exec"), names)

    import jax

    import npro_aif as aif
    from npro_aif.envs import ReactivityMaze, TMaze
    from npro_aif.models import doorkey

    model = functools.partial(doorkey.doorkey, size=5)
    planner = aif.Planner(model, objective=aif.Planning(), solver=aif.CoordinateSolver(), max_horizon=3)
    print("DoorKey:", doorkey.CONTROLS[int(planner(jax.random.key(0), doorkey.initial_belief(5)).best_control())])
    for env in (TMaze(), ReactivityMaze()):
        observation, _ = env.reset(seed=0)
        assert env.observation_space.contains(observation), (env, observation)
        env.step(0)
    refusals = [
        refusal(lambda: importlib.import_module("npro_aif.envs").DoorKey),
        refusal(lambda: names["plan"].to_arviz()),
        refusal(lambda: importlib.import_module("npro_aif.analysis.terms_figure")),
        refusal(lambda: importlib.import_module("npro_aif.cli")),
    ]
    for line in refusals:
        print(line)
    extras = [re.search(r"pip install 'npro-aif\[(\w+)\]'", line) for line in refusals]
    assert [match and match[1] for match in extras] == ["envs", "arviz", "figures", "cli"], refusals


if __name__ == "__main__":
    main()
