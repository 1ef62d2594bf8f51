"""The paper's augmented generative model as a program: the epistemic priors are visible ``factor`` sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro.handlers import trace

from npro_aif.belief import Belief
from npro_aif.errors import GuideError
from npro_aif.inference.objectives import Objective
from npro_aif.inference.sequence import SequencePosterior
from npro_aif.inference.temporal import Slice, TemporalPosterior
from npro_aif.program.program import program_of
from npro_aif.program.signature import Site, join
from npro_aif.tables.world import World


def augmented(model: Callable[..., Any], posterior: Any, objective: Objective) -> Callable[..., None]:
    """The model with preferences and epistemic priors p̃(q) as factors, q held at ``posterior``.

    With a temporal posterior the sites are ``epistemic_u_1``, ``epistemic_x_1``, ``epistemic_y_1``, …; with a
    sequence posterior ``epistemic_u``, ``epistemic_x`` and ``epistemic_y``, over whole sequences. Minus the ELBO of
    this program is the free energy (less the planning correction, where it is on).

    :param posterior: a :class:`~npro_aif.Plan`, or what its ``complete()`` returns.

    >>> import jax, optax
    >>> from numpyro.handlers import seed
    >>> from npro_aif import Active, Planner, SVISolver
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> plan = Planner(tmaze, solver=SVISolver(optax.adam(0.05), 1))(jax.random.key(0), initial_belief(), horizon=1)
    >>> program = augmented(tmaze, plan, Active())
    >>> list(trace(seed(program, 0)).get_trace(initial_belief(), horizon=1))
    ['theta', 'x_0', 'u_1', 'x_1', 'cue_1', 'goal_1', 'epistemic_u_1', 'epistemic_x_1', 'epistemic_y_1']
    """
    q = posterior.complete() if hasattr(posterior, "complete") else posterior
    if not hasattr(q, "priors"):
        raise GuideError(
            f"posterior: found a {type(q).__name__}, whose epistemic priors are not tables, expected one of a "
            "TemporalGuide or SequenceGuide"
        )

    def program(belief: Belief, horizon: int) -> None:
        with trace() as sites:
            model(belief, horizon=horizon)
        if not objective.epistemic:
            return
        values = {name: site["value"] for name, site in sites.items() if site["type"] in ("sample", "deterministic")}
        world = (
            posterior.world()
            if hasattr(posterior, "world")
            else program_of(model, belief, horizon).world(belief, horizon)
        )
        FACTORS[q.scope](q, world, objective, values, horizon)

    return program


def _at(values: Mapping[str, Array], sites: tuple[Site, ...], t: int) -> Array:
    return join({site.name: values[f"{site.name}_{t}"] for site in sites}, sites)


def _temporal_factors(
    q: TemporalPosterior, world: World, objective: Objective, values: Mapping[str, Array], horizon: int
) -> None:
    """The priors at the values that were drawn, slice by slice."""
    signature, before = world.signature, q.start(world)
    theta = join({site.name: values[site.name] for site in signature.parameter}, signature.parameter)
    for t in range(1, horizon + 1):
        now = q.slice(world, jnp.asarray(t - 1), before)
        priors: Any = objective.priors(now)
        log = priors.log()
        u, x = _at(values, signature.control, t), _at(values, signature.state, t)
        context = now.loop.context(x, _at(values, signature.memory, t - 1), u)
        numpyro.factor(f"epistemic_u_{t}", log.control[u])
        numpyro.factor(f"epistemic_x_{t}", sum(table[context] for table in log.state.values()))
        seen = {site.name: values[f"{site.name}_{t}"] for site in signature.observation}
        if set(log.observation) != set(seen):  # all sites as one
            row = jnp.argmax(world.theta == jnp.asarray(theta)[..., None], axis=-1)
            seen = {"y": _joint_outcome(now, seen, row, now.loop.sight(x, u))}
        log_priors = [table[context, seen[name]] for name, table in log.observation.items()]
        numpyro.factor(f"epistemic_y_{t}", sum(log_priors, start=jnp.zeros(())))
        before = now.flow.after


def _joint_outcome(now: Slice, seen: Mapping[str, Array], theta: Array, sight: Array) -> Array:
    """The index of the outcomes of all sites among their joint outcomes (npro_aif.tables.joint)."""
    outcome: Any = 0
    for name, kernel in now.observation.items():
        if kernel.learnable:
            outcome = outcome * kernel.size + seen[name]
    if now.world.certain is not None:
        certain = now.world.certain.at(now.t)
        outcome = outcome * certain.size + certain.certain(theta, sight)
    return outcome


def _sequence_factors(
    q: SequencePosterior, world: World, objective: Objective, values: Mapping[str, Array], horizon: int
) -> None:
    signature = world.signature
    priors = q.priors(world, objective.priors)  # type: ignore[arg-type]

    def flat(sites: tuple[Site, ...], size: int) -> Any:
        index: Any = 0
        for t in range(1, horizon + 1):
            index = index * size + _at(values, sites, t)
        return index

    u = flat(signature.control, signature.num_controls)
    x = flat(signature.state, signature.num_states)
    y = flat(signature.observation, signature.num_observations)
    numpyro.factor("epistemic_u", priors.control[u])
    numpyro.factor("epistemic_x", priors.state["y"][x])
    numpyro.factor("epistemic_y", priors.observation["y"][x, y])


FACTORS: dict[str, Callable[..., None]] = {"temporal": _temporal_factors, "sequence": _sequence_factors}
