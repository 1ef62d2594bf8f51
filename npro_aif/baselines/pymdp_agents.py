"""The peers as agents: pymdp's Standard EFE and Sophisticated Inference.

pymdp infers states, scores plans and searches the tree; the mapping of the world (:mod:`.adapter`) and the agents'
common part (:mod:`.acting`) are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif.baselines.acting import Acting, Method, Model, by_first_control
from npro_aif.baselines.adapter import CLOCK, TRANSLATION, Arrays, Translation, check_size, pymdp_arrays
from npro_aif.baselines.tables import MAX_BYTES, dense_tables
from npro_aif.belief import Belief

Beliefs = list[jax.Array]  # by factor, (1, 1, values): pymdp's axes of batch and time come first


class Search(NamedTuple):
    """The settings of pymdp's ``si_policy_search``."""

    max_nodes: int = 5000  # pymdp's default; where a level does not fit, pymdp goes back to the level before
    policy_prune_threshold: float = 1 / 16  # pymdp's default
    observation_prune_threshold: float = 1 / 16  # pymdp's default
    entropy_stop_threshold: float = 0.5  # pymdp's default
    prune_penalty: float = 512.0  # pymdp's default


SEARCH = Search()


def require_pymdp() -> None:
    """Raise an error that says what to install if pymdp is missing."""
    try:
        import pymdp.agent  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "pymdp is not installed, which the methods 'efe' and 'sophisticated' need: "
            "pip install 'npro-aif[baselines]'"
        ) from error


def pymdp_agent(arrays: Arrays, plans: np.ndarray, **settings: Any) -> Any:
    """A ``pymdp.agent.Agent`` with one of each array.

    :param plans: pymdp's policies, (plans, steps, factors).
    """
    require_pymdp()
    from pymdp.agent import Agent

    def single(tables: list[np.ndarray]) -> list[jax.Array]:
        return [jnp.asarray(table, jnp.float32)[None] for table in tables]

    return Agent(
        A=single(arrays.A),
        B=single(arrays.B),
        C=single(arrays.C),
        D=single(arrays.D),
        A_dependencies=arrays.A_dependencies,
        B_dependencies=arrays.B_dependencies,
        num_controls=[b.shape[-1] for b in arrays.B],
        policies=jnp.asarray(plans, jnp.int32),
        **settings,
    )


