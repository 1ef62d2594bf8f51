"""The environments. Where gymnasium is installed they are registered under `npro_aif/`, except those of files.

Their observations are dicts keyed by the observation sites of the model of the same name, so that an agent
passes them to a belief update as they are. DoorKey is MiniGrid's own, and needs it.
"""

from typing import Any

from npro_aif.envs import gym
from npro_aif.envs.frozen_lake import FrozenLake
from npro_aif.envs.pomdp_file import PomdpFile
from npro_aif.envs.reactivity_maze import ReactivityMaze
from npro_aif.envs.rock_sample import RockSample
from npro_aif.envs.tmaze import TMaze
from npro_aif.envs.wumpus import Wumpus

__all__ = [
    "DoorKey",
    "FrozenLake",
    "PomdpFile",
    "PublishedDoorKey",
    "PublishedReactivityMaze",
    "PublishedTMaze",
    "ReactivityMaze",
    "RockSample",
    "TMaze",
    "Wumpus",
    "register",
]

_ENTRY_POINTS = {
    "npro_aif/TMaze-v0": "npro_aif.envs.tmaze:TMaze",
    "npro_aif/ReactivityMaze-v0": "npro_aif.envs.reactivity_maze:ReactivityMaze",
    "npro_aif/FrozenLake-v0": "npro_aif.envs.frozen_lake:FrozenLake",
    "npro_aif/Wumpus-v0": "npro_aif.envs.wumpus:Wumpus",
    "npro_aif/RockSample-v0": "npro_aif.envs.rock_sample:RockSample",
    "npro_aif/DoorKey-v0": "npro_aif.envs.doorkey:DoorKey",
}


def register() -> None:
    """Register the environments with gymnasium; a second call changes nothing.

    >>> import gymnasium
    >>> register()
    >>> env = gymnasium.make("npro_aif/DoorKey-v0", size=6)
    """
    gym.register(_ENTRY_POINTS)


def __getattr__(name: str) -> Any:
    """An environment that needs MiniGrid, imported when it is first used."""
    if name == "DoorKey":
        from npro_aif.envs.doorkey import DoorKey

        return DoorKey
    if name in __all__:
        from npro_aif.envs import published

        return getattr(published, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register()
