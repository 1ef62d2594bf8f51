"""Reading a program: one handler runs a model with chosen site values and records its sites.

With scalars it finds the sites and their sizes; with arrays on separate axes it yields whole tables in one run.
Effects of other handlers, around the model or in it, are honoured or refused here, with the site's name.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from npro_aif._numpyro import Messenger, is_innermost
from npro_aif.belief import Belief
from npro_aif.distributions import SparseCategorical
from npro_aif.errors import ModelError
from npro_aif.language import check_horizon
from npro_aif.numerics import is_concrete
from npro_aif.program.reading import PRESENT, Draw, Factor, Memory, Reading, empty_reading
from npro_aif.program.refusals import FOREIGN, check_labels, hidden_site, refuse_changes, unmarked_site
from npro_aif.program.rows import (
    check_distribution,
    fix_outcome,
    num_categories,
    probability_rows,
    rows,
    sparse_rows,
)
from npro_aif.sites import ROLE, SLICE, Role, clock, read_by, sensing, unused_key

RUNNING = threading.RLock()  # held while a program runs: NumPyro has one stack of handlers for all threads


class Reader(Messenger):
    """Runs the program with site values from ``value(kind, full_name, size)`` and records each site.

    The rollout's step is called once, with ``t`` for its time; the program was called with ``horizon``.

    :param times: the times at which to check the effect of handlers on a site of the step, which they know by its name.
    """

    def __init__(
        self,
        value: Callable[[str, str, int], Any],
        t: Any,
        horizon: Any,
        reading: Reading,
        times: range = range(0),
    ):
        super().__init__()
        self.value = value
        self.t = t
        self.horizon = horizon
        self.reading = reading
        self.times = times
        self._seen: set[str] = set()
        self._stepping = False  # whether the rollout's step is running
        self._expected: str | None = None  # the site that is being drawn
        self._probing = False  # whether messages are sent only to see what handlers do to them
        self._probe: dict[str, Any] | None = None  # the last such message, as it arrived

    # --- What the language tells ---

    def expect(self, full_name: str) -> None:
        self._expected = full_name

    def arrived(self, full_name: str) -> None:
        if full_name not in self._seen:
            raise hidden_site(full_name)
        self._expected = None

    # --- What NumPyro tells ---

    def process_message(self, msg: dict[str, Any]) -> None:
        msg["stop"] = True  # handlers further out do not see what is read here
        match msg["type"]:
            case "sample" if self._probing:
                self._probe = dict(msg)
                msg["value"] = jnp.asarray(0)
            case "sample":
                self._sample(msg)
            case "joint_draw":
                msg["value"] = self._joint(*msg["args"])
            case "rollout":
                msg["value"] = self._rollout(*msg["args"])
            case "memory":
                msg["value"] = self._memory(*msg["args"])
            case "param" if msg["value"] is None:
                raise ModelError(
                    f"param '{msg['name']}': found numpyro.param in the model, expected a number; give it one by "
                    f"numpyro.handlers.substitute(model, data={{'{msg['name']}': …}}), or make it an aif.parameter"
                )
            case "prng_key":
                raise ModelError(
                    "model: found numpyro.prng_key, chance outside of its sites, expected a site with a role"
                )
            case other if other in FOREIGN:
                name = msg.get("name", other)
                raise ModelError(f"{other} '{name}': is not part of a planning model, expected {FOREIGN[other]}")

    def _sample(self, msg: dict[str, Any]) -> None:
        name, fn = msg["name"], msg["fn"]
        role: Role | None = msg["infer"].get(ROLE)
        if role is None:
            if not isinstance(fn, dist.Unit) and msg["value"] is not None and not fn.support.is_discrete:
                self._given(name)  # a continuous site with a known value (obs=, condition, substitute)
                return
            raise unmarked_site(name, fn)
        expected = self._expected or name
        refuse_changes(msg, expected)
        self._unique(name)
        if role.kind == "preference":
            if not isinstance(fn, dist.Unit):
                check_distribution(name, fn)
            self.reading.factors.append(Factor(role.site, jnp.asarray(fn.log_factor)))
            self.reading.order.append(role.site)
            self._look_at_times(role, fn, msg["infer"])
            return
        check_distribution(name, fn)
        size = num_categories(name, fn)
        fixed = self._fixed(msg, role.kind, size)
        msg["value"] = self.value(role.kind, name, size)
        msg["is_observed"] = False
        initial = role.kind == "state" and not self._stepping
        few = role.kind == "state" and not initial and type(fn) is SparseCategorical
        table = sparse_rows(fn) if few else rows(fn)
        if fixed is not None:
            table = fix_outcome(table, size, (fixed,), (size,))
        self._record(
            Draw(
                role.kind,
                (role.site,),
                (size,),
                (role.labels,),
                initial,
                table.log,
                table.certain,
                table.faults,
                fn.batch_shape,
                role.hidden,
                () if fixed is None else (fixed,),
            )
        )
        if self._stepping:
            self._look_at_times(role, fn, msg["infer"])

    def _given(self, name: str) -> None:
        """Accept a continuous site whose value is given; it keeps the value, and takes no part in planning."""
        if self._stepping:
            raise ModelError(
                f"site '{name}': found a continuous site in the rollout's step, expected it before it, with its "
                "value given"
            )
        self._unique(name)

    def _joint(self, kind: str, sizes: Mapping[str, int], probs: Any, labels: Mapping[str, Any]) -> dict[str, Any]:
        names, shape = tuple(sizes), tuple(sizes.values())
        table = probability_rows(probs)
        fixed: list[int | None] = []
        values = {}
        for name, size in sizes.items():
            full_name = name if kind == "parameter" else f"{name}_{PRESENT}"
            self._unique(full_name)
            msg = self._sent(full_name, dist.Categorical(probs=jnp.full(size, 1 / size)), {ROLE: Role(kind, name)})
            fixed.append(None if msg is None else self._fixed(msg, kind, size))
            values[name] = self.value(kind, full_name, size)
        is_given = any(value is not None for value in fixed)
        if is_given:
            table = fix_outcome(table, int(np.prod(shape)), tuple(fixed), shape)
        all_labels = tuple(tuple(labels[n]) if n in labels else None for n in names)
        initial = kind == "state"
        batch, fixed_values = jnp.shape(probs)[:-1], tuple(fixed) if is_given else ()
        self._record(
            Draw(kind, names, shape, all_labels, initial, table.log, None, table.faults, batch, fixed=fixed_values)
        )
        return values

    def _rollout(self, step: Callable[[Any, Any], Any], carry: Any, horizon: Any) -> Any:
        check_horizon(horizon)
        if is_concrete(horizon) and not is_concrete(self.horizon):
            raise ModelError(
                f"rollout: found {horizon} steps whatever the model's horizon is, expected its argument 'horizon'"
            )
        if self.reading.carries:
            raise ModelError("rollout: found a second rollout, expected exactly one in a model")
        self.reading.steps.append(jnp.asarray(horizon))
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
        check_labels("memory", name, size, labels, "content")
        self.reading.memories.append(Memory(name, size, labels, initial, jnp.asarray(value, jnp.int32)))
        self.reading.order.append(name)
        return self.value("memory", full_name, size)

    def _record(self, draw: Draw) -> None:
        for name, size, labels in zip(draw.names, draw.sizes, draw.labels, strict=True):
            check_labels("site", name, size, labels, "category")
        self.reading.draws.append(draw)
        self.reading.order.append(draw.names[0])

    def _unique(self, name: str) -> None:
        if name in self._seen:
            raise ModelError(f"site '{name}': found twice, expected a name of its own for each site")
        self._seen.add(name)

    # --- What handlers do ---

    def _fixed(self, msg: dict[str, Any], kind: str, size: int) -> int | None:
        """The value that a handler fixes for a parameter or the present state; refused for other sites."""
        value, name = msg["value"], msg["name"]
        if value is None:
            return None
        if self._stepping:
            raise ModelError(
                f"site '{name}': found a value that a handler fixes (condition, substitute or do), expected that of "
                "parameters and the present state only; what is certain in the future belongs into its distribution"
            )
        if not is_concrete(value) or np.ndim(value) or not np.issubdtype(np.asarray(value).dtype, np.integer):
            raise ModelError(f"site '{name}': found {value!r} as its fixed value, expected a whole number")
        if not 0 <= int(value) < size:
            raise ModelError(f"site '{name}': found {int(value)} as its fixed value, expected 0..{size - 1}")
        return int(value)

    def _look_at_times(self, role: Role, fn: dist.Distribution, infer: Mapping[str, Any]) -> None:
        """Refuse handlers that change a site of the step at one time only, by its name at that time."""
        for t in self.times:
            full_name = f"{role.site}_{t}"
            msg = self._sent(full_name, fn, dict(infer))
            if msg is not None:
                refuse_changes(msg, full_name)
                if role.kind != "preference":
                    self._fixed(msg, role.kind, 1)

    def _sent(self, full_name: str, fn: dist.Distribution, infer: dict[str, Any]) -> dict[str, Any] | None:
        """A site's message after it has passed the handlers; None where there are no handlers."""
        if is_innermost(self):
            return None
        self._probing, self._probe = True, None
        try:
            numpyro.sample(full_name, fn, infer=infer, rng_key=unused_key())
        finally:
            self._probing = False
        if self._probe is None:
            raise hidden_site(full_name)
        refuse_changes(self._probe, full_name)
        return self._probe


def takes_elapsed(model: Callable[..., Any]) -> bool:
    """Whether a model asks for the number of steps that have passed, by an argument ``elapsed``."""
    return "elapsed" in inspect.signature(model).parameters


def read(
    model: Callable[..., Any],
    belief: Belief,
    horizon: Any,
    value: Callable[[str, str, int], Any],
    t: Any,
    elapsed: Any = 0,
    reading: Reading | None = None,
    times: range = range(0),
) -> Reading:
    """Run ``model`` once with the given values for its sites.

    :param elapsed: the steps that have passed, for a model that asks for them.
    :param reading: where to record the sites; after a failure it shows how far the program came.
    :param times: see :class:`Reader`.
    """
    reading = empty_reading() if reading is None else reading
    reader = Reader(value, t, horizon, reading, times)
    past = {"elapsed": elapsed} if takes_elapsed(model) else {}
    # NumPyro's own validation would raise before the site is known; check_rows finds the same fault and names the site.
    with RUNNING, sensing(), read_by(reader), reader, numpyro.validation_enabled(False):
        model(belief, horizon=horizon, **past)
    if not reading.carries:
        raise ModelError("model: found no aif.rollout, expected exactly one")
    return reading
