"""Optional packages: an error that says which extra installs the missing one.

Planning needs only NumPyro, JAX, Optax, funsor and NumPy; ``pip install 'npro-aif[all]'`` installs everything else.
"""

from __future__ import annotations

EXTRAS = {  # package: the extra that installs it
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
    """An error that names the extra of the missing package; the error itself if no extra has that package.

    :param what: what needs the package; it is the subject of the error's sentence.

    >>> missing(ImportError(name="minigrid.core"), "DoorKey")
    ImportError("DoorKey needs minigrid, which is not installed: pip install 'npro-aif[envs]'")
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    return ImportError(
        f"{what} needs {package}, which is not installed: pip install 'npro-aif[{EXTRAS[package]}]'", name=package
    )
