"""Baselines for the paper's tasks: the method's agent with the settings that its row in the tables has.

The settings are the most favourable of those that were tried, some of the reported episodes among them
(docs/baselines.md has the others, and how they were chosen): Standard EFE with the model's own preferences and
information, Sophisticated Inference with pymdp's own thresholds and, as these look one step ahead, with the preference
at every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npro_aif.baselines.adapter import Translation
from npro_aif.baselines.pymdp_agents import PymdpAgent, Sophisticated, StandardEFE
from npro_aif.baselines.tables import TooLarge

if TYPE_CHECKING:
    from npro_aif.experiments.tasks import Settings, Task

EFE_GAMMA = 16.0
SOPHISTICATED_GAMMA = 4.0
SOPHISTICATED_TRANSLATION = Translation(timing="every")


def make_agent(task: Task, settings: Settings, *, compiled: bool = True) -> PymdpAgent:
    """The agent for a task by the method "efe" or "sophisticated".

    What pymdp cannot do, and pymdp missing, is told as a mistake in the settings.

    :param compiled: as in :class:`PymdpAgent`.
    """
    from npro_aif.experiments.tasks import SettingsError

    horizon = settings.horizon or task.horizon
    try:
        if settings.method == "efe":
            return StandardEFE(
                task.model,
                task.belief,
                horizon,
                task.max_steps,
                gamma=EFE_GAMMA,
                remember=False,
                compiled=compiled,
            )
        return Sophisticated(
            task.model,
            task.belief,
            horizon,
            task.max_steps,
            gamma=SOPHISTICATED_GAMMA,
            translation=SOPHISTICATED_TRANSLATION,
            compiled=compiled,
        )
    except (TooLarge, ImportError) as error:
        raise SettingsError(str(error)) from error
