"""A planner in words: its settings, the sizes of its programs, and how its decisions are computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from npro_aif.planning.functions import Functions
from npro_aif.sizes import SMALL, TOGETHER_FROM, is_small

COUNTS = {"one": 1, f"2 to {TOGETHER_FROM - 1}": 2, f"{TOGETHER_FROM} or more": TOGETHER_FROM}  # of decisions


def describe(settings: dict[str, Any], functions: Iterable[Functions], max_parameters: int | None) -> str:
    """The settings by name, and the sizes and ways of every program that was read."""
    lines = [f"{name:<10} {value}" for name, value in settings.items()]
    programs = [line for function in functions for line in ("", *_sizes(function, max_parameters))]
    return "\n".join(lines + (programs or ["sizes      not known before a program is read: describe(belief)"]))


def _sizes(functions: Functions, max_parameters: int | None) -> list[str]:
    signature, shape = functions.program.signature, functions.shape(None)
    entries = f"{shape[0] * shape[1] * shape[2]:,}"
    thinned = "" if max_parameters is None else f" (planned with at most {max_parameters})"
    size = f"{'small' if is_small(*shape) else 'large'} (small is below {SMALL:,})"
    return [
        f"horizon    {'up to ' if functions.guide.any_horizon else ''}{functions.num_steps}, compiled once",
        f"world      {shape[0]} parameters{thinned} × {shape[1]} states × {shape[2]} controls = {entries}: {size}",
        f"observed   {', '.join(site.name for site in signature.observation + signature.sensor) or 'nothing'}",
        *(f"decisions  {name}: {_way(functions, count)}" for name, count in COUNTS.items()),
    ]


def _way(functions: Functions, count: int) -> str:
    return functions.way([None] * count, fusable=True).value
