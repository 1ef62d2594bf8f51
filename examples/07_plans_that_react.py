"""Plans that react to what they will learn: say what the policy remembers, and it goes where the cue will say.

Without a memory a plan's policy sees the place alone: whatever the cue will say, it does the same. So F_active plans
"to the cue, and stay there", and F_planning sees no use in the cue. With a memory of what was told both plan the whole
way.
"""

import functools

import jax

import npro_aif as aif
from npro_aif.models.tmaze import CONTROLS, initial_belief, tmaze

KEY, BELIEF, HORIZON = jax.random.key(0), initial_belief(), 4
remembering = functools.partial(tmaze, memory="told")  # nothing, left or right: three values, in models/tmaze.py


@functools.cache  # what is compiled serves again
def planner(model, objective):
    guide = aif.guides.TemporalGuide(model, learn=("control",))
    return aif.Planner(model, guide, objective, aif.CoordinateSolver(), max_horizon=HORIZON)


# What no agent can beat: the cost if the arm were known. The gap of a plan to it is what not knowing costs at most.
bound = float(aif.perfect_information(tmaze, BELIEF, HORIZON))
print(f"perfect information: {bound:.4f}")
for name, model in (("nothing remembered", tmaze), ("told remembered", remembering)):
    for objective in (aif.Planning(), aif.Active()):
        plan = planner(model, objective)(KEY, BELIEF)
        first, arrived = CONTROLS[int(plan.best_control())], plan.sample(KEY, 2000)
        success = float((arrived["x"][:, -1] == 2 + 2 * arrived["theta"]).mean())  # left is 2, right is 4
        what = f"{name}, {type(objective).__name__}"
        print(f"{what:28} F = {plan.free_energy[-1]:.4f}, first {first}, arrives at the right arm {success:.2f}")

plan = planner(remembering, aif.Planning())(KEY, BELIEF)
print(f"\nThe plan, {plan.free_energy[-1] - bound:.4f} above the bound:")
print(plan.tree())
costs = (f"{name} {cost:.3f}" for name, cost in zip(CONTROLS, plan.control_cost, strict=True))
print("\nWhat each first control costs:", ", ".join(costs))

# What is an agent worth that replans at every step? Without a memory it needs the epistemic priors to find the cue.
for name, model, objective in (
    ("Planning, told remembered", remembering, aif.Planning()),
    ("Active, nothing remembered", tmaze, aif.Active()),
    ("Planning, nothing remembered", tmaze, aif.Planning()),
):
    print(f"{name:28} worth {aif.evaluate(planner(model, objective), tmaze, BELIEF, HORIZON)}")
