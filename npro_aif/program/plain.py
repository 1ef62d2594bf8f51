"""The tables of a program against plain NumPyro: they must agree with its trace.

The program is run as a user would run it, with scalars under NumPyro's own handlers, for some dozens of random
trajectories at the first two steps and the last. Every row of every site, every preference and every memory must equal
the tables' entry. This finds a step that reads something besides its carry, an index that broadcasts wrongly, and a
variable that changes from call to call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.handlers import block, substitute, trace

from npro_aif._numpyro import Messenger
from npro_aif.belief import Belief
from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete
from npro_aif.program.axes import (
    CONTROL,
    FIRST_OBSERVATION,
    MEMORY,
    NEXT,
    NEXT_MEMORY,
    STATE,
    THETA,
    TIME,
)
from npro_aif.program.reader import RUNNING, takes_elapsed
from npro_aif.program.reading import PRESENT, Draw, Reading
from npro_aif.program.rows import rows
from npro_aif.program.signature import Signature, Site, join, split
from npro_aif.sites import ROLE, SLICE, clock, read_by, sensing

DRAWS = 32  # random trajectories
TOLERANCE = 1e-4


class Steps(Messenger):
    """Lets a rollout run at some times only; each step gets the carry of the step before."""

    def __init__(self, times: Sequence[int]):
        super().__init__()
        self.times = times
        self.count: Any = None  # how many steps the program asked for

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "rollout":
            step, carry, self.count = msg["args"]
            for t in self.times:
                with clock(t):
                    carry = step(carry, t)
            msg["value"] = carry


class Silent:
    """A reader that records nothing, under which sites are drawn as they are when a program is read."""

    def expect(self, full_name: str) -> None: ...

    def arrived(self, full_name: str) -> None: ...


class PlainSite(NamedTuple):
    """One site under plain NumPyro."""

    log: Any = None  # (n, K) log-probabilities of a site; (n,) for a preference, or for one site of a joint table
    certain: Any = None  # (n,) the certain outcome
    value: Any = None  # (n,) the value of the site
    probs: Any = None  # (n, K) unnormalised probabilities, in place of log-probabilities


def times_of(num_steps: int) -> tuple[int, ...]:
    """The steps at which the program is looked at: the first two and the last."""
    return tuple(sorted({1, min(2, num_steps), num_steps}))


def full_names(signature: Signature, num_steps: int) -> dict[str, Site]:
    """The sites that have a value in a plain run, by full name."""
    names = {site.name: site for site in signature.parameter}
    names |= {f"{site.name}_{PRESENT}": site for site in signature.state}
    sites = signature.control + signature.state + signature.observation + signature.sensor
    return names | {f"{site.name}_{t}": site for t in times_of(num_steps) for site in sites}


def assignments(signature: Signature, reading: Reading, theta: np.ndarray, num_steps: int) -> dict[str, np.ndarray]:
    """Random values of all sites by full name, (n,) each; a site that a handler fixes has the fixed value.

    :param theta: the parameters on their axis, flat indices.
    """
    rng = np.random.default_rng(0)
    values = split(rng.choice(theta, DRAWS), signature.parameter)
    for name, site in full_names(signature, num_steps).items():
        if name not in values:
            values[name] = rng.integers(0, site.size, DRAWS)
    for draw in reading.draws:
        for name, value in zip(draw.full_names, draw.fixed, strict=bool(draw.fixed)):
            values[name] = values[name] if value is None else np.full(DRAWS, value)
    return {name: np.asarray(value, np.int32) for name, value in values.items()}


def run_plainly(
    model: Callable[..., Any], belief: Belief, num_steps: int, assignment: dict[str, Array]
) -> dict[str, PlainSite]:
    """One run of the program under NumPyro's own handlers, with the assignment's values; returns its sites."""

    def chosen(msg: dict[str, Any]) -> Any:
        return assignment.get(msg["name"]) if msg["type"] == "sample" and msg["value"] is None else None

    steps = Steps(times_of(num_steps))
    past = {"elapsed": 0} if takes_elapsed(model) else {}
    with (
        RUNNING,
        sensing(),
        read_by(Silent()),
        numpyro.validation_enabled(False),
        block(),
        steps,
        trace() as sites,
        substitute(substitute_fn=chosen),
    ):
        model(belief, horizon=num_steps, **past)
    if is_concrete(steps.count) and steps.count != num_steps:
        raise ModelError(
            f"rollout: found {steps.count} steps for a horizon of {num_steps}, expected the model's argument 'horizon'"
        )
    plain_sites = {}
    for name, site in sites.items():
        if site["type"] == "deterministic":
            plain_sites[name] = PlainSite(value=jnp.asarray(site["value"]))
        elif site["type"] == "sample" and isinstance(site["fn"], dist.Unit):
            plain_sites[name] = PlainSite(log=jnp.asarray(site["fn"].log_factor))
        elif site["type"] == "sample" and ROLE in site["infer"]:
            plain_sites[name] = _row(site["fn"])._replace(value=jnp.asarray(site["value"]))
    return plain_sites


def _row(fn: dist.Distribution) -> PlainSite:
    """A distribution as NumPyro has it, not computed further where it holds numbers; :func:`_logs` does the rest."""
    if type(fn) is dist.CategoricalProbs:
        return PlainSite(probs=jnp.asarray(fn.probs))
    if type(fn) is dist.CategoricalLogits:
        return PlainSite(log=jnp.asarray(fn.logits))
    row = rows(fn)
    return PlainSite(row.log, row.certain)


def _logs(site: PlainSite) -> PlainSite:
    """The same with normalised log-probabilities, in NumPy."""
    site = PlainSite(*(None if array is None else np.asarray(array) for array in site))
    with np.errstate(divide="ignore", invalid="ignore"):
        if site.probs is not None:
            probs = np.asarray(site.probs, float)
            return site._replace(log=np.log(probs / probs.sum(-1, keepdims=True)))
        if site.log is not None and site.value is not None:
            log = np.asarray(site.log, float)
            log = log - log.max(-1, keepdims=True)
            return site._replace(log=log - np.log(np.exp(log).sum(-1, keepdims=True)))
    return site


class Comparison:
    """Compares the tables of a reading with those of plain runs.

    :param plain_sites: by full name, what plain runs say of each site.
    :param reading: with numbers, evaluated with every site on its axis.
    :param theta: the parameters on their axis, flat indices.
    """

    def __init__(self, signature: Signature, reading: Reading, plain_sites: dict[str, PlainSite], theta: np.ndarray):
        self.signature, self.reading, self.theta = signature, reading, theta
        self.plain_sites = {name: _logs(site) for name, site in plain_sites.items()}

    def check(self, values: dict[str, np.ndarray], num_steps: int) -> None:
        """Compare everything, before the rollout and at each step."""
        self._check_names(times_of(num_steps))
        values = values | {name: site.value for name, site in self.plain_sites.items() if site.value is not None}
        before = 0
        for t in times_of(num_steps):
            places = self._places(values, before, t)
            for draw in self.reading.draws:
                in_step = not draw.initial and draw.kind != "parameter"
                if in_step or before == 0:
                    self._compare_draw(draw, t, places)
            for factor in self.reading.factors:
                row = self.plain_sites[f"{factor.name}_{t}"].log
                if not _equal(self._picked(factor.log, places), row):
                    raise _differs(f"preference '{factor.name}'", t)
            for memory in self.reading.memories:
                if memory.initial and before:
                    continue
                content = self.plain_sites[f"{memory.name}_{PRESENT if memory.initial else t}"].value
                if not _equal(self._picked(memory.value, places), content):
                    raise _differs(f"memory '{memory.name}'", t)
            before = t

    def _check_names(self, times: Sequence[int]) -> None:
        """Every step must have the same sites."""
        names = [name for draw in self.reading.draws for name in draw.full_names]
        names += [f"{factor.name}_{SLICE}" for factor in self.reading.factors]
        names += [f"{memory.name}_{PRESENT if memory.initial else SLICE}" for memory in self.reading.memories]
        for name in names:
            for t in times:
                plain = f"{name.removesuffix(SLICE)}{t}" if name.endswith(f"_{SLICE}") else name
                if plain not in self.plain_sites:
                    raise ModelError(
                        f"site '{plain}': found no such site under plain NumPyro, expected the same sites in every step"
                    )
        for name, site in self.plain_sites.items():
            stem, _, time = name.rpartition("_")
            if site.log is not None and time.isdigit() and int(time) and f"{stem}_{SLICE}" not in names:
                raise ModelError(f"site '{name}': found in a later step only, expected the same sites in every step")

    def _places(self, values: dict[str, np.ndarray], before: int, t: int) -> dict[int, np.ndarray]:
        """The places of the trajectories on each axis at step t, (n,)."""

        def flat(sites: tuple[Site, ...], time: int | None) -> np.ndarray:
            indices = {site.name: values[site.name if time is None else f"{site.name}_{time}"] for site in sites}
            return np.broadcast_to(np.asarray(join(indices, sites)), (DRAWS,))

        signature = self.signature
        places = {
            TIME: np.full(DRAWS, t - 1),
            THETA: np.searchsorted(self.theta, flat(signature.parameter, None)),
            STATE: flat(signature.state, before),
            CONTROL: flat(signature.control, t),
            NEXT: flat(signature.state, t),
            MEMORY: flat(signature.memory, before),
            NEXT_MEMORY: flat(signature.memory, t),
        }
        for i, site in enumerate(signature.observation + signature.sensor):
            places[FIRST_OBSERVATION - i] = flat((site,), t)
        return places

    def _picked(self, table: Any, places: dict[int, np.ndarray], *, outcome: bool = False) -> np.ndarray:
        """The entries, or rows, of a table at the trajectories."""
        table = np.asarray(table)
        batch = table.shape[: table.ndim - outcome]
        index = tuple(
            places[axis] if size > 1 and axis in places else np.zeros(DRAWS, int)
            for axis, size in zip(range(-len(batch), 0), batch, strict=True)
        )
        return table[index] if batch else np.broadcast_to(table, (DRAWS, *table.shape))

    def _compare_draw(self, draw: Draw, t: int, places: dict[int, np.ndarray]) -> None:
        names = [name.removesuffix(SLICE) + str(t) if name.endswith(f"_{SLICE}") else name for name in draw.full_names]
        sites = [self.plain_sites[name] for name in names]
        if len(names) > 1:  # a joint table: the product over its sites must have the same probability
            own = self._picked(draw.log, places, outcome=True)
            flat = np.zeros(DRAWS, int)
            log = np.zeros(DRAWS)
            for size, site in zip(draw.sizes, sites, strict=True):
                flat = flat * size + site.value
                log = log + np.take_along_axis(site.log, site.value[:, None], 1)[:, 0]
            same = _equal(np.exp(np.take_along_axis(own, flat[:, None], 1)[:, 0]), np.exp(log))
        elif draw.index is not None and draw.log is None:
            same = sites[0].certain is not None and _equal(self._picked(draw.index, places), sites[0].certain)
        else:  # log-probabilities of what is nearly impossible may differ in rounding
            row = sites[0].log
            if row is None:
                row = np.where(np.arange(draw.sizes[0]) == sites[0].certain[:, None], 0.0, -np.inf)
            own = self._picked(draw.log, places, outcome=True)
            if draw.index is not None:  # the few outcomes of a row; one occurs again only with probability zero
                few, own = own, np.full(row.shape, -np.inf)
                to = self._picked(draw.index, places, outcome=True)
                np.maximum.at(own, (np.arange(len(own))[:, None], to), few)
            chosen = [value for value in draw.fixed if value is not None] or slice(None)
            same = row.shape == own.shape and _equal(np.exp(own[:, chosen]), np.exp(row[:, chosen]))
        if not same:
            raise _differs(f"site '{draw.names[0]}'", t)


def _equal(table: np.ndarray, other: np.ndarray) -> bool:
    return table.shape == other.shape and np.allclose(table, other, TOLERANCE, TOLERANCE, equal_nan=True)


def _differs(what: str, t: int) -> ModelError:
    if t == 1:
        return ModelError(
            f"{what}: an index broadcasts wrongly: found other numbers for arrays of site values than for single "
            "values (or the program says something else every time), expected TABLE[x, u] with the outcome last, not "
            "TABLE[:, x]"
        )
    return ModelError(
        f"{what}: found other numbers at step {t} under plain NumPyro than the tables say, expected a step that reads "
        "its carry, its time and what was drawn in it, and nothing else that changes from step to step (the present "
        "state x_0, a counter, an earlier observation)"
    )
