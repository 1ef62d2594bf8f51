"""Why does the agent go to the cue first? The expected free energy of every plan, term by term.

For a plan u the expected free energy is G(u) = risk + ambiguity + novelty (all in nats; lower is better):
risk is how far what will happen is from what is wanted, ambiguity how unclear the observations will be, and novelty
(negative) how much they will teach about what is not known (here: which arm holds the reward).
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import npro_aif as aif
from npro_aif.analysis.terms_figure import plot_terms
from npro_aif.models.tmaze import CONTROLS, CUE, EAST, NORTH, SOUTH, START, WEST, initial_belief, tmaze

STORIES = {  # what one might do from the start, in four steps
    "to the cue, and stay there": (SOUTH, SOUTH, SOUTH, SOUTH),
    "to the cue, then to the left arm": (SOUTH, NORTH, NORTH, WEST),
    "stay at the start": (EAST, EAST, EAST, EAST),
    "to the left arm at once": (NORTH, WEST, WEST, WEST),
}


def number(energy: aif.ExpectedFreeEnergy, plan: tuple[int, ...]) -> int:
    """The index of a plan: all of them are in `energy.plans`, one a row."""
    return int(np.flatnonzero((np.asarray(energy.plans) == np.asarray(plan)).all(1))[0])


def tell(energy: aif.ExpectedFreeEnergy, plan: int) -> str:
    parts = (f"{name} {getattr(energy, name)[plan]:5.2f}" for name in ("risk", "ambiguity", "novelty"))
    return f"G = {energy.total[plan]:5.2f} ({', '.join(parts)})"


# Before: the agent is at the start and does not know the arm. There are 4^4 = 256 plans, and each one gets its G.
before = aif.expected_free_energy(tmaze, initial_belief(START), horizon=4)
print("At the start, not knowing the arm:")
for story, plan in STORIES.items():
    print(f"  {story:34}", tell(before, number(before, plan)))

# After: it has seen the cue. There is nothing left to learn, so only risk and ambiguity decide.
after = aif.expected_free_energy(tmaze, initial_belief(CUE, theta=0), horizon=3)
print("At the cue, knowing that it is left:")
for name in ((SOUTH, SOUTH, SOUTH), (NORTH, NORTH, WEST)):
    print(f"  {' '.join(CONTROLS[u] for u in name):34}", tell(after, number(after, name)))

figure = Figure(figsize=(8, 6), layout="constrained")
upper, lower = figure.subplots(2, 1)
plot_terms(before, CONTROLS, upper, plans=[number(before, plan) for plan in STORIES.values()])
upper.set_yticklabels(STORIES)
upper.set_title("at the start, not knowing the arm", pad=30)
plot_terms(after, CONTROLS, lower, count=4)
lower.set_title("at the cue, knowing that it is left: the best plans", pad=30)
folder = Path("outputs")
folder.mkdir(exist_ok=True)
figure.savefig(folder / "03_why_explore.png", dpi=150)
