"""The exact free energy of any discrete guide, by enumeration: slow, general, and the check of the fast evaluators.

Model and guide run under NumPyro's funsor handlers with every site enumerated; funsor eliminates what a term
does not need, and the terms are expectations under the marginals that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import funsor
import funsor.optimizer
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.contrib.funsor as enumerating
from jax import Array
from numpyro.distributions.distribution import Unit
from numpyro.handlers import replay, seed, substitute
from numpyro.handlers import trace as plain_trace

from npro_aif.errors import GuideError
from npro_aif.guides.base import Initial, TableGuide
from npro_aif.inference.epistemic import EpistemicCosts, epistemic_costs
from npro_aif.inference.objectives import Objective
from npro_aif.inference.sequence import SequencePosterior, mass, sequence_costs
from npro_aif.inference.temporal import Marginals
from npro_aif.language import Belief, default_horizon
from npro_aif.program.program import World, program_of
from npro_aif.program.reader import num_categories
from npro_aif.program.signature import Signature
from npro_aif.tables.kernels import Dense
from npro_aif.tables.numerics import divide, hold, mul_log, neg_entropy, normalize, safe_log

MAX_SITES = 25  # NumPyro gives each enumerated site a letter and a dimension of its own

Factors = dict[str, "funsor.Funsor"]


class GenericPosterior(NamedTuple):
    """q as the log-factors of a guide's sites, with the model's beside them."""

    guide: Factors
    model: Factors
    preferences: Factors
    signature: Signature
    num_steps: int
    scope: str  # over what the epistemic priors run

    def terms(self, world: World, objective: Objective) -> dict[str, Array]:
        return generic_terms(self, objective)

    def marginals(self, world: World) -> Marginals:
        return generic_marginals(self)

    def first_control(self, world: World) -> Array:
        return self.marginals(world).control[0]

    def marginal(self, groups: Sequence[Sequence[str]]) -> Array:
        """The joint marginal of groups of sites, one flat axis for each group."""
        names = [name for group in groups for name in group]
        factors = [factor.exp() for factor in self.guide.values()]
        away = frozenset(self.guide) - frozenset(names)
        with funsor.interpretations.lazy:
            lazy = funsor.sum_product.sum_product(
                funsor.ops.add, funsor.ops.mul, factors, eliminate=away, plates=frozenset()
            )
        result = funsor.optimizer.apply_optimizer(lazy)
        table = funsor.to_data(result, name_to_dim={name: i - len(names) for i, name in enumerate(names)})
        sizes = [[result.inputs[name].size for name in group] for group in groups]
        return jnp.broadcast_to(table, [n for group in sizes for n in group]).reshape([int(np.prod(s)) for s in sizes])

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


def enumerate_guide(
    model: Callable[..., Any],
    guide: Callable[..., Any],
    params: Mapping[str, Array],
    belief: Belief,
    horizon: int,
    signature: Signature,
) -> GenericPosterior:
    """Run guide and model with every site enumerated, and keep the log-factors."""
    funsor.set_backend("jax")
    keyed = seed(rng_seed=0)  # nothing is drawn, but handlers ask for a key
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
            preferred = isinstance(site["fn"], Unit)
            log = site["fn"].log_factor if preferred else site["fn"].log_prob(site["value"])
            factor = _to_funsor(jnp.asarray(log), site["infer"]["dim_to_name"])
            factors["preferences" if preferred else kind][name] = factor
    return GenericPosterior(
        **factors, signature=signature, num_steps=int(horizon), scope=getattr(guide, "scope", "temporal")
    )


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
        found, expected = (num_categories(name, side[name]) for side in (guide, model))
        if found != expected:
            raise GuideError(f"site '{name}': found {found} categories in the guide, expected the model's {expected}")


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
        if count > MAX_SITES:
            raise GuideError(
                f"guide: found {count} sites to enumerate, expected at most {MAX_SITES}; use a shorter horizon, or "
                "TemporalGuide"
            )

    jax.eval_shape(run)


def generic_free_energy(
    objective: Objective,
    model: Callable[..., Any],
    guide: Callable[..., Any],
    params: Mapping[str, Array],
    belief: Belief,
    horizon: int | None = None,
) -> Array:
    """F of an ordinary NumPyro guide, exactly."""
    horizon = default_horizon(model) if horizon is None else horizon
    signature = program_of(model, belief, horizon).signature
    check_guide(model, guide, belief, horizon)
    posterior = enumerate_guide(model, guide, params, belief, horizon, signature)
    return sum(generic_terms(posterior, objective).values())  # type: ignore[return-value]


def generic_terms(q: GenericPosterior, objective: Objective) -> dict[str, Array]:
    """The free energy of any guide, term by term (see :meth:`Objective.terms`)."""
    keep = hold(objective.gradient)
    controls = {name for t in range(1, q.num_steps + 1) for name in q.sites("control", t)}

    def gap(names: set[str]) -> Array:
        total: Array = jnp.zeros(())
        for name in names:
            total = total + q.expect(q.guide[name]) - q.expect(q.model[name])
        return total

    risk: Array = jnp.zeros(())
    for factor in q.preferences.values():
        risk = risk - q.expect(factor)
    terms = {"risk": risk, "complexity": gap(set(q.guide) - controls), "plan_prior": gap(controls)}
    if objective.correction:
        terms["correction"] = sum(  # type: ignore[assignment]
            neg_entropy(m.sum(-1)).sum() - neg_entropy(m).sum() for m in _policy_masses(q)
        )
    if objective.epistemic:
        parts = _temporal_parts(q, objective) if q.scope == "temporal" else [_sequence_part(q, objective)]
        terms |= {name: jnp.zeros(()) for name in ("ambiguity", "novelty", "normalizer")}
        for costs, control, state in parts:
            costs = jax.tree.map(keep, costs)
            terms["risk"] = terms["risk"] + (control * costs.control).sum()
            terms["ambiguity"] = terms["ambiguity"] + (state * costs.ambiguity).sum()
            terms["novelty"] = terms["novelty"] + (state * costs.novelty).sum()
            terms["normalizer"] = terms["normalizer"] + costs.normalizer
    return terms


def _policy_masses(q: GenericPosterior) -> list[Array]:
    """q(x_{t-1}, u_t) for every t."""
    return [q.marginal([q.sites("state", t - 1), q.sites("control", t)]) for t in range(1, q.num_steps + 1)]


def _temporal_parts(q: GenericPosterior, objective: Objective) -> list[tuple[EpistemicCosts, Array, Array]]:
    parts = []
    for t in range(1, q.num_steps + 1):
        flow = q.marginal([q.sites("state", t - 1), q.sites("control", t), q.sites("state", t)])
        moved = flow.sum(-1)
        control, state = moved.sum(0), flow.sum((0, 1))
        entropy = divide((neg_entropy(moved) - neg_entropy(flow).sum(-1)).sum(0), control)
        evidence = {}
        for site in q.signature.observation:
            joint = q.marginal([q.parameters(), q.sites("state", t), [f"{site.name}_{t}"]])  # q(θ,x,y)
            weight = joint.sum(-1)
            evidence[site.name] = Dense(safe_log(divide(joint, weight[..., None]))).evidence(weight)
        costs = epistemic_costs(
            entropy, control, evidence, state, normalize=objective.normalize, weight=objective.weight
        )
        parts.append((costs, control, state))
    return parts


def _sequence_part(q: GenericPosterior, objective: Objective) -> tuple[EpistemicCosts, Array, Array]:
    steps = range(1, q.num_steps + 1)
    us, xs, ys = ([n for t in steps for n in q.sites(role, t)] for role in ("control", "state", "observation"))
    moves = q.marginal([us, xs])
    seen = q.marginal([xs, ys, q.parameters()])
    control = moves.sum(1)
    posterior = SequencePosterior(
        safe_log(control),
        safe_log(divide(moves, control[:, None])),
        safe_log(divide(seen, seen.sum((1, 2), keepdims=True))),
        None,  # type: ignore[arg-type]  # the costs need no tables of the model
    )
    return sequence_costs(posterior, mass(posterior), objective), control, moves.sum(0)


def generic_marginals(q: GenericPosterior) -> Marginals:
    steps = range(1, q.num_steps + 1)
    masses = _policy_masses(q)
    return Marginals(
        control=jnp.stack([m.sum(0) for m in masses]),
        policy=jnp.stack([normalize(m) for m in masses]),
        state=jnp.stack([q.marginal([q.sites("state", t)]) for t in range(q.num_steps + 1)]),
        parameter=q.marginal([q.parameters()]) if q.parameters() else jnp.ones(1),
        observation={
            site.name: jnp.stack([q.marginal([[f"{site.name}_{t}"]]) for t in steps])
            for site in q.signature.observation
        },
    )


class GenericGuide(TableGuide):
    """An ordinary NumPyro guide where a planner expects tables."""

    def __init__(self, model: Callable[..., Any], guide: Callable[..., Any]):
        super().__init__(model)
        self.guide = guide
        self.scope = getattr(guide, "scope", "temporal")

    def parameters(self, world: World, num_steps: int) -> dict[str, tuple[tuple[int, ...], Initial]]:
        def run(key: Array) -> dict[str, Array]:
            found = plain_trace(seed(self.guide, key)).get_trace(_belief(world), horizon=num_steps)
            return {name: site["value"] for name, site in found.items() if site["type"] == "param"}

        shapes = jax.eval_shape(run, jax.random.key(0))

        def first(name: str) -> Initial:
            return lambda key: run(key)[name]

        return {name: (leaf.shape, first(name)) for name, leaf in shapes.items()}

    def posterior(self, world: World, params: Mapping[str, Array], num_steps: int) -> GenericPosterior:
        return enumerate_guide(self.model, self.guide, params, _belief(world), num_steps, world.signature)

    def draw(self, world: World, posterior: Any, num_steps: int) -> None:
        self.guide(_belief(world), horizon=num_steps)

    def check(self, world: World, num_steps: int) -> None:
        check_guide(self.model, self.guide, _belief(world), num_steps)


def _belief(world: World) -> Belief:
    return Belief(jnp.exp(world.parameter), jnp.exp(world.initial))
