"""The table of three published grid worlds: Frozen Lake, Wumpus and RockSample(4,3), ours beside the published values.

The published rates and rewards are those of Nuijten, Lukashchuk, van de Laar, de Vries (UAI 2026) over 1000 episodes.
Their objectives of the same names differ from ours, and so do their preferences on the Lake and in Wumpus World, so
that the values are to be compared, not matched. Closed-loop rows plan with a memory or by search; in Wumpus World and
RockSample they plan for the world's own reward, to the deadline.
"""

from __future__ import annotations

from npro_aif.experiments.rows import LABELS, Block, Published, Row, TableOfRows
from npro_aif.experiments.summary import wilson
from npro_aif.experiments.tasks import REWARDED, Settings

EPISODES, FIRST_SEED = 1000, 1000
PUBLISHED: dict[str, dict[str, float]] = {  # of BP, VBP and AIF-MP: successes of 1000, or the mean reward
    "frozen-lake": {"marginal": 519, "planning": 545, "active": 959},
    "wumpus": {"marginal": 12, "planning": 55, "active": 407},
    "rock-sample": {"marginal": 1.00, "planning": 1.00, "active": 4.01},
}
TITLES = {"frozen-lake": "Frozen Lake", "wumpus": "Wumpus", "rock-sample": "RockSample(4,3)"}
CEILINGS = {  # of any agent, and of one that knows θ
    "frozen-lake": "Bayes-optimal 95.3–95.4 %, with θ known 95.36 %",
    "wumpus": "Bayes-optimal 68.3–68.6 %, with θ known 87.5 %",
    "rock-sample": "Bayes-optimal 3.998–4.000 in 11.6 steps, with θ known 4.000",
}
MEMORIES = ("frozen-lake", "wumpus")  # where the policy remembers what it was told; RockSample is left to search
SEARCHED = ("wumpus", "rock-sample")  # the Lake's 16 noisy cells have too many outcomes together
FEWER = {("frozen-lake", "risk"): 128}  # episodes, where all 1000 would take some four hours of a core
# Looks for each decision, and before the first one.
SEARCH = Settings(objective="planning", solver="search", seed=FIRST_SEED, max_nodes=200, first_nodes=20_000)


def _published(world: str, objective: str) -> dict[str, Published]:
    value = PUBLISHED[world].get(objective)
    if value is None:
        return {}
    if world == "rock-sample":
        return {"reward": Published(value, None, None, None, 0.01)}
    rate = value / EPISODES
    return {"success": Published(rate, *wilson(int(value), EPISODES), None, 1 / EPISODES)}


def _block(world: str) -> Block:
    rows = [
        Row(
            f"worlds-{world}-{objective}",
            LABELS[objective],
            world,
            Settings(objective=objective, seed=FIRST_SEED),
            _published(world, objective),
            episodes=FEWER.get((world, objective)),
        )
        for objective in ("marginal", "planning", "risk", "active")
    ]
    reward, suffix = ("reward", ", own reward") if world in REWARDED else (None, "")
    if world in MEMORIES:
        settings, label = Settings(objective="planning", seed=FIRST_SEED), f"{LABELS['planning']}, memory{suffix}"
        rows.append(Row(f"worlds-{world}-memory", label, world, settings, {}, reward, memory="told"))
    if world in SEARCHED:
        label = f"{LABELS['planning']}, search{suffix}"
        rows.append(Row(f"worlds-{world}-search", label, world, SEARCH, {}, reward))
    return Block(TITLES[world], f"the same solver settings in all worlds; {CEILINGS[world]}", tuple(rows))


WORLDS_TABLE = TableOfRows(
    "worlds",
    "Three grid worlds",
    "UAI 2026",
    ("success", "reward", "steps"),
    EPISODES,
    tuple(_block(world) for world in PUBLISHED),
    effort=True,
)
