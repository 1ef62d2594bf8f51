"""The sequence guide q(u) q(x|u) q(y,θ|x): the paper's factorisation over whole sequences, exponential in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from npro_aif.errors import GuideError
from npro_aif.guides.base import START, Params, Start, Table, TableGuide, named, sizes, zeros
from npro_aif.inference.objectives import Objective
from npro_aif.inference.sequence import FLOOR, SequencePosterior, SequenceTables, check_open, sequence_tables
from npro_aif.language import chain
from npro_aif.numerics import NEVER, is_concrete
from npro_aif.program.signature import Site, join
from npro_aif.sizes import MOST_SEQUENCE_LOGITS
from npro_aif.tables.world import World

CONTROL, STATE, EMISSION = "control_logits", "state_logits", "emission_logits"  # the guide's own names


class Prepared(NamedTuple):
    """The world's tables, and the terms added to the logits: starting values, and NEVER outside the support."""

    tables: SequenceTables
    control: Array  # (N_u,) or ()
    state: Array  # (N_u, N_x) the dynamics log p(x|u)
    emission: Array  # (N_x, N_y, Θ) or ()


class SequenceGuide(TableGuide):
    """A NumPyro program for the sequence factorisation.

    :param model: the program whose sites the guide draws.
    :param support: "model" restricts q's tables to p's support; "all" leaves them unrestricted and raises the
        model's probabilities to 1e-10, as the paper's code does.
    :param max_logits: refuse tables with more logits than this.
    :param start: where its logits begin; by default q(u) at N(0,1), q(x|u) at the dynamics and q(y,θ|x) uniform.

    >>> from numpyro.infer import Predictive
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> guide = SequenceGuide(tmaze)
    >>> draws = Predictive(guide, num_samples=3)(jax.random.key(0), initial_belief(), horizon=1)
    >>> sorted(draws)
    ['cue_1', 'theta', 'u_1', 'x_0', 'x_1']
    """

    scope = "sequence"
    checks_beliefs = True

    def __init__(
        self,
        model: Callable[..., Any],
        support: Literal["model", "all"] = "model",
        max_logits: int = MOST_SEQUENCE_LOGITS,
        start: Start = START,
    ):
        super().__init__(model, start)
        if support not in ("model", "all"):
            raise ValueError(f"support: found {support!r}, expected 'model' or 'all'")
        self.support = support
        self.max_logits = max_logits

    def shapes(self, world: World, num_steps: int) -> dict[str, tuple[int, ...]]:
        signature = world.signature
        num_u, num_x, num_y = (
            n**num_steps for n in (signature.num_controls, signature.num_states, signature.num_observations)
        )
        return {
            CONTROL: (num_u,),
            STATE: (num_u, num_x),
            EMISSION: (num_x, num_y, world.parameter.shape[0]),
        }

    def tables(self, world: World, num_steps: int) -> dict[str, Table]:
        shapes = self.shapes(world, num_steps)
        return {
            CONTROL: Table("control", ("plan",), shapes[CONTROL], jax.random.normal),
            STATE: Table("state", ("plan", "states"), shapes[STATE], zeros),  # relative to the dynamics
            EMISSION: Table("observation", ("states", "sights", "parameter"), shapes[EMISSION], zeros),  # uniform
        }

    def check(self, world: World, num_steps: int) -> None:
        check_open(world)
        shapes = self.shapes(world, num_steps)
        count = sum(int(np.prod([float(n) for n in shape])) for shape in shapes.values())
        if count > self.max_logits:
            raise GuideError(
                f"SequenceGuide: its tables would have {count:,} logits at horizon {num_steps}, expected at most "
                f"{self.max_logits:,}; use TemporalGuide, or raise max_logits"
            )
        if self.support == "model":
            _check_support(world)

    def prepare(self, world: World, num_steps: int) -> Prepared:
        """Everything that does not depend on the logits."""
        tables = sequence_tables(world, num_steps, floor=FLOOR if self.support == "all" else 0.0)
        states, plan = tables.whole(tables.states), tables.whole(tables.plan)
        dynamics = states[0] if states.shape[0] == 1 else jax.nn.logsumexp(states + world.parameter[:, None, None], 0)
        if self.support == "all":
            return Prepared(tables, jnp.zeros(()), dynamics, jnp.zeros(()))
        allowed, possible = (plan > NEVER / 2).any((0, 2)), (plan > NEVER / 2).any(0)
        return Prepared(
            tables,
            jnp.where(allowed, 0.0, NEVER),
            jnp.where(possible, dynamics, NEVER),
            jnp.where(tables.emission > NEVER / 2, 0.0, NEVER),
        )

    def loss_function(self, objective: Objective, world: World, num_steps: int) -> Callable[[Params], Array]:
        prepared = self.prepare(world, num_steps)  # once, not at every step
        return lambda params: objective.free_energy(world, self.posterior(world, params, num_steps, prepared))

    def posterior(
        self, world: World, params: Params, num_steps: int, prepared: Prepared | None = None
    ) -> SequencePosterior:
        """The posterior of these logits.

        :param prepared: the result of :meth:`prepare`, if it was computed before.
        """
        prepared = self.prepare(world, num_steps) if prepared is None else prepared
        emission = params[EMISSION] + prepared.emission
        flat = emission.reshape(emission.shape[0], -1)
        return SequencePosterior(
            jax.nn.log_softmax(params[CONTROL] + prepared.control),
            jax.nn.log_softmax(params[STATE] + prepared.state),
            jax.nn.log_softmax(flat).reshape(emission.shape),
            prepared.tables,
        )

    def draw(self, world: World, posterior: SequencePosterior, num_steps: int) -> None:
        signature, steps = world.signature, range(1, num_steps + 1)
        u, u_first = _draw_sequence(signature.control, steps, jnp.exp(posterior.control))
        x, x_first = _draw_sequence(signature.state, steps, jnp.exp(posterior.state)[u])
        emission = jnp.exp(posterior.emission)[x]
        names = _sequence_names(signature.observation, steps) | named(signature.parameter)
        lengths = sizes(signature.observation) * num_steps + sizes(signature.parameter)
        values = chain(names, lengths, emission.reshape((*emission.shape[:-2], -1)))
        theta = join(values, signature.parameter)
        origin = posterior.tables.origin[theta, u_first, x_first]
        chain(named(signature.state, "_0"), sizes(signature.state), origin)


