"""Learning: the evidence of episodes and the choices of agents as NumPyro factors, posterior draws, and counts.

Everything is differentiable where it is continuous, so that NumPyro's own inference learns worlds and fits agents.
"""