class PymdpAgent(Acting):
    """Perception by pymdp, in which every observation site is a modality, ``plan=False`` or not.

    :param sensors: whether observations with ``plan=False`` take part in planning.
    :param translation: how the world is translated into pymdp's terms.
    :param jit: put ``jax.jit`` around the calls of pymdp, which itself has none around most of them; otherwise the
        calls are made as in pymdp's README, and take up to thousands of times longer.
    """

    method: Method

    def __init__(
        self,
        model: Model,
        belief: Belief,
        horizon: int,
        max_steps: int | None,
        gamma: float,
        stochastic: bool,
        remember: bool,
        sensors: bool,
        translation: Translation,
        jit: bool,
    ):
        require_pymdp()
        super().__init__(model, belief, horizon, max_steps, gamma=gamma, stochastic=stochastic, remember=remember)
        check_size(self.signature, self.horizon, self.method, MAX_BYTES)
        self.sensors, self.translation = sensors, translation
        self._jit: Callable[[Any], Any] = jax.jit if jit else lambda function: function
        self._decisions: dict[int, Callable[[Beliefs], np.ndarray]] = {}
        self._clock: int | None = None
        arrays = self._arrays(self.horizon, sensors=True).without_goal()
        if arrays.factors[-1] == CLOCK:
            self._clock = self.horizon
        self._perceive = self._perception(arrays)
        self.reset()

    def reset(self, key: Any = None) -> None:
        super().reset(key)
        self.beliefs: Beliefs | None = None

    def prepare(self) -> None:
        """Build and compile everything that an episode needs, once; before the episode is begun."""
        if len(self._decisions) == self.horizon:
            return
        nothing = [np.zeros((1, 1), np.int32) for _ in self.signature.observation + self.signature.sensor]
        self.beliefs = self._perceive(self._perceive(None, None, nothing), 0, nothing)
        for horizon in range(1, self.horizon + 1):
            self._score(horizon)
        self.reset()

    def observe(self, observation: Mapping[str, int]) -> None:
        sites = self.signature.observation + self.signature.sensor
        missing = [site.name for site in sites if site.name not in observation]
        if missing:
            raise ValueError(f"observation: site '{missing[0]}' is missing, found {sorted(observation)}")
        seen = [np.full((1, 1), observation[site.name], np.int32) for site in sites]  # JAX would take longer
        self.beliefs = self._perceive(self.beliefs, self.control, seen)

    def _known(self) -> np.ndarray:
        return np.concatenate([np.asarray(factor).ravel() for factor in self._now()])

    def _score(self, horizon: int) -> np.ndarray:
        if horizon not in self._decisions:
            self._decisions[horizon] = self._decision(horizon)
        return self._decisions[horizon](self._now())

    def _now(self) -> Beliefs:
        """The beliefs with the clock, if there is one, set to the start of a plan."""
        if self.beliefs is None:
            raise RuntimeError("scores: found no belief yet, expected an observation first (act)")
        if self._clock is None:
            return self.beliefs
        start = np.zeros(self.beliefs[-1].shape, self.beliefs[-1].dtype)
        start[..., 0] = 1.0
        return [*self.beliefs[:-1], start]  # type: ignore[list-item]  # as good as JAX's

    def _arrays(self, horizon: int, sensors: bool) -> Arrays:
        tables = dense_tables(self.model, self.initial_belief, horizon, sensors=sensors)
        return pymdp_arrays(tables, self.translation, clock=self._clock)

    def _perception(self, arrays: Arrays) -> Callable[[Beliefs | None, int | None, list[np.ndarray]], Beliefs]:
        plans = arrays.plans(self.signature.num_controls, 1)
        agent = pymdp_agent(arrays, plans)
        begin = self._jit(lambda seen: agent.infer_states(seen, agent.D))
        go_on = self._jit(
            lambda beliefs, moves, seen: agent.infer_states(seen, agent.update_empirical_prior(moves, beliefs))
        )

        def perceive(beliefs: Beliefs | None, control: int | None, seen: list[np.ndarray]) -> Beliefs:
            if beliefs is None or control is None:
                return begin(seen)
            return go_on(beliefs, plans[control], seen)

        return perceive

    def _decision(self, horizon: int) -> Callable[[Beliefs], np.ndarray]:
        """Scores of the controls from beliefs, with this many steps to go."""
        raise NotImplementedError

    def _by_control(self, q_plan: jax.Array, first: np.ndarray) -> np.ndarray:
        """(1/γ) log q(plan), which is −EFE up to a constant, by first controls."""
        log = np.log(np.maximum(np.asarray(q_plan, np.float64), np.finfo(np.float32).tiny))
        return by_first_control(log / self.gamma, first, self.signature.num_controls, self.gamma, self.stochastic)


