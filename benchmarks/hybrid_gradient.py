"""The gradient of the paper's temporal code as a row of the Reactivity Maze; Table 2 has `Active(gradient="fixed")`.

There log p̃(u_t) is differentiated through q(u|x) alone, ambiguity and novelty through q(x) alone, and nothing
epistemic reaches q(θ). The value of F is the same.

    python benchmarks/hybrid_gradient.py [--episodes 200]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import npro_aif as aif
from npro_aif.acting.run import run_episodes
from npro_aif.experiments.agents import vfe_agent
from npro_aif.experiments.summary import wilson
from npro_aif.experiments.tasks import Settings, make_task
from npro_aif.inference.posterior import Terms

held = jax.lax.stop_gradient


@dataclass(frozen=True, eq=False)
class Hybrid(aif.Active):
    """F_active of a temporal posterior; what is held while stepping is as in the paper's code."""

    def evaluate(self, part: Any) -> Terms:
        """The terms that are not epistemic."""
        return self.combine(part, None)

    def terms(self, world: Any, posterior: Any) -> Terms:
        plain = posterior.terms(world, self.evaluate)
        without_theta = posterior._replace(parameter=held(posterior.parameter))
        states = without_theta.terms(world, self.of_states)
        fixed = jax.tree.map(held, posterior)._replace(control=posterior.control)  # the policy alone
        controls = fixed.terms(world, self.of_controls)
        risk = plain["risk"] + controls["risk"]
        normalizer = states["normalizer"] + controls["normalizer"]
        return plain | {"risk": risk, "ambiguity": states["ambiguity"], "novelty": states["novelty"],
                        "normalizer": normalizer}  # fmt: skip

    def of_states(self, part: Any) -> Terms:
        """−E_q[log p̃(x) + log p̃(y,x)], its tables held."""
        priors = held(self.priors(part))
        costs, state = priors.costs(), part.state()
        total = sum(priors.normalizers.state.values()) + sum(priors.normalizers.observation.values())
        return {
            "ambiguity": (state * costs.ambiguity).sum(),
            "novelty": (state * costs.novelty).sum(),
            "normalizer": total,
        }

    def of_controls(self, part: Any) -> Terms:
        """−E_q[log p̃(u)]; only the policy of this slice carries a gradient."""
        part = part._replace(flow=part.flow._replace(before=held(part.flow.before), seen=held(part.flow.seen)))
        priors = self.priors(part)
        return {"risk": -(part.control() * priors.control).sum(), "normalizer": priors.normalizers.control}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--details", action="store_true", help="with the details of the code")
    arguments = parser.parse_args()
    settings = Settings(paper=True, details=arguments.details)
    task = make_task("reactivity", paper=True, details=arguments.details)
    agent = vfe_agent(task._replace(active=Hybrid(normalize=True)), settings)
    episodes = run_episodes(task.worlds(), agent, range(arguments.episodes)).episodes
    outcomes = [task.outcome(episode) for episode in episodes]
    rates = []
    for name in ("success", "safe", "cue"):
        count = sum(bool(one[name]) for one in outcomes)
        low, high = wilson(count, len(outcomes))
        rates.append(f"{name} {count / len(outcomes):.1%} [{low:.1%}, {high:.1%}]")
    reward = [episode.reward for episode in episodes]
    print(f"{len(episodes)} episodes: {', '.join(rates)}, reward {np.mean(reward):+.2f} ± {np.std(reward):.2f}")


if __name__ == "__main__":
    main()
