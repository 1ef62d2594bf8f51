"""The exact free energy of any discrete guide by enumeration: slow, general, and a check of the fast evaluators.

Model and guide run under NumPyro's funsor handlers with every site enumerated. Funsor sums out the sites that a term
does not involve, and the terms are expectations under the remaining marginals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import funsor
import funsor.optimizer
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.contrib.funsor as enumerating
import numpyro.distributions as dist
from jax import Array
from numpyro.handlers import replay, seed, substitute
from numpyro.handlers import trace as plain_trace

from npro_aif.belief import Belief
from npro_aif.errors import GuideError
from npro_aif.inference.marginals import Marginals
from npro_aif.inference.posterior import Evaluate, Terms
from npro_aif.inference.sequence import SequencePosterior, check_open, mass, mass_entropy, sequence_evidence
from npro_aif.language import default_horizon
from npro_aif.numerics import divide, mul_log, neg_entropy, normalize, safe_log
from npro_aif.program.program import program_of
from npro_aif.program.rows import num_categories
from npro_aif.program.signature import Signature
from npro_aif.sizes import MOST_ENUMERATED_SITES
from npro_aif.tables.dense import DenseEmission
from npro_aif.tables.evidence import Evidence
from npro_aif.tables.layout import time_slice
from npro_aif.tables.world import World

Factors = dict[str, "funsor.Funsor"]


class GenericPosterior(NamedTuple):
    """q as the log-factors of a guide's sites, with the model's beside them."""

    guide: Factors
    model: Factors
    preferences: Factors
    memories: Factors  # log-factors of the memories, by full name
    signature: Signature
    num_steps: int
    scope: str  # over what the epistemic priors run
    reads_control: bool  # whether observations or memories depend on the control

    def parts(self) -> list[Steps]:
        """Every step by itself, or all of them together where the epistemic priors run over sequences."""
        steps = tuple(range(1, self.num_steps + 1))
        return [Steps(self, (t,)) for t in steps] if self.scope == "temporal" else [WholeSteps(self, steps)]

    def terms(self, world: World, evaluate: Evaluate) -> Terms:
        per_part = [evaluate(part) for part in self.parts()]
        return {name: sum((terms[name] for terms in per_part), start=jnp.zeros(())) for name in per_part[0]}

    def marginals(self, world: World) -> Marginals:
        steps = range(1, self.num_steps + 1)
        masses = [self.policy_mass(t) for t in steps]
        return Marginals(
            control=jnp.stack([m.sum(0) for m in masses]),
            policy=jnp.stack([normalize(m) for m in masses]),
            state=jnp.stack([self.marginal([self.sites("state", t)]) for t in range(self.num_steps + 1)]),
            parameter=self.marginal([self.parameters()]) if self.parameters() else jnp.ones(1),
            memory=jnp.stack([self.marginal([self.sites("memory", t)]) for t in range(self.num_steps + 1)])
            if self.signature.memory
            else jnp.ones((self.num_steps + 1, 1)),
            observation={
                site.name: jnp.stack([self.marginal([[f"{site.name}_{t}"]]) for t in steps])
                for site in self.signature.observation
            },
        )

    def first_control(self, world: World) -> Array:
        return self.marginals(world).control[0]

    def marginal(self, groups: Sequence[Sequence[str]]) -> Array:
        """The joint marginal of groups of sites, one flat axis for each group."""
        names = [name for group in groups for name in group]
        factors = [factor.exp() for factor in (self.guide | self.memories).values()]
        away = frozenset(self.guide | self.memories) - frozenset(names)
        with funsor.interpretations.lazy:
            lazy = funsor.sum_product.sum_product(
                funsor.ops.add, funsor.ops.mul, factors, eliminate=away, plates=frozenset()
            )
        result = funsor.optimizer.apply_optimizer(lazy)
        table = funsor.to_data(result, name_to_dim={name: i - len(names) for i, name in enumerate(names)})
        sizes = [[self.size(name) for name in group] for group in groups]
        return jnp.broadcast_to(table, [n for group in sizes for n in group]).reshape([int(np.prod(s)) for s in sizes])

    def size(self, full_name: str) -> int:
        """The number of values of a site, by its name with the time."""
        roles = (self.signature.state, self.signature.control, self.signature.observation, self.signature.memory)
        timed = {site.name: site.size for role in roles for site in role}
        always = {site.name: site.size for site in self.signature.parameter}
        return always[full_name] if full_name in always else timed[full_name.rpartition("_")[0]]

    def expect(self, factor: funsor.Funsor) -> Array:
        """E_q of one log-factor."""
        names = tuple(factor.inputs)
        if not names:
            return jnp.asarray(funsor.to_data(factor))
        weight = self.marginal([[name] for name in names])
        log = funsor.to_data(factor, name_to_dim={name: i - len(names) for i, name in enumerate(names)})
        return mul_log(weight, jnp.broadcast_to(log, weight.shape)).sum()

    def sites(self, role: str, t: int) -> list[str]:
        """The full names of a role's sites at time t."""
        return [f"{site.name}_{t}" for site in self.signature.sites(role)]

    def parameters(self) -> list[str]:
        return [site.name for site in self.signature.parameter]

    def visible(self, t: int) -> list[str]:
        """The state sites that the policy sees."""
        return [f"{site.name}_{t}" for site in self.signature.visible]

    def seen(self, t: int) -> list[str]:
        """All that the policy sees: visible states and memories."""
        return self.visible(t) + self.sites("memory", t)

    def context(self, t: int) -> list[str]:
        """The context of the observations: the new visible state, the memory and, if anything reads it, u."""
        return self.visible(t) + self.sites("memory", t - 1) + (self.sites("control", t) if self.reads_control else [])

    def unseen(self, t: int) -> list[str]:
        """What observations can be informative about: hidden states and parameters."""
        return [f"{site.name}_{t}" for site in self.signature.state if site.hidden] + self.parameters()

    def policy_mass(self, t: int) -> Array:
        """q(v_{t-1}, m_{t-1}, u_t), (P, U)."""
        return self.marginal([self.seen(t - 1), self.sites("control", t)])


