"""The drawings of the worlds that come with the package, by their model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from npro_aif.analysis.view.drawing import Drawing, Shape, Thing, Tile
from npro_aif.models import doorkey, frozen_lake, reactivity_maze, rock_sample, tmaze, wumpus
from npro_aif.models.grids import targets

NOWHERE = -1  # where a control leads that does not move


def _star(radius: float) -> str:
    turns = [math.pi * (k / 5 - 0.5) for k in range(10)]
    corners = [(math.cos(a) * r, math.sin(a) * r) for a, r in zip(turns, [radius, 0.42 * radius] * 5, strict=True)]
    return "M" + "L".join(f"{x:.3f} {y:.3f}" for x, y in corners) + "Z"


def _disc(radius: float, x: float = 0.0, y: float = 0.0) -> str:
    return f"M{x - radius} {y}a{radius} {radius} 0 1 0 {2 * radius} 0a{radius} {radius} 0 1 0 {-2 * radius} 0Z"


STAR = Shape(_star(0.3), "reward")
KEY = Shape(
    _disc(0.15, -0.17) + _disc(0.06, -0.17) + "M-.04-.045H.32V.17H.23V.045H.16V.13H.08V.045H-.04Z",
    "key",
)
LOCKED = Shape("M-.42-.46H.42V.46H-.42Z" + _disc(0.09, 0, -0.06) + "M-.045 0H.045L.08 .22H-.08Z", "door")
CLOSED = Shape("M-.42-.46H.42V.46H-.42Z" + _disc(0.06, 0.22), "door")
OPEN = Shape("M-.46-.46H.46V.46H-.46ZM-.34-.34V.34H.34V-.34Z", "door")
WALL = Shape("M-.5-.5H.5V.5H-.5Z", "wall")
HOLE = Shape(_disc(0.32), "danger")
BEAST = Shape("M-.3 .28L-.34-.1L-.26-.34L-.12-.16H.12L.26-.34L.34-.1L.3 .28L0 .36Z", "danger")
GOLD = Shape("M0-.32L.28 0L0 .32L-.28 0Z", "reward")
GOOD_ROCK = Shape("M-.18-.3H.18L.34 0L.18 .3H-.18L-.34 0Z", "reward")


def draw_tmaze(**_: Any) -> Drawing:
    """The T-maze: the arms North, the cue South."""
    at = {tmaze.CUE: (1, 2), tmaze.START: (1, 1), tmaze.JUNCTION: (1, 0), tmaze.LEFT: (0, 0), tmaze.RIGHT: (2, 0)}
    places = np.array([at[place] for place in range(5)], float)
    arms = (tmaze.LEFT, tmaze.RIGHT)  # by θ
    tiles = tuple(
        Tile(*at[place], "cue" if place == tmaze.CUE else "floor", tmaze.PLACES[place].replace("junction", ""))
        for place in range(5)
    )
    return Drawing(
        title="T-maze",
        sites=("x",),
        places=places,
        tiles=tiles,
        target=_moving(tmaze.transitions(), np.arange(5)),
        things=(Thing("reward", STAR, np.arange(5) == np.array(arms)[:, None]),),
        about="The reward is in one of the two arms. The cue, at the bottom, tells which; four steps are all there is.",
    )


def draw_reactivity(**_: Any) -> Drawing:
    """The Reactivity Maze: a column for each location, a row for each value of the knob."""
    full, size = reactivity_maze.FULL, (reactivity_maze.LOCATIONS, reactivity_maze.KNOBS)
    location, knob = (axis.ravel() for axis in np.indices(size))
    x = location + 0.25 * (location >= reactivity_maze.NAVIGATION) + 0.25 * (location == reactivity_maze.CUE)
    places = np.stack([x, full - knob], -1).astype(float)
    kinds = {reactivity_maze.SINK: "rock", reactivity_maze.CUE: "cue"}
    names = [(x[k * size[1]], full + 0.8, name) for k, name in enumerate(reactivity_maze.LOCATION_LABELS)]
    knobs = [(-0.8, full - k, str(k)) for k in range(size[1])]
    target = np.full((*size, reactivity_maze.CONTROLS), NOWHERE)
    for at, turned in np.ndindex(reactivity_maze.NAVIGATION, size[1]):
        for step in range(1, reactivity_maze.NAVIGATION):
            target[at, turned, step] = (at + step) % reactivity_maze.NAVIGATION * size[1] + turned
        target[at, turned, reactivity_maze.VISIT_CUE] = reactivity_maze.CUE * size[1] + turned
    for at, turned in np.ndindex(*size):
        if turned > 0:
            target[at, turned, reactivity_maze.KNOB_DOWN] = at * size[1] + turned - 1
        if turned < full:
            target[at, turned, reactivity_maze.KNOB_UP] = at * size[1] + turned + 1
    goal = np.arange(len(places)) == (np.arange(reactivity_maze.GOALS) * size[1] + full)[:, None]
    return Drawing(
        title="Reactivity Maze",
        sites=("location", "knob"),
        places=places,
        tiles=tuple(Tile(x, y, kinds.get(int(k), "floor")) for (x, y), k in zip(places, location, strict=True)),
        target=target.reshape(len(places), -1),
        things=(Thing("goal", STAR, goal),),
        row_labels=(*names, *knobs),
        about="Columns are locations, rows the knob: the lower it stands, the likelier a move ends in the safe sink. "
        "The cue tells which of two goals is the right one; it counts with the knob at 4, after the last step.",
    )


def draw_doorkey(size: int = 8, **_: Any) -> Drawing:
    """DoorKey: the key left of a wall, the door in it, the goal behind it."""
    layout, n = doorkey.tables(size), size - 2
    (num_keys, num_doors), cells = doorkey.site_sizes(size)[0].values(), np.arange(n * n)
    row, column = np.divmod(cells, n)
    edge = [(x, y) for x in range(size) for y in range(size) if x in (0, size - 1) or y in (0, size - 1)]
    key, door = (axis.ravel() for axis in np.indices((num_keys, num_doors)))
    at_door = cells == layout.door_cell[door][:, None]  # (Θ, cells)
    status = np.tile(np.arange(len(doorkey.STATUSES)), n * n * 4)  # of each state
    ahead = np.where(layout.near[:, :, 1, 1] < n * n, layout.near[:, :, 1, 1], NOWHERE)  # (P, 4)
    target = np.full((n * n, 4, len(doorkey.STATUSES), len(doorkey.CONTROLS)), NOWHERE)
    target[..., doorkey.FORWARD] = ahead[:, :, None]
    in_wall = column == layout.column[layout.door_cell[door]][:, None]
    return Drawing(
        title=f"DoorKey {size}×{size}",
        sites=("position",),
        places=np.stack([column, row], -1).astype(float) + 1,
        tiles=(
            *(Tile(x, y, "wall") for x, y in edge),
            *(
                Tile(c + 1, r + 1, "goal" if i == n * n - 1 else "floor")
                for i, c, r in zip(cells, column, row, strict=True)
            ),
        ),
        target=target.reshape(-1, len(doorkey.CONTROLS)),
        things=(
            Thing("wall", WALL, in_wall & ~at_door, ground=True),
            Thing("locked door", LOCKED, at_door, (status == doorkey.NO_KEY) | (status == doorkey.HAS_KEY)),
            Thing("closed door", CLOSED, at_door, status == doorkey.CLOSED),
            Thing("open door", OPEN, at_door, status == doorkey.OPEN),
            Thing("key", KEY, cells == layout.key_cell[key][:, None], status == doorkey.NO_KEY),
        ),
        heading="direction",
        angles=(0.0, 90.0, 180.0, 270.0),
        about="Fetch the key, open the door in the wall, go to the goal in the corner. The agent sees the 3×3 cells "
        "ahead of it, and has to find out where key and door are.",
    )


def draw_frozen_lake(**_: Any) -> Drawing:
    """Frozen Lake: two holes somewhere."""
    return _grid(
        "Frozen Lake",
        frozen_lake,
        {frozen_lake.GOAL: "goal"},
        2,
        (Thing("hole", HOLE, frozen_lake.IS_HOLE),),
        "Two holes lie hidden in the ice; a scan shows them. The ice is slippery.",
    )


def draw_wumpus(**_: Any) -> Drawing:
    """Wumpus World: four pits, a wumpus, gold."""
    cells = np.arange(wumpus.CELLS)
    pits = np.array([np.isin(cells, pits) for pits, _, _ in wumpus.LAYOUTS])
    beast = np.array([cells == beast for _, beast, _ in wumpus.LAYOUTS])
    things = (Thing("pit", HOLE, pits), Thing("wumpus", BEAST, beast), Thing("gold", GOLD, wumpus.IS_GOLD))
    return _grid(
        "Wumpus World",
        wumpus,
        {},
        2,
        things,
        "Gold among four pits and a wumpus, none of them seen. To sense tells what is beside the agent.",
    )


def draw_rock_sample(**_: Any) -> Drawing:
    """RockSample: three rocks, good or bad, and the exit on the right."""
    states = 2**rock_sample.NUM * len(rock_sample.EVENTS)
    taken = np.arange(rock_sample.CELLS * states) % states // len(rock_sample.EVENTS)
    kinds = {int(cell): "goal" for cell in np.flatnonzero(rock_sample.AT_EXIT)}
    things, names = [], {}
    for j, place in enumerate(rock_sample.ROCKS):
        here = np.arange(rock_sample.CELLS) == place
        good = rock_sample.QUALITIES[:, j, None].astype(bool)
        things.append(Thing("good rock", GOOD_ROCK, good & here, rock_sample.TAKEN[taken, j] == 0))
        kinds[place], names[place] = "rock", f"rock {j}"
    return _grid(
        "RockSample",
        rock_sample,
        kinds,
        states,
        tuple(things),
        "Three rocks, good or bad. They can be sensed from afar and sampled; the exit is on the right.",
        names,
    )


def _grid(
    title: str,
    module: Any,
    kinds: Mapping[int, str],
    rest: int,
    things: tuple[Thing, ...],
    about: str,
    names: Mapping[int, str] = MappingProxyType({}),
) -> Drawing:
    """A square grid whose cells are counted row by row; the state has ``rest`` values beside the cell."""
    side, cells = module.SIDE, np.arange(module.CELLS)
    row, column = np.divmod(cells, side)
    places = np.stack([column, row], -1).astype(float)
    target = np.full((len(cells), rest, len(module.CONTROLS)), NOWHERE)
    target[:, :, :4] = _moving(targets(side, side), cells)[:, None]
    return Drawing(
        title=title,
        sites=("cell",),
        places=places,
        tiles=tuple(Tile(x, y, kinds.get(i, "floor"), names.get(i, "")) for i, (x, y) in enumerate(places)),
        target=target.reshape(-1, len(module.CONTROLS)),
        things=things,
        about=about,
    )


def _moving(to: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Where controls lead, (places, U); nowhere, if they stay."""
    return np.where(to == places[:, None], NOWHERE, to)


DRAWINGS: dict[Callable[..., Any], Callable[..., Drawing]] = {
    tmaze.tmaze: draw_tmaze,
    reactivity_maze.reactivity_maze: draw_reactivity,
    doorkey.doorkey: draw_doorkey,
    frozen_lake.frozen_lake: draw_frozen_lake,
    wumpus.wumpus: draw_wumpus,
    rock_sample.rock_sample: draw_rock_sample,
}


def drawing_of(model: Callable[..., Any]) -> Drawing | None:
    """The drawing of one of our worlds, with the settings of a ``functools.partial``; None for any other model.

    >>> drawing_of(tmaze.tmaze).title
    'T-maze'
    """
    draw = DRAWINGS.get(getattr(model, "func", model))
    return None if draw is None else draw(**getattr(model, "keywords", {}))
