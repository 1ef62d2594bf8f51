"""From a belief to a plan: compiled functions, the parameters they consider, their starting values, their results.

A :class:`~npro_aif.planning.planner.Planner` is the front; a :class:`~npro_aif.planning.plan.Plan` is the result.
"""
