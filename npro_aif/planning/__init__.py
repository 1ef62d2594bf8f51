"""From a belief to a plan: what is compiled, for which parameters, from where it starts, and what comes out.

A :class:`~npro_aif.planning.planner.Planner` is the front; a :class:`~npro_aif.planning.plan.Plan` is the result.
"""
