"""The paper's three environments, registered with gymnasium under `npro_aif/`.

Their observations are dicts keyed by the observation sites of the model of the same name, so that an agent
passes them to a belief update as they are.
"""

import gymnasium as gym

from npro_aif.envs.doorkey import DoorKey
from npro_aif.envs.published import PublishedDoorKey, PublishedReactivityMaze, PublishedTMaze
from npro_aif.envs.reactivity_maze import ReactivityMaze
from npro_aif.envs.tmaze import TMaze

__all__ = [
    "DoorKey",
    "PublishedDoorKey",
    "PublishedReactivityMaze",
    "PublishedTMaze",
    "ReactivityMaze",
    "TMaze",
    "register",
]

_ENTRY_POINTS = {
    "npro_aif/TMaze-v0": "npro_aif.envs.tmaze:TMaze",
    "npro_aif/ReactivityMaze-v0": "npro_aif.envs.reactivity_maze:ReactivityMaze",
    "npro_aif/DoorKey-v0": "npro_aif.envs.doorkey:DoorKey",
}


def register() -> None:
    """Register the environments with gymnasium; a second call changes nothing.

    >>> register()
    >>> env = gym.make("npro_aif/DoorKey-v0", size=6)
    """
    for name, entry_point in _ENTRY_POINTS.items():
        if name not in gym.registry:  # a second registration under one name would warn
            gym.register(id=name, entry_point=entry_point)


register()
