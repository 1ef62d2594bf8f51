"""How a world looks, as data: places on a plane, tiles, things that lie where θ says, and where controls lead.

A drawing knows nothing of plans or beliefs; the page lays these over it. Whoever has a world of their own makes a
:class:`Drawing` of it and hands it to ``recording.to_html(path, drawing=…)``; without one a page has tables only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npro_aif.program.signature import Signature, product, split

# What a colour stands for; the page has one of each for light and for dark.
COLOURS = ("agent", "reward", "danger", "cue", "key", "door", "wall", "goal", "rock")


@dataclass(frozen=True)
class Shape:
    """A vector picture in a cell whose edges are 1 long and whose centre is (0, 0), y downwards."""

    path: str  # as in the attribute ``d`` of an SVG path
    colour: str  # one of COLOURS

    def __post_init__(self) -> None:
        if self.colour not in COLOURS:
            raise ValueError(f"colour: found {self.colour!r}, expected one of {', '.join(COLOURS)}")


@dataclass(frozen=True)
class Thing:
    """Something that lies where θ says, and may come and go with the state: a key, a hole, a reward."""

    name: str
    shape: Shape
    at: np.ndarray  # (Θ, places) whether it lies at a place
    shown: np.ndarray | None = None  # (X,) whether it is there in a state; always, if None
    ground: bool = False  # whether it fills its cell, and other things lie on it


@dataclass(frozen=True)
class Tile:
    """A cell that is always there."""

    x: float
    y: float
    kind: str = "floor"  # "floor", "wall", or one of COLOURS
    label: str = ""


@dataclass(frozen=True)
class Drawing:
    """A world on a plane whose unit is a cell, y downwards.

    >>> line = Drawing(title="A line", sites=("x",), places=np.array([[0.0, 0.0], [1.0, 0.0]]),
    ...                tiles=(Tile(0, 0), Tile(1, 0)), target=np.array([[0, 1], [0, 1]]))
    >>> line.bounds
    (-0.5, -0.5, 2.0, 1.0)
    """

    title: str
    sites: tuple[str, ...]  # the state sites that say where the agent is
    places: np.ndarray  # (places, 2) the centre of each value of these sites, in C order
    tiles: tuple[Tile, ...]
    target: np.ndarray  # (visible states, U) the place that a control leads to, −1 where it does not move
    things: tuple[Thing, ...] = ()
    heading: str | None = None  # the state site that says which way the agent faces
    angles: tuple[float, ...] = ()  # in degrees clockwise from east, of each of its values
    row_labels: tuple[tuple[float, float, str], ...] = ()  # words beside the tiles: x, y, text
    about: str = ""  # the world in one or two sentences

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, width and height of all tiles and words."""
        x = [tile.x for tile in self.tiles] + [x for x, *_ in self.row_labels]
        y = [tile.y for tile in self.tiles] + [y for _, y, _ in self.row_labels]
        return min(x) - 0.5, min(y) - 0.5, max(x) - min(x) + 1.0, max(y) - min(y) + 1.0

    def check(self, signature: Signature) -> None:
        """Refuse a drawing that is not of this world."""
        sizes = {site.name: site.size for site in signature.state}
        for name in self.sites + ((self.heading,) if self.heading else ()):
            if name not in sizes:
                raise ValueError(f"drawing: found the site '{name}', expected a state: {', '.join(sizes)}")
        shape = product(signature.visible), signature.num_controls
        expected: dict[str, tuple[Any, tuple[int, ...]]] = {
            "places": (self.places, (product(self._place_sites(signature)), 2)),
            "target": (self.target, shape),
        }
        for thing in self.things:
            expected[f"{thing.name}.at"] = thing.at, (signature.num_parameters, len(self.places))
            if thing.shown is not None:
                expected[f"{thing.name}.shown"] = thing.shown, (signature.num_states,)
        for name, (table, size) in expected.items():
            if np.shape(table) != size:
                raise ValueError(f"drawing, {name}: found the shape {np.shape(table)}, expected {size}")

    def _place_sites(self, signature: Signature) -> tuple[Any, ...]:
        return tuple(site for name in self.sites for site in signature.state if site.name == name)

    def place_of(self, signature: Signature, *, visible: bool = False) -> np.ndarray:
        """The place of every state (or of everything that is visible), (X,) or (V,)."""
        sites = signature.visible if visible else signature.state
        values = split(np.arange(product(sites)), sites)
        place: Any = 0
        for site in self._place_sites(signature):
            if site.name not in values:
                raise ValueError(f"drawing: found the hidden site '{site.name}' as a place, expected a visible one")
            place = place * site.size + values[site.name]
        return np.asarray(place)
