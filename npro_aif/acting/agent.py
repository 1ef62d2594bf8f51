"""An agent: it updates its belief with what it observes, plans anew at every step, and does the likeliest control.

What it needs from one step to the next is a value, :class:`AgentState`; everything else is settings.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
from jax import Array

from npro_aif.acting.decisions import Decider, Observation, Situation
from npro_aif.acting.filter import Filter
from npro_aif.acting.solutions import Solutions
from npro_aif.belief import Belief
from npro_aif.pickling import Portable
from npro_aif.planning.choose import TIE_TOLERANCE, Rule, key_words
from npro_aif.planning.functions import typed
from npro_aif.planning.plan import Plan
from npro_aif.planning.planner import Planner
from npro_aif.program.sharded import mean_state
from npro_aif.program.signature import Signature, flat_index, marginalize, split

Control = int | dict[str, int]
SPREAD = 1e-3  # a state counts as known if its most probable value has at least one minus this


class AgentState(NamedTuple):
    """Where an agent is in an episode."""

    belief: Belief  # with everything that was observed so far
    step: int  # how many controls were chosen so far
    control: int | None  # the last of them, flat
    key: tuple[int, ...] | None  # the episode's key as plain numbers, which draws between ties
    plans: tuple[Plan, ...]  # the plans that are kept, the latest last


class Agent(Portable):
    """Acts by planning: ``control = agent.act(observation)``.

    :param planner: an :class:`npro_aif.Planner`.
    :param belief: the belief before the first observation.
    :param horizon: how many steps to look ahead, the planner's largest by default.
    :param max_steps: the most steps of an episode; the horizon is never longer than the steps that are left.
    :param seed: of the solver's initial values. Step t of every episode starts from the same ones, so that equal
        beliefs give equal plans; only the way ties are broken differs between episodes (:meth:`reset`).
    :param warm_start: start each plan from the one before, shifted by one step, instead.
    :param ignore_impossible: leave out observations that the model thinks impossible, instead of raising.
    :param record: keep every plan, in ``agent.plans`` and in the ``plans`` of an :class:`npro_aif.Episode`. By default
        plans of :meth:`act` are kept, and plans of :func:`npro_aif.run_episodes`, which can be very many, are not.
    :param ties: "draw" between controls that are tied, by the key of :meth:`reset`, or take the "first" of them.
    :param tie_tolerance: controls whose probabilities (or costs) differ by at most this are tied; 0 is a bare argmax.
    :param act_by: take the control with the highest q(u_1) ("probability", the default), or the one with the least
        expected cost from the present belief ("cost"). Where the present state is not known q(u_1) is a vote of
        policies that see it.

    >>> import npro_aif as aif
    >>> from npro_aif.models import tmaze
    >>> solver = aif.CoordinateSolver(max_sweeps=20)
    >>> planner = aif.Planner(tmaze.tmaze, objective=aif.Active(), solver=solver, max_horizon=4)
    >>> agent = Agent(planner, tmaze.initial_belief(), max_steps=4)
    >>> tmaze.CONTROLS[agent.act({"cue": 0, "place": tmaze.START})]
    'South'
    """

    transient = ("_decider", "solutions")

    def __init__(
        self,
        planner: Planner,
        belief: Belief,
        horizon: int | None = None,
        max_steps: int | None = None,
        *,
        seed: int = 0,
        warm_start: bool = False,
        ignore_impossible: bool = False,
        record: bool | None = None,
        ties: Literal["draw", "first"] = "draw",
        tie_tolerance: float = TIE_TOLERANCE,
        act_by: Literal["probability", "cost"] | None = None,
    ):
        if act_by not in (None, "probability", "cost"):
            raise ValueError(f"act_by: found {act_by!r}, expected 'probability' or 'cost'")
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps: found {max_steps}, expected at least 1")
        self.planner = planner
        program = planner.program(belief, horizon)
        self.signature = program.signature
        self.initial_belief = planner.accepted(belief, horizon)
        self.horizon = int(horizon or planner.max_horizon or program.num_steps)
        self.max_steps = max_steps
        self.seed = seed
        self.warm_start = warm_start
        self.ignore_impossible = ignore_impossible
        self.record = record
        self.rule = Rule(ties, tie_tolerance)
        self.act_by = act_by
        # Whether to warn of a belief that is spread over states which the policy sees: perfect recall sees none.
        self._warn = act_by is None and not getattr(planner.guide, "recalls", False)
        self.restore()
        self.reset()

    def restore(self) -> None:
        self._decider = Decider(
            self.planner,
            self.initial_belief,
            self.horizon,
            ignore_impossible=self.ignore_impossible,
            by_cost=self.act_by == "cost",
        )
        self.solutions: Solutions | None = None  # problems solved before; new ones are added

    # --- One agent ---

    def reset(self, key: Array | None = None) -> None:
        """Begin an episode.

        :param key: draws between tied controls; without it the first of them is taken.
        """
        self.state = self.begin(key)

    def act(self, observation: Observation) -> Control:
        """The control to do next.

        :param observation: what was observed since the last control, or at the start; None if nothing was.
        """
        record = self.record is not False
        ((control, self.state),) = self.decide([self.state], [observation], self.solutions, record=record)
        return control

    def did(self, control: Control) -> None:
        """Say which control was really done after the last :meth:`act`, if not the one that it returned."""
        self.state = self.state._replace(control=flat_index(control, self.signature.control, "control"))

    def observe(self, observation: Observation) -> None:
        """Update the belief with the last control and the observation after it, without choosing the next control."""
        belief, step, control, *_ = self.state
        elapsed = max(step - 1, 0) if self.filter.program.takes_elapsed else 0
        belief = self.filter(
            belief, control, observation, ignore_impossible=self.ignore_impossible, step=step, elapsed=elapsed
        )
        self.state = self.state._replace(belief=belief)

    def learn(self) -> None:
        """Begin later episodes with the present belief about the parameters; the first states stay as they were.

        It costs nothing: the belief that is updated while acting is the posterior.
        """
        self.initial_belief = self.initial_belief._replace(parameter=typed(self.belief.parameter))

    @property
    def belief(self) -> Belief:
        """The present belief."""
        return self.state.belief

    @property
    def step(self) -> int:
        """How many controls were chosen in this episode."""
        return self.state.step

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of this episode, where they are recorded; with a warm start at least the latest."""
        return self.state.plans

    @property
    def filter(self) -> Filter:
        """The belief updates of the agent's program."""
        return self._decider.filter

    # --- Any number of agents ---

    def begin(self, key: Array | None = None) -> AgentState:
        """The state at the start of an episode; see :meth:`reset`."""
        return AgentState(self.initial_belief, 0, None, None if key is None else key_words(key), ())

    def decide(
        self,
        states: Sequence[AgentState],
        observations: Sequence[Observation],
        solutions: Solutions | None = None,
        *,
        record: bool,
    ) -> list[tuple[Control, AgentState]]:
        """The next control of several episodes that are all at the same step, and the state of each afterwards.

        :param observations: what was observed in each episode.
        :param solutions: problems solved before; new ones are added.
        :param record: keep the plans.
        """
        step = states[0].step
        situations = [
            Situation(
                state.belief,
                state.control,
                seen,
                state.plans[-1] if self.warm_start and state.plans else None,
            )
            for state, seen in zip(states, observations, strict=True)
        ]
        decisions = self._decider(
            situations,
            self.steps_ahead(step),
            self.seed,
            step,
            _planning_key(self.seed, step),
            whole=record or self.warm_start,
            solutions=solutions,
        )
        if self._warn:
            self._warn = False
            warn_of_spread(decisions[0].belief, self.signature)
        results = []
        for state, decision in zip(states, decisions, strict=True):
            control = self.rule.best(decision.control, state.key, step)
            newest = () if decision.plan is None else (decision.plan,)
            plans = state.plans + newest if record else newest
            results.append((self._by_site(control), AgentState(decision.belief, step + 1, control, state.key, plans)))
        return results

    def steps_ahead(self, step: int) -> int:
        """The horizon of the plan at a step."""
        if self.max_steps is None:
            return self.horizon
        if step >= self.max_steps:
            raise ValueError(
                f"act: found {step} steps done in an episode of max_steps={self.max_steps}, expected fewer; begin "
                "another with reset()"
            )
        return min(self.horizon, self.max_steps - step)

    def _by_site(self, control: int) -> Control:
        sites = self.signature.control
        if len(sites) == 1:
            return control
        return {name: int(value) for name, value in split(control, sites).items()}


def warn_of_spread(belief: Belief, signature: Signature) -> None:
    """Warn if the policy sees a state about which the belief is not certain."""
    state = mean_state(belief)
    for site in signature.state:
        known = float(marginalize(state, signature.state, site.name).max()) > 1 - SPREAD
        if site.hidden is None and not known:
            warnings.warn(
                f"the policy sees '{site.name}', the agent does not know it: write aif.state('{site.name}', …, "
                "hidden=True) if it stays unknown, hidden=False if it will be seen, or choose act_by",
                stacklevel=4,
            )
            return


@functools.lru_cache
def _planning_key(seed: int, step: int) -> Any:
    """The key of a plan's solver: the same at this step of every episode."""
    return jax.random.fold_in(jax.random.key(seed), step)
