"""The three objectives, as NumPyro losses.

    F_marginal = E_q[log q − log p − log p̂]
    F_planning = F_marginal + Σ_t H[q(u_t|x_{t-1})]
    F_active   = F_marginal − E_q[log p̃(u) + log p̃(x) + log p̃(y,x)]  (+ Σ_t H[q(u_t|x_{t-1})])

An objective is a small value that adds up the statistics of a posterior's parts; F is computed here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from numpyro.infer.elbo import ELBO

from npro_aif.inference.epistemic import COSTS, EpistemicCosts, EpistemicPriors, Weights, epistemic_priors
from npro_aif.inference.generic import generic_posterior
from npro_aif.inference.posterior import Part, Posterior, Terms
from npro_aif.numerics import is_concrete, without_gradient
from npro_aif.tables.world import World

TERMS = ("risk", "ambiguity", "novelty", "complexity", "plan_prior", "correction", "normalizer")


def _held(argument: Any) -> Any:
    """An argument of a model, through which differentiation is refused."""
    return argument if is_concrete(argument) else without_gradient(argument)


class Objective(ELBO):
    """A free energy that is evaluated exactly, without sampling.

    For an objective of your own, derive a frozen dataclass and override

    - :meth:`priors`, if it is F_marginal with other epistemic priors: every solver can minimise it; or
    - :meth:`combine`, if it is anything else: F is then the sum of the terms that it returns, and has no closed form
      (write ``closed_form = True`` in the class if it has the closed form given by ``correction`` and ``priors``).

    Equal settings make equal objectives.
    """

    can_infer_discrete = True
    num_particles = 1
    vectorize_particles = True

    gradient: str = "fixed"  # whether the epistemic costs are held while stepping ("fixed"), or differentiated too
    closed_form: ClassVar[bool] = True  # whether coordinate updates minimise it

    def __init__(self) -> None:  # ELBO's own takes the number of particles, of which there are none
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Withdraw the closed form where a class computes F in its own way and does not claim one."""
        super().__init_subclass__(**kwargs)
        attributes = vars(cls)
        if "closed_form" not in attributes and any(
            name in attributes for name in ("combine", "evaluate", "terms", "free_energy")
        ):
            cls.closed_form = False

    @property
    def correction(self) -> bool:
        """Whether Σ_t H[q(u_t|x_{t-1})] is added."""
        return False

    def priors(self, part: Part) -> EpistemicPriors | None:
        """The epistemic priors at one part; None where there are none."""
        return None

    @property
    def epistemic(self) -> bool:
        """Whether there are epistemic priors."""
        return type(self).priors is not Objective.priors

    def costs(self, part: Part) -> EpistemicCosts | None:
        """The epistemic priors as costs of controls and states."""
        priors = self.priors(part)
        return None if priors is None else priors.costs()

    @property
    def descends(self) -> bool:
        """Whether its epistemic terms have derivatives in closed form (:mod:`npro_aif.inference.derivatives`)."""
        return False

    @property
    def weights(self) -> Weights:
        """The weight of each epistemic prior."""
        return Weights(0.0, 0.0, 0.0)

    def combine(self, part: Part, costs: EpistemicCosts | None) -> Terms:
        """The terms of one part, given its epistemic costs (see :meth:`terms`)."""
        terms = {"risk": -part.preference(), "complexity": part.complexity(), "plan_prior": part.plan_prior()}
        if self.correction:
            terms["correction"] = part.policy_entropy()
        if costs is not None:
            state = part.state()
            terms["risk"] += (part.control() * costs.control).sum()
            terms["ambiguity"] = (state * costs.ambiguity).sum()
            terms["novelty"] = (state * costs.novelty).sum()
            if costs.normalizer is not None:
                terms["normalizer"] = costs.normalizer
        return terms

    def evaluate(self, part: Part) -> Terms:
        """The terms of one part; the epistemic costs are held constant under ``gradient="fixed"``."""
        costs = self.costs(part)
        if costs is not None:
            costs = jax.lax.stop_gradient(costs) if self.gradient == "fixed" else costs
            costs = checkpoint_name(costs, COSTS)
        return self.combine(part, costs)

    def terms(self, world: World, posterior: Posterior) -> Terms:
        """The free energy's terms, which sum to F; w is ``weight`` times the weight of the single prior.

        - ``risk``: −E_q[log p̂], for Active − w_entropy · E_q[H[q(x|u)]] with it: for a weight of one this is the
          expected log q(x|u)/p̂(x);
        - ``ambiguity``: w_ambiguity · E_q[H[q(y|x,θ)]] (Active);
        - ``novelty``: −w_novelty · E_q[KL[q(θ|y,x) ‖ q(θ|x)]] (Active; negative: information lowers F);
        - ``complexity``: E_q[log q(y,x,θ|u) − log p(y,x,θ|u)];
        - ``plan_prior``: E_q[log q(u) − log p(u)];
        - ``correction``: Σ_t H[q(u_t|x_{t-1})] (Planning, and Active with the planning correction);
        - ``normalizer``: the log normalisers of the epistemic priors (Active with ``normalize=True``).
        """
        return posterior.terms(world, self.evaluate)

    def free_energy(self, world: World, posterior: Posterior) -> Array:
        """F, the sum of :meth:`terms`."""
        return sum(self.terms(world, posterior).values())  # type: ignore[return-value]

    def loss(
        self,
        rng_key: Array,
        param_map: Mapping[str, Array],
        model: Callable[..., Any],
        guide: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Array:
        """F of the guide with the parameters ``param_map``; the key is not used."""
        if self.epistemic and self.gradient == "fixed":  # held costs do not change with the belief
            args, kwargs = jax.tree.map(_held, (args, kwargs))
        tables_of = getattr(guide, "world_and_posterior", None)  # the faster way of table guides
        if tables_of is not None:
            return self.free_energy(*tables_of(model, param_map, *args, **kwargs))
        return self.free_energy(*generic_posterior(model, guide, param_map, *args, **kwargs))

    def loss_with_mutable_state(
        self, rng_key: Array, param_map: Any, model: Any, guide: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return {"loss": self.loss(rng_key, param_map, model, guide, *args, **kwargs), "mutable_state": None}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))