class Steps(NamedTuple):
    """The statistics of one step of any guide, as :class:`~npro_aif.inference.posterior.Part` says."""

    q: GenericPosterior
    times: tuple[int, ...]  # which steps; those of the start (parameters, x_0) count with the first

    def preference(self) -> Array:
        return self._sum(self.q.expect(factor) for factor in self._own(self.q.preferences).values())

    def complexity(self) -> Array:
        return self._gap(name for name in self._own(self.q.guide) if name not in self._controls())

    def plan_prior(self) -> Array:
        return self._gap(self._controls())

    def policy_entropy(self) -> Array:
        return mass_entropy([self.q.policy_mass(t) for t in self.times])

    def control(self) -> Array:
        return self.q.marginal([self._names("control")])

    def state(self) -> Array:
        (t,) = self.times
        return self.q.marginal([self.q.context(t)])

    def move_entropy(self) -> Array:
        (t,) = self.times
        flow = self.q.marginal([self.q.seen(t - 1), self._names("control"), self.q.visible(t)])
        moved = flow.sum(-1)
        return divide((neg_entropy(moved) - neg_entropy(flow).sum(-1)).sum(0), moved.sum(0))

    def evidence(self, *, joint: bool) -> dict[str, Evidence]:
        (t,) = self.times
        names = self._names("observation")
        groups = {"y": names} if joint and names else {name: [name] for name in names}

        def told(group: list[str]) -> Evidence:
            mass = self.q.marginal([self.q.unseen(t), self.q.context(t), group])
            weight = mass.sum(-1)
            return DenseEmission(safe_log(divide(mass, weight[..., None]))).evidence(weight)

        return {name: told(group) for name, group in groups.items()}

    def _names(self, role: str) -> list[str]:
        """The full names of a role's sites at these steps."""
        return [name for t in self.times for name in self.q.sites(role, t)]

    def _controls(self) -> list[str]:
        return self._names("control")

    def _own(self, factors: Factors) -> Factors:
        """The factors of these steps; those of no step belong to the first."""
        steps = {str(t): t for t in range(1, self.q.num_steps + 1)}
        return {name: f for name, f in factors.items() if steps.get(name.rpartition("_")[2], 1) in self.times}

    def _gap(self, names: Iterable[str]) -> Array:
        """E_q[log q − log p] of some sites."""
        return self._sum(self.q.expect(self.q.guide[name]) - self.q.expect(self.q.model[name]) for name in names)

    @staticmethod
    def _sum(values: Iterable[Array]) -> Array:
        return sum(values, start=jnp.zeros(()))


