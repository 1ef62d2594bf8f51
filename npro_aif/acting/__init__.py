"""An agent in a world: it updates its belief by exact Bayes, plans anew, and does what its plan says.

The same code serves one agent at one step and many agents in lockstep.
"""
