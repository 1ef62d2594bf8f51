"""An agent in a world: it updates its belief by exact Bayes, plans anew, and does what its plan says.

One agent at one step and many in lockstep go the same way.
"""
