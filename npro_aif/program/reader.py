"""Reading a program: one handler runs a model with chosen site values and records what it meets.

With scalars it finds the sites and their sizes; with arrays on separate axes it yields whole tables in one
go. Every complaint about a program is raised in this room, and names the site.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions.distribution import Unit
from numpyro.primitives import Messenger

from npro_aif.belief import ROW_SUM_TOLERANCE, Belief
from npro_aif.errors import ModelError
from npro_aif.language import (
    ROLE,
    SLICE,
    DeterministicCategorical,
    Role,
    SparseCategorical,
    check_horizon,
    clock,
    sensing,
)
from npro_aif.numerics import is_concrete, safe_log
from npro_aif.tables.sparse import merge_entries

RUNNING = threading.RLock()  # held while a program runs: NumPyro has one stack of handlers for all threads
PRESENT = "0"  # the time index of the initial state's sites


class Draw(NamedTuple):
    """One draw: a site, or several sites from a joint table."""

    kind: str
    names: tuple[str, ...]  # the user's site names
    sizes: tuple[int, ...]
    labels: tuple[tuple[str, ...] | None, ...]
    initial: bool  # drawn before the rollout
    log: Any  # (…, product of sizes) log-probabilities, or None
    index: Any  # (…) the certain outcome, with log-probabilities the outcomes (…, K) that these are of, or None
    faults: tuple[Array, Array]  # () the worst row sum, and the least entry (of probabilities)
    hidden: bool | None = None  # of a state: what the program says of it


class Factor(NamedTuple):
    """One preference."""

    name: str
    log: Array


class Memory(NamedTuple):
    """One content of a memory."""

    name: str
    size: int
    labels: tuple[str, ...] | None
    initial: bool  # set before the rollout
    value: Any  # (…) the content


class Reading(NamedTuple):
    """Everything met in one run of a program."""

    draws: list[Draw]
    factors: list[Factor]
    carries: list[tuple[Any, Any]]  # the rollout's carry before and after the step
    order: list[str]  # the names of draws, memories and factors as they came
    memories: list[Memory]


class Reader(Messenger):
    """Runs the program with site values from ``value(kind, full_name, size)`` and records each site.

    The rollout's step is called once, with ``t`` for its time; the program was called with ``horizon``.
    """

    def __init__(self, value: Callable[[str, str, int], Any], t: Any, horizon: Any, reading: Reading):
        super().__init__()
        self.value = value
        self.t = t
        self.horizon = horizon
        self.reading = reading
        self._seen: set[str] = set()
        self._stepping = False  # whether the rollout's step is running

    def process_message(self, msg: dict[str, Any]) -> None:
        msg["stop"] = msg["type"] != "param"  # what is read here is no business of the handlers around it
        match msg["type"]:
            case "sample":
                self._sample(msg)
            case "joint_draw":
                msg["value"] = self._joint(*msg["args"])
            case "rollout":
                msg["value"] = self._rollout(*msg["args"])
            case "memory":
                msg["value"] = self._memory(*msg["args"])
            case "plate":
                raise ModelError(
                    f"plate '{msg['name']}': plates are not part of a planning model, expected only the "
                    "roles of npro_aif (write several sites instead)"
                )

    def _sample(self, msg: dict[str, Any]) -> None:
        name, fn = msg["name"], msg["fn"]
        self._unique(name)
        if isinstance(fn, Unit):
            self._factor(name, jnp.asarray(fn.log_factor))
            return
        if not fn.support.is_discrete:
            raise ModelError(
                f"site '{name}': found {type(fn).__name__}, a continuous distribution, expected a discrete "
                "one (Categorical, DeterministicCategorical, SparseCategorical)"
            )
        role: Role | None = msg["infer"].get(ROLE)
        if role is None:
            raise ModelError(
                f"site '{name}': found an unmarked discrete site, expected a role: aif.parameter, aif.state, "
                "aif.control or aif.observation"
            )
        size = num_categories(name, fn)
        msg["value"] = self.value(role.kind, name, size)
        initial = role.kind == "state" and is_initial(name)
        few = isinstance(fn, SparseCategorical) and role.kind == "state" and not initial
        log, index, faults = sparse_rows(fn) if few else rows(fn)
        draw = Draw(role.kind, (role.site,), (size,), (role.labels,), initial, log, index, faults, role.hidden)
        self._record(draw)

    def _factor(self, name: str, log: Array) -> None:
        suffix = f"_{SLICE}"
        if not name.endswith(suffix):
            raise ModelError(f"factor '{name}': found outside aif.preference, expected aif.preference in the step")
        self.reading.factors.append(Factor(name.removesuffix(suffix), log))
        self.reading.order.append(name.removesuffix(suffix))

    def _joint(self, kind: str, sizes: Mapping[str, int], probs: Any, labels: Mapping[str, Any]) -> dict[str, Any]:
        names = tuple(sizes)
        probs = jnp.asarray(probs)
        all_labels = tuple(tuple(labels[n]) if n in labels else None for n in names)
        initial = kind == "state"
        self._record(
            Draw(kind, names, tuple(sizes.values()), all_labels, initial, safe_log(probs), None, row_faults(probs))
        )
        values = {}
        for name, size in sizes.items():
            full_name = name if kind == "parameter" else f"{name}_{PRESENT}"
            self._unique(full_name)
            values[name] = self.value(kind, full_name, size)
        return values

    def _rollout(self, step: Callable[[Any, Any], Any], carry: Any, horizon: Any) -> Any:
        check_horizon(horizon)
        if is_concrete(horizon) and not is_concrete(self.horizon):
            raise ModelError(
                f"rollout: found {horizon} steps whatever the model's horizon is, expected its argument 'horizon'"
            )
        if self.reading.carries:
            raise ModelError("rollout: found a second rollout, expected exactly one in a model")
        self._stepping = True
        with clock(SLICE):
            after = step(carry, self.t)
        self._stepping = False
        if after is None:
            raise ModelError("rollout: found that the step returns None, expected what the next step needs (return x)")
        self.reading.carries.append((carry, after))
        return after

    def _memory(self, name: str, value: Any, size: int, labels: tuple[str, ...] | None) -> Any:
        initial = not self._stepping
        full_name = f"{name}_{PRESENT if initial else SLICE}"
        self._unique(full_name)
        if labels is not None and len(labels) != size:
            raise ModelError(f"memory '{name}': found {len(labels)} labels, expected {size} (one for each content)")
        self.reading.memories.append(Memory(name, size, labels, initial, jnp.asarray(value, jnp.int32)))
        self.reading.order.append(name)
        return self.value("memory", full_name, size)

    def _record(self, draw: Draw) -> None:
        for name, size, labels in zip(draw.names, draw.sizes, draw.labels, strict=True):
            if labels is not None and len(labels) != size:
                raise ModelError(f"site '{name}': found {len(labels)} labels, expected {size} (one a category)")
        self.reading.draws.append(draw)
        self.reading.order.append(draw.names[0])

    def _unique(self, name: str) -> None:
        if name in self._seen:
            raise ModelError(f"site '{name}': found twice, expected a name of its own for each site")
        self._seen.add(name)


def is_initial(full_name: str) -> bool:
    return full_name.endswith(f"_{PRESENT}")


def read(
    model: Callable[..., Any],
    belief: Belief,
    horizon: Any,
    value: Callable[[str, str, int], Any],
    t: Any,
    reading: Reading | None = None,
) -> Reading:
    """Run ``model`` once with the given values for its sites.

    :param reading: where to record; a caller that holds it knows how far a failing program came.
    """
    reading = Reading([], [], [], [], []) if reading is None else reading
    # NumPyro's own validation would speak before the site is known; check_rows finds the same and names it.
    with RUNNING, sensing(), Reader(value, t, horizon, reading), numpyro.validation_enabled(False):
        model(belief, horizon=horizon)
    if not reading.carries:
        raise ModelError("model: found no aif.rollout, expected exactly one")
    return reading


def num_categories(name: str, fn: dist.Distribution) -> int:
    """How many outcomes a discrete distribution has; they must be 0, 1, …"""
    if isinstance(fn, DeterministicCategorical | SparseCategorical):
        return fn.num_categories
    if isinstance(fn, dist.CategoricalProbs):
        return int(jnp.shape(fn.probs)[-1])
    if isinstance(fn, dist.CategoricalLogits):
        return int(jnp.shape(fn.logits)[-1])
    if not fn.has_enumerate_support:
        raise ModelError(f"site '{name}': found {type(fn).__name__}, expected a distribution with finite support")
    first = getattr(fn.support, "lower_bound", 0)
    if is_concrete(first) and np.any(np.asarray(first) != 0):
        raise ModelError(
            f"site '{name}': found {type(fn).__name__}, whose outcomes start at {np.ravel(first)[0]}, expected "
            "outcomes 0, 1, 2, …"
        )
    return int(fn.enumerate_support(expand=False).shape[0])


def rows(fn: dist.Distribution) -> tuple[Array | None, Array | None, tuple[Array, Array]]:
    """The distribution as log-rows (…, K), or as the index of its certain outcome (…), and what is wrong with it."""
    sound = jnp.ones(()), jnp.zeros(())
    if isinstance(fn, DeterministicCategorical):
        return None, jnp.asarray(fn.index, jnp.int32), sound
    if isinstance(fn, dist.CategoricalProbs):
        probs = jnp.asarray(fn.probs)
        return safe_log(probs), None, row_faults(probs)
    if isinstance(fn, dist.CategoricalLogits):
        return jax.nn.log_softmax(fn.logits, axis=-1), None, sound
    return jnp.moveaxis(fn.log_prob(fn.enumerate_support(expand=False)), 0, -1), None, sound


def sparse_rows(fn: SparseCategorical) -> tuple[Array, Array, tuple[Array, Array]]:
    """Log-probabilities (…, K), the outcomes (…, K) that they are of, each there once, and what is wrong with them."""
    index, log = merge_entries(jnp.asarray(fn.index, jnp.int32), fn.probs)
    return log, index, row_faults(fn.probs)


def row_faults(probs: Array) -> tuple[Array, Array]:
    """The row sum that is furthest from one, and the least entry."""
    totals = probs.sum(-1).ravel()
    return totals[jnp.argmax(jnp.abs(totals - 1))], probs.min()


def check_rows(reading: Reading) -> None:
    """Refuse what is no distribution, in a reading whose values are known.

    Probabilities that are negative or do not sum to one, and certain outcomes that are out of range.
    """
    for draw in reading.draws:
        total, least = (float(fault) for fault in draw.faults)
        name = ", ".join(draw.names)
        if draw.index is not None:
            low, high, last = int(draw.index.min()), int(draw.index.max()), draw.sizes[0] - 1
            if low < 0 or high > last:
                raise ModelError(f"site '{name}': found an index that runs over {low}..{high}, expected 0..{last}")
        if not abs(total - 1) <= ROW_SUM_TOLERANCE:
            raise ModelError(f"site '{name}': found a probability row that sums to {total:.6g}, expected 1")
        if least < 0:
            raise ModelError(f"site '{name}': found a negative probability {least:.6g}, expected at least 0")
    for memory in reading.memories:
        low, high = int(memory.value.min()), int(memory.value.max())
        if low < 0 or high >= memory.size:
            raise ModelError(
                f"memory '{memory.name}': found contents that run over {low}..{high}, expected 0..{memory.size - 1} "
                f"(its size is {memory.size})"
            )


def check_preferences(reading: Reading) -> None:
    """Refuse preferences that are infinite or not a number (in a reading whose values are known)."""
    for factor in reading.factors:
        table = np.asarray(factor.log)
        if not np.isfinite(table).all():
            raise ModelError(
                f"preference '{factor.name}': found {table[~np.isfinite(table)].flat[0]}, expected finite numbers (use "
                "a large negative one for what must not be)"
            )
