"""Fixtures: float64 where a test asks for it, and only there."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def x64() -> Iterator[None]:
    """Run one test in float64."""
    with jax.enable_x64(True):
        yield
