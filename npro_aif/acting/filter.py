"""Exact Bayes on the joint belief p(x, θ), from the same program that plans."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from npro_aif.acting.sharded import Part, ShardedBayes, one_by_one
from npro_aif.acting.sparse import UNMOVED, UNSEEN, SparseBayes
from npro_aif.belief import Belief, is_sparse
from npro_aif.errors import ImpossibleObservation, ModelError
from npro_aif.numerics import divide, is_concrete, normalize, safe_log
from npro_aif.pickling import Portable
from npro_aif.program.checks import check_belief
from npro_aif.program.program import Fixed, Program, program_of
from npro_aif.program.sharded import ShardedBelief, check_program, readable
from npro_aif.program.signature import Signature, Site, flat_index, join
from npro_aif.shards import Shards
from npro_aif.sizes import FEWEST_UPDATED, GROWTH_UPDATED, MOST_UPDATED
from npro_aif.tables.world import World


class Filter(Portable):
    """Belief updates with a model as it is now, which is read and compiled once for any number of updates.

    :param model: a model; or, without ``belief``, a program that was read before.
    :param belief: any belief of the model.
    :param mesh: devices over which the parameters are laid; updated beliefs are then :class:`ShardedBelief` values.

    >>> from npro_aif.models.tmaze import tmaze, initial_belief, SOUTH
    >>> update = Filter(tmaze, initial_belief())
    >>> update(initial_belief(), SOUTH, {"cue": 1, "place": 0}).parameter.tolist()
    [0.0, 1.0]
    """

    transient = ("_update", "_sparse")

    def __init__(
        self,
        model: Callable[..., Any] | Program,
        belief: Belief | ShardedBelief | None = None,
        mesh: Mesh | None = None,
    ):
        program: Any = model
        if belief is not None:
            program = program_of(model, readable(belief), 1)  # type: ignore[arg-type]
        elif not hasattr(model, "signature"):
            raise ValueError("belief: found None, expected any belief of the model: aif.Filter(model, belief)")
        self.program: Program = program
        self.sites: tuple[Site, ...] = program.signature.observation + program.signature.sensor
        at_once = max(1, MOST_UPDATED // program.signature.num_states)
        self._at_once = 1 << (at_once.bit_length() - 1)  # how many parameters are updated together: a power of two
        self.shards = None if mesh is None else Shards(mesh)
        if self.shards is not None:
            check_program(program)
        self.restore()

    @property
    def mesh(self) -> Mesh | None:
        """The devices over which the parameters are laid."""
        return None if self.shards is None else self.shards.mesh

    def restore(self) -> None:
        self._update: Any = jax.jit(self.bayes)
        self._sparse = SparseBayes(self.program, self.sites, self._at_once, self.seen_in)
        if self.shards is not None:
            self._update = ShardedBayes(self.program, self.shards, self._at_once, self.seen_in)

    def __call__(
        self,
        belief: Belief | ShardedBelief,
        control: int | Mapping[str, int] | None,
        observation: int | Mapping[str, int] | None,
        *,
        ignore_impossible: bool = False,
        step: int | None = None,
        elapsed: int = 0,
    ) -> Any:
        """The belief after a control and the observation that followed; see :func:`update_belief`."""
        if self.shards is None:
            check_belief(belief, self.program.signature)  # type: ignore[arg-type]
        few = self.shards is None and is_sparse(belief)
        update: Any = self._sparse if few else self._update
        if not is_concrete(belief):
            raise ValueError("belief: found a traced one, expected numbers; inside compiled code use Filter.step")
        move, seen = self.flat(control, observation)
        support = None if few or self.shards is not None else self._support(np.asarray(belief.parameter))
        while True:
            updated, possible = update(self.program.at(elapsed), belief, support, move, seen)
            impossible = ~np.asarray(possible)
            if not impossible.any():
                return updated
            first = int(np.argmax(impossible))
            site, value = self.sites[first], int(seen[first])
            if value == UNSEEN:
                raise ModelError("belief: found no state and parameter of positive probability, expected some")
            if not ignore_impossible:
                when = "" if step is None else f" at step {step}"
                raise ImpossibleObservation(
                    f"site '{site.name}'{when}: observed {site.label(value)}{f' ({value})' * bool(site.labels)}, to "
                    "which the model gives probability zero under the current belief; ignore_impossible=True leaves "
                    "such an observation out"
                )
            seen = np.where(np.arange(len(seen)) == first, np.int32(UNSEEN), seen)  # and all the others again

    def flat(
        self, control: int | Mapping[str, int] | None, observation: int | Mapping[str, int] | None
    ) -> tuple[np.int32, np.ndarray]:
        """The control and, in the order of the sites, what was observed, as numbers for :meth:`bayes`."""
        move = UNMOVED if control is None else flat_index(control, self.program.signature.control, "control")
        return np.int32(move), np.asarray(self._observed(observation), np.int32)

    def _observed(self, observation: int | Mapping[str, int] | None) -> list[int]:
        """What was observed, in the order of the sites; sites that are not mentioned were not observed."""
        if observation is None:
            return [UNSEEN] * len(self.sites)
        if isinstance(observation, Mapping) and not observation and self.sites:
            names = [site.name for site in self.sites]
            raise ValueError(
                f"observation: found an empty dict, expected some of the sites {names}, or None for nothing"
            )
        if not isinstance(observation, Mapping):
            if len(self.sites) != 1:
                names = [site.name for site in self.sites]
                raise ValueError(f"observation: found {observation!r}, expected a dict with some of the sites {names}")
            return [flat_index(observation, self.sites, "observation")]
        site_names = {site.name for site in self.sites}
        for name in observation:
            if name not in site_names:
                raise ValueError(f"observation: found '{name}', expected some of the sites {sorted(site_names)}")
        return [
            flat_index(observation[site.name], (site,), f"observation '{site.name}'")
            if site.name in observation
            else UNSEEN
            for site in self.sites
        ]

    def _support(self, parameter: np.ndarray) -> np.ndarray | None:
        """The possible parameters, padded with Θ; None where all parameters are updated together."""
        possible = np.flatnonzero(parameter)
        size = FEWEST_UPDATED
        while size < len(possible):
            size *= GROWTH_UPDATED  # every size compiles once
        if size >= len(parameter):
            if len(parameter) <= self._at_once:
                return None
            size = len(parameter)
        if size > self._at_once:
            size = -(-size // self._at_once) * self._at_once
        return np.append(possible, np.full(size - len(possible), len(parameter))).astype(np.int32)

    def bayes(
        self, fixed: Fixed, belief: Belief, support: Array | None, control: Array, seen: Array
    ) -> tuple[Belief, Array]:
        """The new belief, and by site whether what was seen is possible."""
        part = functools.partial(self._part, fixed, belief, control, seen)
        together = support is None or len(support) <= self._at_once
        parameter, state, log_mass = part(support) if together else self._each(part, jnp.asarray(support))
        parameter = parameter / parameter.sum()
        if support is not None:  # put back the parameters left out: they stay impossible, their states do not matter
            parameter = jnp.zeros_like(belief.parameter).at[support].set(parameter, mode="drop")
            state = jnp.full_like(belief.state, 1 / state.shape[1]).at[support].set(state, mode="drop")
        return Belief(parameter, state), log_mass[1:] > -jnp.inf

    def _each(self, part: Callable[[Array], Part], support: Array) -> Part:
        """The parts of a large support, one after the other, as one."""
        num_parameters = self.program.signature.num_parameters
        return one_by_one(part, support.reshape(-1, self._at_once), lambda theta: theta[0] < num_parameters)

    def _part(self, fixed: Fixed, belief: Belief, control: Array, seen: Array, support: Array | None) -> Part:
        """Bayes on some parameters (Θ stands for padding), or on all."""
        num_parameters = self.program.signature.num_parameters
        theta = None if support is None else jnp.minimum(support, num_parameters - 1)
        valid = None if support is None else support < num_parameters
        return self.seen_in(self.program.bind(fixed, belief, 1, theta, valid, jnp.maximum(control, 0)), control, seen)

    def seen_in(self, world: World, control: Array, seen: Array) -> Part:
        """Bayes on the parameters of a world."""
        joint = self._moved(world, jnp.exp(world.parameter)[:, None] * jnp.exp(world.initial), control)
        joint, mass = _normalized(joint)
        masses = [mass]
        for likelihood in self._likelihoods(world, control, seen):
            joint, mass = _normalized(joint * likelihood)  # at every site: the product of many could underflow
            masses.append(mass)
        log_mass = itertools.accumulate(jnp.unstack(safe_log(jnp.stack(masses))))
        return Part(joint.sum(1), normalize(joint), jnp.stack(list(log_mass)))

    # --- What Bayes is made of ---

    @staticmethod
    def _moved(world: World, mass: Array, control: Array) -> Array:
        """Mass (Θ, X) after a control."""

        def push(mass: Array) -> Array:
            certain = jnp.ones((mass.shape[1], 1), mass.dtype)
            return world.state.at(0).given(jnp.maximum(control, 0)).push(mass.T, certain).T

        return jax.lax.cond(control == UNMOVED, lambda mass: mass, push, mass)

    def _likelihoods(self, world: World, control: Array, seen: Array) -> Iterator[Array]:
        """p(y|x,θ) of what was seen at each site, (Θ|1, X): one where nothing was seen, zero for no valid outcome."""
        num_states, kernels = world.initial.shape[1], world.observation | world.sensor
        sizes = np.array([site.size for site in self.sites], np.int32)
        reads_control = np.array([site.name in self.program.reads_control for site in self.sites], bool)
        left_out = seen == UNSEEN
        if reads_control.any():  # before the first move there is no control to observe
            left_out |= reads_control & (control == UNMOVED)
        # Of all sites at once: an equation on a number takes as long to trace and to lower as one on a table.
        of_sites = map(jnp.unstack, (jnp.clip(seen, 0, sizes - 1), seen < sizes, left_out))
        for site, outcome, valid, unseen in zip(self.sites, *of_sites, strict=True):
            yield _likelihood(kernels[site.name], outcome, valid, unseen, control, num_states)

    # --- Inside compiled code ---

    def step(self, belief: Belief, control: Any, observation: Any, *, elapsed: Any = 0) -> tuple[Belief, Array]:
        """The belief after a control and an observation, and log p(y|u): pure, for ``jit``, ``vmap`` and ``grad``.

        Compiled code cannot raise: an impossible observation has log p(y|u) = −inf, and is left out of the belief.

        :param control: a whole number, or a dict by site; None, or −1, for no move.
        :param observation: as for a call; −1 for a site that was not observed.

        >>> from npro_aif.models.tmaze import tmaze, initial_belief, SOUTH
        >>> update = Filter(tmaze, initial_belief())
        >>> belief, log_evidence = jax.jit(update.step)(initial_belief(), SOUTH, {"cue": 1, "place": 0})
        >>> belief.parameter.tolist(), round(float(log_evidence), 4)
        ([0.0, 1.0], -0.6931)
        """
        move = control_index(control, self.program.signature)
        world = self.program.bind(self.program.at(elapsed), belief, 1)
        before = tracked(world)
        after = self.follow(world, before, move, self.seen(observation))
        total = safe_logsumexp(after.log_weight)
        possible = total > -jnp.inf
        left_out = before._replace(state=self._moved(world, before.state, move))
        updated = jax.tree.map(lambda a, b: jnp.where(possible, a, b), after, left_out)
        return updated.belief(), total - safe_logsumexp(before.log_weight)

    def seen(self, observation: Any) -> Array:
        """What was observed, (sites,) or with further axes behind; its numbers may be traced."""
        values = [UNSEEN] * len(self.sites) if observation is None else None
        if values is None and not isinstance(observation, Mapping):
            values = self._observed(observation) if len(self.sites) != 1 else [observation]
        if values is None:
            names = [site.name for site in self.sites]
            for name in observation:
                if name not in names:
                    raise ValueError(f"observation: found '{name}', expected some of the sites {names}")
            values = [observation.get(name, UNSEEN) for name in names]
        arrays = jnp.broadcast_arrays(*(jnp.asarray(value, jnp.int32) for value in values))
        return jnp.stack(arrays) if arrays else jnp.zeros(0, jnp.int32)

    def follow(self, world: World, before: Tracked, control: Array, seen: Array) -> Tracked:
        """Each parameter's own belief about the state after a control and an observation, and its evidence so far."""
        state, log_weight = self._moved(world, before.state, control), before.log_weight
        log_weight = jnp.where(control < self.program.signature.num_controls, log_weight, -jnp.inf)
        for likelihood in self._likelihoods(world, control, seen):
            state = state * likelihood
            total = state.sum(1)
            log_weight = log_weight + safe_log(total)
            state = divide(state, total[:, None])
        return Tracked(log_weight, state)


