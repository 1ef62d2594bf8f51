"""Names and labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpyro
import numpyro.distributions as dist

import npro_aif as aif
from benchmarks.odd.parts import (
    CONTROL,
    LIKED,
    SENSOR,
    Program,
    odd,
    plain,
)


def names() -> Iterator[tuple[str, Program]]:
    base = "goal"
    for name in (
        "t",
        "y_t",
        "y_0",
        "y_1",
        "x_1",
        "x_t",
        "u_0",
        "theta_0",
        "",
        "ein Name",
        "ü",
        "a/b",
        "y__CF",
        "0",
        "u",
        "x",
    ):
        yield (
            f"an observation '{name}'",
            plain(
                observation=lambda th, x, u, new, t, name=name: aif.observation(
                    name, dist.Categorical(probs=SENSOR[th, new])
                )
            ),
        )
    for name in ("x", "u", "y", "theta", "t", "goal_t", "y_t", ""):
        yield (
            f"a preference '{name}'",
            plain(preference=lambda th, x, u, new, y, t, h, name=name: aif.preference(name, LIKED[new, th])),
        )
    for name in ("x_0", "x", "u", "y_1", "x_t"):
        yield (
            f"a parameter '{name}'",
            plain(theta=lambda b, name=name: aif.parameter(name, dist.Categorical(probs=b.parameter))),
        )
    for name in (base, "goal_t", "goal_1", "bonus_t", "bonus"):
        yield (
            f"a factor '{name}'",
            plain(preference=lambda th, x, u, new, y, t, h, name=name: numpyro.factor(name, LIKED[new, th])),
        )
    yield (
        "a factor named by the time",
        plain(preference=lambda th, x, u, new, y, t, h: numpyro.factor(f"bonus_{t}", LIKED[new, th])),
    )
    yield "a factor before the rollout", odd(begin=lambda s, b: numpyro.factor("bonus_t", 1.0))
    yield "a preference before the rollout", odd(begin=lambda s, b: aif.preference("bonus", 1.0))
    yield (
        "an unmarked sample",
        plain(carry=lambda x, u, new, y: (numpyro.sample("w", dist.Categorical(probs=CONTROL[new])), new)[1]),
    )
    yield (
        "a number as a name",
        plain(
            observation=lambda th, x, u, new, t: aif.observation(7, dist.Categorical(probs=SENSOR[th, new]))  # type: ignore[arg-type]
        ),
    )
    for labels in (("a", "a"), ("a",), ("a", "b"), "ab", (1, 2)):
        yield (
            f"labels {labels!r}",
            plain(
                observation=lambda th, x, u, new, t, labels=labels: aif.observation(
                    "y", dist.Categorical(probs=SENSOR[th, new]), labels=labels
                )
            ),
        )
