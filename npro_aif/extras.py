"""Optional packages: what needs one says which extra brings it.

Planning needs NumPyro, JAX, Optax, funsor and NumPy only; ``pip install 'npro-aif[all]'`` brings everything else.
"""

from __future__ import annotations

EXTRAS = {  # by package, the extra that brings it
    "gymnasium": "envs",
    "minigrid": "envs",
    "arviz": "arviz",
    "xarray": "arviz",
    "matplotlib": "figures",
    "typer": "cli",
    "rich": "cli",
    "distributed": "cluster",
}


def missing(error: ImportError, what: str) -> ImportError:
    """An error that names the extra with the package that is not there; the error itself if no extra has it.

    :param what: what it is needed for, the subject of the sentence.

    >>> missing(ImportError(name="minigrid.core"), "DoorKey")
    ImportError("DoorKey needs minigrid, which is not installed: pip install 'npro-aif[envs]'")
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    return ImportError(
        f"{what} needs {package}, which is not installed: pip install 'npro-aif[{EXTRAS[package]}]'", name=package
    )