class WholeSteps(Steps):
    """The statistics of all steps together, with the epistemic priors over sequences."""

    def state(self) -> Array:
        return self.q.marginal([self._names("state")])

    def move_entropy(self) -> Array:
        return mass(self._posterior()).entropy

    def evidence(self, *, joint: bool) -> dict[str, Evidence]:
        posterior = self._posterior()
        return {"y": sequence_evidence(mass(posterior), posterior.emission)}

    def _posterior(self) -> SequencePosterior:
        moves = self.q.marginal([self._names("control"), self._names("state")])
        seen = self.q.marginal([self._names("state"), self._names("observation"), self.q.parameters()])
        control = moves.sum(1)
        return SequencePosterior(
            safe_log(control),
            safe_log(divide(moves, control[:, None])),
            safe_log(divide(seen, seen.sum((1, 2), keepdims=True))),
            None,  # type: ignore[arg-type]  # the priors need no tables of the model
        )


def enumerate_guide(
    model: Callable[..., Any],
    guide: Callable[..., Any],
    params: Mapping[str, Array],
    belief: Belief,
    horizon: int,
    world: World,
) -> GenericPosterior:
    """Run guide and model with every site enumerated, and keep the log-factors.

    :param world: the model's tables, for what its policy sees.
    """
    funsor.set_backend("jax")
    keyed = seed(rng_seed=0)  # nothing is drawn, but handlers need a key
    with keyed, enumerating.plate_to_enum_plate(), enumerating.enum():
        configured = enumerating.config_enumerate(substitute(guide, data=dict(params)))
        guide_trace = enumerating.trace(configured).get_trace(belief, horizon=horizon)
        replayed = substitute(replay(model, guide_trace), data=dict(params))
        model_trace = enumerating.trace(replayed).get_trace(belief, horizon=horizon)
    _check_sites(model_trace, guide_trace)
    factors: dict[str, Factors] = {"guide": {}, "model": {}, "preferences": {}}
    for trace, kind in ((guide_trace, "guide"), (model_trace, "model")):
        for name, site in trace.items():
            if site["type"] != "sample":
                continue
            preferred = isinstance(site["fn"], dist.Unit)
            log = site["fn"].log_factor if preferred else site["fn"].log_prob(site["value"])
            factor = _to_funsor(jnp.asarray(log), site["infer"]["dim_to_name"])
            factors["preferences" if preferred else kind][name] = factor
    posterior = GenericPosterior(
        **factors,
        memories=_memory_factors(world, int(horizon)),
        signature=world.signature,
        num_steps=int(horizon),
        scope=getattr(guide, "scope", "temporal"),
        reads_control=getattr(world.loop, "num_controls", 1) > 1,
    )
    _check_view(posterior, world)
    return posterior


def _check_view(q: GenericPosterior, world: World) -> None:
    """Refuse controls that read what the policy does not see, and sequence guides for models with memories."""
    if q.scope != "temporal":
        check_open(world)
    for t in range(1, q.num_steps + 1):
        unseen = {name for s in range(q.num_steps + 1) for name in q.unseen(s)}
        for name in q.sites("control", t):
            wrong = sorted(unseen & set(q.guide[name].inputs))
            if wrong:
                raise GuideError(
                    f"site '{name}': found a control in the guide that reads '{wrong[0]}', which the policy does not "
                    "see, expected visible states and what was observed"
                )