# Sites with tables of one shape are traced and lowered once.
@functools.partial(jax.jit, static_argnames="num_states")
def _likelihood(kernel: Any, outcome: Array, valid: Array, unseen: Array, control: Array, num_states: int) -> Array:
    """p(y|x,θ) of what was seen at one site, (Θ|1, X)."""
    likelihood = kernel.at(0).likelihood(outcome)  # or of observed controls (Θ|1, X·U)
    if likelihood.shape[1] > num_states:
        by_control = likelihood.reshape(likelihood.shape[0], num_states, -1)
        place = jnp.where(by_control.shape[2] == 1, 0, jnp.maximum(control, 0))  # a bound one has no axis
        likelihood = jax.lax.dynamic_index_in_dim(by_control, place, 2, keepdims=False)
    return jnp.where(unseen, 1.0, jnp.where(valid, likelihood, 0.0))


@jax.jit
def _normalized(joint: Array) -> tuple[Array, Array]:
    """Mass that sums to one (or to zero), and what it summed to."""
    total = joint.sum()
    return divide(joint, total), total


class Tracked(NamedTuple):
    """The belief kept separately for each parameter, so that the weight of an unlikely one does not underflow."""

    log_weight: Array  # (Θ,) log p(θ, y)
    state: Array  # (Θ, X) p(x|θ, y); zero where y is impossible under θ

    def belief(self) -> Belief:
        """The joint belief p(x, θ | y)."""
        most = self.log_weight.max()
        weight = jnp.exp(self.log_weight - jax.lax.stop_gradient(jnp.where(most > -jnp.inf, most, 0.0)))
        return Belief(normalize(weight), normalize(self.state))