class StandardEFE(PymdpAgent):
    """pymdp's ``Agent.infer_policies`` over all plans of the horizon.

    :param sensors: whether observations with ``plan=False`` count as information in planning; by default they serve
        perception only, as the model says.
    :param gamma: pymdp's precision over plans.
    """

    method = "efe"

    def __init__(
        self,
        model: Model,
        belief: Belief,
        horizon: int,
        max_steps: int | None = None,
        *,
        gamma: float = 16.0,
        stochastic: bool = False,
        remember: bool = True,
        sensors: bool = False,
        translation: Translation = TRANSLATION,
        jit: bool = True,
    ):
        super().__init__(model, belief, horizon, max_steps, gamma, stochastic, remember, sensors, translation, jit)

    def _decision(self, horizon: int) -> Callable[[Beliefs], np.ndarray]:
        tables = dense_tables(self.model, self.initial_belief, horizon)
        sequences = np.indices((tables.num_controls,) * horizon).reshape(horizon, -1).T
        prior = np.exp(tables.control[sequences].sum(1))
        arrays = self._arrays(horizon, self.sensors)
        plans = arrays.plans(tables.num_controls, horizon)
        agent = pymdp_agent(arrays, plans, gamma=self.gamma, E=jnp.asarray(prior / prior.sum()))
        infer = self._jit(lambda beliefs: agent.infer_policies(beliefs)[0][0])  # closed over: hashing plans is slow
        return lambda beliefs: self._by_control(infer(beliefs), sequences[:, 0])


class Sophisticated(PymdpAgent):
    """pymdp's tree search over controls and observations, ``pymdp.planning.si``.

    The goal is never observed, so with ``goal="silent"`` it does not branch: its utility enters through the search's
    own ``predict_fn``. pymdp's search has no prior over controls.

    :param sensors: whether observations with ``plan=False`` are expected in planning; by default they are, as later
        controls can depend on nothing else.
    :param gamma: pymdp's precision, with which the agent expects itself to choose.
    """

    method = "sophisticated"

    def __init__(
        self,
        model: Model,
        belief: Belief,
        horizon: int,
        max_steps: int | None = None,
        *,
        gamma: float = 16.0,
        stochastic: bool = False,
        remember: bool = True,
        sensors: bool = True,
        translation: Translation = TRANSLATION,
        search: Search = SEARCH,
        jit: bool = True,
    ):
        self.search = search
        super().__init__(model, belief, horizon, max_steps, gamma, stochastic, remember, sensors, translation, jit)

    def _decision(self, horizon: int) -> Callable[[Beliefs], np.ndarray]:
        from pymdp.planning import si

        arrays = self._arrays(horizon, self.sensors)
        num_controls = self.signature.num_controls
        plans = arrays.plans(num_controls, 1)
        seen = self.translation.goal == "seen"
        agent = pymdp_agent(arrays if seen else arrays.without_goal(), plans)
        search = si.si_policy_search(
            horizon=horizon,
            gamma=self.gamma,
            max_branching=self._branching(arrays, num_controls),
            predict_fn=si.predict_fn if seen else _with_utility(arrays),
            **self.search._asdict(),
        )
        key = jax.random.key(0)  # asked for, but the search draws nothing
        infer = self._jit(lambda beliefs: search(agent, beliefs, key)[0][0])
        return lambda beliefs: self._by_control(infer(beliefs), np.arange(num_controls))

    def _branching(self, arrays: Arrays, num_controls: int) -> int:
        """Room for all controls, and for all observations that are not pruned."""
        seen = math.prod(len(a) for a in arrays.A)
        least = max(self.search.observation_prune_threshold, 1 / seen)  # fewer than 1/least are likelier than that
        return max(num_controls, math.ceil(1 / least))


def _with_utility(arrays: Arrays) -> Callable[..., Any]:
    """What ``predict_fn`` of pymdp says for the arrays without their goal, with the goal's utility added."""
    from pymdp.control import compute_expected_obs, compute_expected_utility
    from pymdp.planning.si import predict_fn

    goal, preference = jnp.asarray(arrays.A[-1], jnp.float32), jnp.asarray(arrays.C[-1], jnp.float32)
    dependencies = arrays.A_dependencies[-1:]

    def utility(states: list[jax.Array]) -> jax.Array:
        return compute_expected_utility(compute_expected_obs(states, [goal], dependencies), [preference])

    def predict(agent: Any, beliefs: Beliefs) -> tuple[Beliefs, Beliefs, jax.Array]:
        states, seen, score = predict_fn(agent, beliefs)
        return states, seen, score + jax.vmap(jax.vmap(utility))(states)  # over controls and over one step

    return predict