def _memory_factors(world: World, num_steps: int) -> Factors:
    """log [m = its content], by the memories' full names (all memories of a step under the name of the first)."""
    signature = world.signature
    factors: Factors = {}
    if not signature.memory:
        return factors
    loop: Any = world.loop
    sites = {"memory": signature.memory, "state": signature.state, "control": signature.control}

    def named(role: str, t: int) -> list[tuple[str, int]]:
        return [(f"{site.name}_{t}", site.size) for site in sites[role]]

    def one_hot(table: Array, axes: list[list[tuple[str, int]]], t: int) -> None:
        """A table of contents whose axes are groups of sites (or 1) as a factor with the new memory's sites last."""
        involved = [sites for sites, size in zip(axes, table.shape, strict=True) if size > 1]
        groups = [*involved, named("memory", t)]
        flat = [site for group in groups for site in group]
        hot = safe_log(jax.nn.one_hot(table.squeeze(), signature.num_memories))
        names = {i - len(flat): name for i, (name, _) in enumerate(flat)}
        tensor = funsor.to_funsor(hot.reshape([size for _, size in flat]), output=funsor.Real, dim_to_name=names)
        for name, _ in named("memory", t):
            factors[name] = tensor if name == named("memory", t)[0][0] else funsor.to_funsor(jnp.zeros(()))

    one_hot(loop.first, [named("state", 0)], 0)
    for t in range(1, num_steps + 1):
        read = [(f"{site.name}_{t}", site.size) for site in signature.observation if site.name in loop.read]
        axes = [named("memory", t - 1), named("state", t), named("control", t), read]
        one_hot(time_slice(loop.update, t - 1), axes, t)
    return factors


def _to_funsor(log: Array, dim_to_name: Any) -> funsor.Funsor:
    if all(size == 1 for size in log.shape) and not dim_to_name:
        log = log.reshape(())
    return funsor.to_funsor(log, output=funsor.Real, dim_to_name=dim_to_name)


def _check_sites(model_trace: Mapping[str, Any], guide_trace: Mapping[str, Any]) -> None:
    """The guide must draw exactly the model's latent sites, with as many categories."""

    def latent(trace: Mapping[str, Any]) -> dict[str, Any]:
        return {n: s["fn"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}

    model, guide = latent(model_trace), latent(guide_trace)
    for name in model:
        if name not in guide:
            raise GuideError(f"site '{name}': found in the model and not in the guide, expected it in both")
    for name in guide:
        if name not in model:
            raise GuideError(f"site '{name}': found in the guide and not in the model, expected it in both")
        size, models = (num_categories(name, side[name]) for side in (guide, model))
        if size != models:
            raise GuideError(f"site '{name}': found {size} categories in the guide, expected the model's {models}")


def check_guide(model: Callable[..., Any], guide: Callable[..., Any], belief: Belief, horizon: int) -> None:
    """Compare the sites of plain runs of model and guide, before anything is enumerated."""

    def run() -> None:
        with seed(rng_seed=0):
            guide_trace = plain_trace(guide).get_trace(belief, horizon=horizon)
            model_trace = plain_trace(model).get_trace(belief, horizon=horizon)
        for name, site in guide_trace.items():
            if site["type"] == "sample" and not site["fn"].support.is_discrete:
                raise GuideError(
                    f"site '{name}': found {type(site['fn']).__name__}, a continuous distribution, in the guide, "
                    "expected a discrete one"
                )
        _check_sites(model_trace, guide_trace)
        count = sum(site["type"] == "sample" for site in guide_trace.values())
        if count > MOST_ENUMERATED_SITES:
            raise GuideError(
                f"guide: found {count} sites to enumerate, expected at most {MOST_ENUMERATED_SITES}; use a "
                "shorter horizon, or TemporalGuide"
            )

    jax.eval_shape(run)


def generic_posterior(
    model: Callable[..., Any],
    guide: Callable[..., Any],
    params: Mapping[str, Array],
    belief: Belief,
    horizon: int | None = None,
) -> tuple[World, GenericPosterior]:
    """The posterior of an ordinary NumPyro guide, and the world of its model."""
    horizon = default_horizon(model) if horizon is None else horizon
    program = program_of(model, belief, horizon)
    check_guide(model, guide, belief, horizon)
    world = program.world(belief, horizon)
    return world, enumerate_guide(model, guide, params, belief, horizon, world)