def tracked(world: World) -> Tracked:
    """The belief of each parameter before anything is seen."""
    return Tracked(world.parameter, jnp.exp(world.initial))


def safe_logsumexp(log: Array) -> Array:
    """log Σ exp, with −inf and a zero gradient where there is nothing."""
    possible = log.max() > -jnp.inf
    return jnp.where(possible, jax.nn.logsumexp(jnp.where(possible, log, 0.0)), -jnp.inf)


def control_index(control: Any, signature: Signature) -> Array:
    """A control (a whole number, a dict by site, or None) as a flat index; it may be traced."""
    if control is None:
        return jnp.asarray(UNMOVED, jnp.int32)
    if not isinstance(control, Mapping):
        return jnp.asarray(control, jnp.int32)
    missing = {site.name for site in signature.control} ^ set(control)
    if missing:
        raise ValueError(f"control: found {sorted(control)}, expected the sites {[s.name for s in signature.control]}")
    values = {name: jnp.asarray(value, jnp.int32) for name, value in control.items()}
    none = functools.reduce(jnp.logical_or, [value == UNMOVED for value in values.values()])
    return jnp.where(none, UNMOVED, join(values, signature.control))


def update_belief(
    model: Callable[..., Any],
    belief: Belief,
    control: int | Mapping[str, int] | None,
    observation: int | Mapping[str, int] | None,
    *,
    ignore_impossible: bool = False,
    step: int | None = None,
    elapsed: int = 0,
) -> Belief:
    """The joint belief after a control and an observation, by exact Bayes.

    The model is read anew at every call, so that changed tables count; :class:`Filter` reads it once. Inside ``jit``,
    ``vmap``, ``grad`` or ``scan`` every argument may be traced. Nothing can be raised there: an impossible observation
    is left out (:meth:`Filter.step` returns its probability).

    :param control: what was done, a flat index or a dict by site; None for the observation before the first move.
    :param observation: what was observed after it: a dict by site (``plan=False`` sites too; sites left out were not
        observed), or an index where the model has one observation site; None for nothing.
    :param ignore_impossible: leave out an observation that the model thinks impossible, instead of raising.
    :param step: the time, for the message.
    :param elapsed: the steps that had passed before the control, for a model with an argument ``elapsed``.

    >>> from npro_aif.models.tmaze import tmaze, initial_belief, SOUTH
    >>> belief = update_belief(tmaze, initial_belief(), SOUTH, {"cue": 1, "place": 0})
    >>> belief.parameter.tolist()
    [0.0, 1.0]
    """
    program = program_of(model, belief, 1)
    if not is_concrete((belief, control, observation, elapsed, program.fixed.numbers)):
        return Filter(program).step(belief, control, observation, elapsed=elapsed)[0]
    update = _filter_of(program)
    return update(belief, control, observation, ignore_impossible=ignore_impossible, step=step, elapsed=elapsed)


@functools.lru_cache(maxsize=64)
def _filter_of(program: Program) -> Filter:
    return Filter(program)