@dataclass(frozen=True, eq=False)
class Marginal(Objective):
    """F_marginal: the plain variational free energy with preferences (KL control).

    >>> Marginal() == Marginal(), Marginal() == Planning()
    (True, False)
    """


@dataclass(frozen=True, eq=False)
class Planning(Objective):
    """F_planning: the entropy correction makes the policy a maximiser, not a sampler.

    An objective is also a loss for NumPyro's own SVI, with the package's guides or your own.

    >>> import jax, optax
    >>> from numpyro.infer import SVI
    >>> from npro_aif.guides import TemporalGuide
    >>> from npro_aif.models.tmaze import tmaze, initial_belief
    >>> svi = SVI(tmaze, TemporalGuide(tmaze), optax.adam(0.05), loss=Planning())
    >>> state = svi.init(jax.random.key(0), initial_belief(), horizon=1)
    >>> state, loss = jax.jit(svi.update, static_argnames="horizon")(state, initial_belief(), horizon=1)
    >>> loss.shape
    ()
    """

    @property
    def correction(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Active(Objective):
    """F_active: epistemic priors make information valuable.

    :param normalize: divide each epistemic prior by its sum (softmax over its own domain).
    :param gradient: "fixed" holds the epistemic costs constant while stepping (the fixed-point reading), "through"
        differentiates them too. The value of F is the same.
    :param planning_correction: add Σ_t H[q(u_t|x_{t-1})], as in F_planning.
    :param weight: scales log p̃.
    :param entropy: scales log p̃(u), the entropy of moves, in addition to ``weight``. With 0, noise as such attracts no
        plan.
    :param ambiguity: scales log p̃(x), the ambiguity of observations, in addition to ``weight``. With 0, a noisy sensor
        counts only by the information that it brings.
    :param novelty: scales log p̃(y,x), the information that observations bring, in addition to ``weight``.
    :param evidence: several observation sites tell what they tell together ("joint"), or the sum of what each tells
        ("sites"), which counts the same information several times.

    >>> Active(weight=0.1).weights
    Weights(entropy=0.1, ambiguity=0.1, novelty=0.1)
    >>> Active.information_gain(weight=0.5).weights
    Weights(entropy=0.0, ambiguity=0.0, novelty=0.5)
    >>> Active.risk().weights
    Weights(entropy=1.0, ambiguity=0.0, novelty=0.0)
    """

    normalize: bool = False
    gradient: Literal["fixed", "through"] = "fixed"
    planning_correction: bool = True
    weight: float = 1.0
    evidence: Literal["joint", "sites"] = "joint"
    entropy: float = 1.0
    ambiguity: float = 1.0
    novelty: float = 1.0

    @classmethod
    def information_gain(cls, weight: float = 1.0, **switches: Any) -> Active:
        """The information that observations bring, and nothing else: neither noise nor certainty is sought as such."""
        return cls(weight=weight, entropy=0.0, ambiguity=0.0, **switches)

    @classmethod
    def risk(cls, weight: float = 1.0, **switches: Any) -> Active:
        """The entropy of moves, and nothing else: with it −E[log p̂] is the risk E[log q(x|u)/p̂(x)] of where one gets.

        Observations, and what they tell, do not count.
        """
        return cls(weight=weight, ambiguity=0.0, novelty=0.0, **switches)

    def __post_init__(self) -> None:
        if self.evidence not in ("joint", "sites"):
            raise ValueError(f"evidence: found {self.evidence!r}, expected 'joint' or 'sites'")
        if self.gradient not in ("fixed", "through"):
            raise ValueError(f"gradient: found {self.gradient!r}, expected 'fixed' or 'through'")
        for name in ("weight", "entropy", "ambiguity", "novelty"):
            value = getattr(self, name)
            if is_concrete(value) and not value >= 0:
                raise ValueError(f"{name}: found {value!r}, expected a number that is not negative")

    @property
    def correction(self) -> bool:
        return self.planning_correction

    def priors(self, part: Part) -> EpistemicPriors:
        joint = self.evidence == "joint"
        return epistemic_priors(part, normalize=self.normalize, weight=self.weights, joint=joint)

    @property
    def descends(self) -> bool:
        return not self.normalize and self.planning_correction and type(self).priors is Active.priors

    @property
    def weights(self) -> Weights:
        return Weights(self.weight * self.entropy, self.weight * self.ambiguity, self.weight * self.novelty)
