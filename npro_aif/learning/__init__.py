"""Learning: the evidence of episodes and the choices of agents inside NumPyro programs, draws and counts of tables.

Everything is differentiable where it is continuous, so that NumPyro's own inference learns worlds and fits agents.
"""