def _sequence_names(sites: tuple[Site, ...], steps: range) -> dict[str, Any]:
    return {f"{name}_{t}": draw for t in steps for name, draw in named(sites, f"_{t}").items()}


def _draw_sequence(sites: tuple[Site, ...], steps: range, probs: Array) -> tuple[Array, Array]:
    """Draw a whole sequence; returns its flat index and the flat index of its first slice."""
    values = chain(_sequence_names(sites, steps), sizes(sites) * len(steps), probs)
    slices = [join({site.name: values[f"{site.name}_{t}"] for site in sites}, sites) for t in steps]
    flat, num = slices[0], int(np.prod(sizes(sites)))
    for value in slices[1:]:
        flat = flat * num + value
    return flat, slices[0]


def _check_support(world: World) -> None:
    """Refuse dynamics whose support depends on θ: q(x|u) q(θ|x) could not avoid log 0."""
    if not is_concrete(world):
        return
    live = np.asarray(world.parameter) > -np.inf
    moves = np.asarray(world.state.possible)  # (T|1, Θ|1, X|1, U|1, X')
    start, allowed = np.asarray(world.initial) > -np.inf, np.asarray(world.control[0]) > -np.inf
    first = (start[:, :, None, None] & allowed[None, :, :, None] & moves[0]).any(1)  # (Θ, U, X') from any x0
    for name, possible in (
        (world.signature.state[0].name + "_t", np.moveaxis(moves, 1, 0)),
        (world.signature.state[0].name + "_0", first),
    ):
        rows = possible[live] if possible.shape[0] == len(live) else possible
        if (rows != rows[:1]).any():
            raise GuideError(
                f"SequenceGuide: site '{name}': what is possible depends on the parameter "
                f"({', '.join(s.name for s in world.signature.parameter)}), so q(x|u) q(θ|x) has infinite free energy; "
                "expected the same support for every θ, or use TemporalGuide"
            )
