"""The marginals of a policy with perfect recall, added up while it is followed over the hypotheses."""

from __future__ import annotations

from typing import Any

import numpy as np

from npro_aif.solvers.search.branching import Branching
from npro_aif.tables.world import World


class Marginals:
    """The controls, observations and memories at each step, and their cost.

    :param world: the world with any of its parameters; it says what the policy sees and remembers.
    """

    def __init__(self, world: World, horizon: int):
        signature = world.signature
        self.world, self.horizon, self.num_states = world, horizon, signature.num_states
        self.num_memories = signature.num_memories
        kernels = world.observation | world.sensor
        self.sites = tuple(kernels)
        self.certain = [not kernel.learnable for kernel in kernels.values()]
        self.sizes = {site.name: site.size for site in signature.observation}
        num_rows = world.loop.num_classes(signature.num_states)
        self.control = np.zeros((horizon, world.num_controls))
        self._policy = np.zeros((horizon, num_rows, world.num_controls))
        self.state = np.zeros((horizon + 1, signature.num_states))
        self.memory = np.zeros((horizon + 1, signature.num_memories))
        self.observation = {name: np.zeros((horizon, size)) for name, size in self.sizes.items()}
        self.cost = self.effort = self.ambiguity = 0.0
        self.gain = 0.0  # the information of all observations

    def occupy(self, t: int, support: np.ndarray, mass: np.ndarray, memory: Any) -> None:
        """Add the probabilities of hypotheses at time t, with the contents of the memory."""
        self.state[t] += np.bincount(support % self.num_states, mass, self.num_states)
        self.memory[t] += np.bincount(np.broadcast_to(memory, mass.shape), mass, self.num_memories)

    def act(self, t: int, layer: Branching, support: np.ndarray, mass: np.ndarray, control: Any, memory: Any) -> None:
        """Add the controls done, one for each hypothesis or one for all."""
        x: Any = support % self.num_states
        np.add.at(self.control[t], np.broadcast_to(control, mass.shape), mass)
        np.add.at(self._policy[t], (np.asarray(self.world.loop.look(x, memory)), control), mass)
        self.cost += float(mass @ layer.step.cost[support, control])
        self.effort += float(mass @ layer.step.effort[support, control])
        if layer.step.ambiguity is not None:
            self.ambiguity += float(mass @ layer.step.ambiguity[support, control])

    def inform(self, layer: Branching, support: np.ndarray, mass: np.ndarray, control: int) -> None:
        """Add what is told after a control by one belief, whose mass need not sum to one."""
        total = float(mass.sum())
        branches = layer.branches(support, mass / total, control)
        self.gain += total * float(layer.gains(support, mass / total, branches)[control])

    def observe(self, t: int, layer: Branching, support: np.ndarray, mass: np.ndarray, control: Any) -> None:
        """Add the observations of hypotheses after these controls."""
        step = layer.step
        view = control if step.label.shape[1] > 1 else 0
        certain = uncertain = 0
        for name, is_certain in zip(self.sites, self.certain, strict=True):
            if is_certain:
                shown, certain = step.shown[support, view, certain], certain + 1
                if name in self.sizes:
                    self.observation[name][t] += np.bincount(shown, mass, self.sizes[name])
            else:
                table, uncertain = step.sight[uncertain], uncertain + 1
                if name in self.sizes:
                    self.observation[name][t] += mass @ table[support, view]

    def first_memories(self, support: np.ndarray) -> np.ndarray:
        x: Any = support % self.num_states
        return np.broadcast_to(np.asarray(self.world.loop.first_memory(x)), x.shape)

    def next_memories(self, t: int, memory: Any, support: np.ndarray, control: Any, seen: Any) -> np.ndarray:
        """The next contents of the memory, by hypothesis.

        :param seen: the outcome of each site, or one of each hypothesis.
        """
        if self.num_memories == 1:
            return np.zeros(len(support), int)
        values: Any = {name: (seen[self.sites.index(name)], size) for name, size in self.sizes.items()}
        x: Any = support % self.num_states
        content = self.world.loop.at(t).next_memory(np.asarray(memory), x, control, values)  # type: ignore[arg-type]
        return np.broadcast_to(np.asarray(content), x.shape)

    def policy(self) -> np.ndarray:
        """q(u_t|v,m), (T, P, U); the prior where the plan never comes."""
        total = self._policy.sum(-1, keepdims=True)
        control = np.asarray(self.world.control)
        prior = np.stack([np.exp(np.asarray(self.world.loop.prior(row))) for row in control[: self.horizon]])
        return np.where(total > 0, self._policy / np.where(total > 0, total, 1.0), prior)
