"""Fixtures: float64 for the tests that ask for it; fast compilation, except for tests that run for long."""

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator

# XLA reads this when its first computation runs. Without the fusion emitters the small programs of the tests
# compile in half the time (measured with quick_compile below: 1.1 s in place of 2.5 s for one random world), and in one
# piece a tenth faster than split for many threads, as the workers keep all cores busy.
os.environ["XLA_FLAGS"] = " ".join(
    (os.environ.get("XLA_FLAGS", ""), "--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")
).strip()

# Code that one test compiled serves the others of this run, in every worker, which takes a fifth of the time. The first
# process to come here is the one that starts the workers, so the folder belongs to it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="npro-aif-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)

# What programs give is computed by every test that asks for it; those of the command line do not keep it in the user's
# cache (empty: nowhere).
os.environ["NPRO_AIF_PROGRAMS"] = ""

import jax
import pytest

# JAX keeps millions of small traced objects that are almost never garbage, so collect garbage seldom.
gc.set_threshold(200_000, 50, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Compile without optimisations, also in docstrings: it takes a third of the time where little is run.

    Tests that are marked ``slow`` or ``optimised`` are excepted, as their time goes into running.
    """
    marks = {mark.name for mark in item.iter_markers()}
    jax.config.update("jax_disable_most_optimizations", not marks & {"slow", "optimised"})


@pytest.fixture
def x64() -> Iterator[None]:
    """Run one test in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def quick_compile() -> Iterator[None]:
    """Compile without optimisations in the long run too, where a test's time goes into compiling."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
