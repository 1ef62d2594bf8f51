"""The policy that a search found, as a graph: at each place a control, and the next place after each observation."""

from __future__ import annotations

from dataclasses import dataclass

import jax

END = -1  # of the plan


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Contingency:
    """A policy that depends on everything seen and done."""

    starts: tuple[
        tuple[float, int], ...
    ]  # the first places, each with its probability: more than one where controls tie
    controls: tuple[int, ...]  # by place, flat
    after: tuple[
        dict[tuple[int, ...], int] | int, ...
    ]  # by place: the next one by what every site shows, or whatever is
    sites: tuple[str, ...]  # the observations in the order of these keys, those with plan=False last

    def follow(self, place: int, seen: tuple[int, ...]) -> int:
        """The place after what was seen, or :data:`END`."""
        ahead = self.after[place]
        return ahead if isinstance(ahead, int) else ahead[seen]

    def __repr__(self) -> str:
        return f"Contingency({len(self.controls)} places)"
