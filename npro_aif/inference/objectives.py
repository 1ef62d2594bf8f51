"""The three objectives, as NumPyro losses.

    F_marginal = E_q[log q − log p − log p̂]
    F_planning = F_marginal + Σ_t H[q(u_t|x_{t-1})]
    F_active   = F_marginal − E_q[log p̃(u) + log p̃(x) + log p̃(y,x)]  (+ Σ_t H[q(u_t|x_{t-1})])

An objective is a small value that says which terms count; the posteriors know how to evaluate them exactly,
and :mod:`npro_aif.inference.generic` does so for any guide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import jax
from jax import Array
from numpyro.infer.elbo import ELBO

if TYPE_CHECKING:
    from npro_aif.inference.posterior import Posterior
    from npro_aif.program.program import World

TERMS = ("risk", "ambiguity", "novelty", "complexity", "plan_prior", "correction", "normalizer")


class Objective(ELBO):
    """A free energy that is evaluated exactly: no sampling, whatever the key."""

    can_infer_discrete = True

    epistemic = False  # whether the epistemic priors count
    correction = False  # whether Σ_t H[q(u_t|x_{t-1})] is added
    normalize = False
    gradient: Literal["fixed", "through"] = "fixed"
    weight: float = 1.0

    def __init__(self) -> None:
        super().__init__(num_particles=1)

    def terms(self, world: World, posterior: Posterior) -> dict[str, Array]:
        """The free energy's terms, which sum to F.

        - ``risk``: −E_q[log p̂], and for Active −weight · E_q[H[q(x|u)]] with it, so that it is the
          expected log q(x|u)/p̂(x);
        - ``ambiguity``: weight · E_q[H[q(y|x,θ)]] (Active);
        - ``novelty``: −weight · E_q[KL[q(θ|y,x) ‖ q(θ|x)]] (Active; negative: information lowers F);
        - ``complexity``: E_q[log q(y,x,θ|u) − log p(y,x,θ|u)];
        - ``plan_prior``: E_q[log q(u) − log p(u)];
        - ``correction``: Σ_t H[q(u_t|x_{t-1})] (Planning, and Active with the planning correction);
        - ``normalizer``: the log normalisers of the epistemic priors (Active with ``normalize=True``).
        """
        return posterior.terms(world, self)

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
        from npro_aif.guides import TableGuide
        from npro_aif.inference.generic import generic_free_energy

        if isinstance(guide, TableGuide):
            return guide.free_energy(self, model, param_map, *args, **kwargs)
        return generic_free_energy(self, model, guide, param_map, *args, **kwargs)

    def loss_with_mutable_state(
        self, rng_key: Array, param_map: Any, model: Any, guide: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return {"loss": self.loss(rng_key, param_map, model, guide, *args, **kwargs), "mutable_state": None}

    def _settings(self) -> tuple:
        return (type(self), self.epistemic, self.correction, self.normalize, self.gradient, float(self.weight))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Objective) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(self._settings())

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Marginal(Objective):
    """F_marginal: the plain variational free energy with preferences (KL control).

    >>> Marginal() == Marginal(), Marginal() == Planning()
    (True, False)
    """


class Planning(Objective):
    """F_planning: the entropy correction makes the policy a maximiser, not a sampler.

    An objective is a loss for NumPyro's own SVI too, with the package's guides or one's own.

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

    correction = True


class Active(Objective):
    """F_active: the epistemic priors make information valuable.

    :param normalize: divide each epistemic prior by its sum (softmax over its own domain).
    :param gradient: "fixed" holds the epistemic costs constant while stepping (the fixed-point reading), "through"
        differentiates them too. The value of F is the same.
    :param planning_correction: add Σ_t H[q(u_t|x_{t-1})], as in F_planning.
    :param weight: scales log p̃.

    >>> Active(weight=0.1)
    Active(normalize=False, gradient='fixed', planning_correction=True, weight=0.1)
    """

    epistemic = True

    def __init__(
        self,
        normalize: bool = False,
        gradient: Literal["fixed", "through"] = "fixed",
        planning_correction: bool = True,
        weight: float = 1.0,
    ):
        super().__init__()
        if gradient not in ("fixed", "through"):
            raise ValueError(f"gradient: found {gradient!r}, expected 'fixed' or 'through'")
        if not isinstance(weight, jax.core.Tracer) and not weight >= 0:
            raise ValueError(f"weight: found {weight!r}, expected a number that is not negative")
        self.normalize = bool(normalize)
        self.gradient = gradient
        self.correction = bool(planning_correction)
        self.weight = weight

    def __repr__(self) -> str:
        return (
            f"Active(normalize={self.normalize}, gradient={self.gradient!r}, planning_correction={self.correction}, "
            f"weight={self.weight})"
        )
