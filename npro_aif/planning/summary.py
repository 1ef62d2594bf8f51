"""A plan in a few lines: the likely controls, F and its terms, and whether the solver settled."""

from __future__ import annotations

from typing import Any

import numpy as np

from npro_aif.numerics import is_concrete
from npro_aif.planning.origin import model_name
from npro_aif.program.signature import Site, split

SHOWN_STEPS = 4
SHOWN = 0.005  # smaller probabilities are not shown
ROUNDING = 5e-5  # smaller terms are not shown


def summarize(plan: Any) -> str:
    """The summary that ``repr(plan)`` returns."""
    name = model_name(plan.origin.program.model)
    if not is_concrete((plan.control, plan.free_energy)):
        return f"Plan({name}, traced)"
    if np.ndim(plan.control) != 2:
        settled = np.asarray(plan.info.converged)
        return f"Plans({name}, a batch of {len(plan.control)}, {int(settled.sum())} of them settled)"
    control, sites = np.asarray(plan.control), plan.signature.control
    lines = [f"Plan of {len(control)} step{'s' * (len(control) > 1)} ({name})"]
    lines += [f"  step {t + 1}: {_mixture(row, sites)}" for t, row in enumerate(control[:SHOWN_STEPS])]
    if len(control) > SHOWN_STEPS:
        lines.append(f"  … {len(control) - SHOWN_STEPS} more")
    terms = {term.replace("_", " "): float(value) for term, value in plan.terms.items()}
    shown = ", ".join(f"{term} {value:.4f}" for term, value in terms.items() if abs(value) > ROUNDING)
    lines.append(f"  F = {float(plan.free_energy[-1]):.4f}{' = ' if shown else ''}{shown}")
    return "\n".join([*lines, f"  {plan.info.explain()}"])


def _mixture(probs: np.ndarray, sites: tuple[Site, ...]) -> str:
    """The likely controls, the likeliest first."""
    likely = [u for u in np.argsort(-probs, kind="stable") if probs[u] >= SHOWN]
    return " | ".join(f"{_label(int(u), sites)} {probs[u]:.2f}" for u in likely)


def _label(flat: int, sites: tuple[Site, ...]) -> str:
    values = split(flat, sites)
    return ", ".join(f"{site.name}={site.label(int(values[site.name]))}" for site in sites)
