"""The paper's generative models, and others, as NumPyro programs, one module each.

Every module holds the program, its `initial_belief` and the constants that describe its world.
"""

from npro_aif.models import doorkey, reactivity_maze, tiger, tmaze

__all__ = ["doorkey", "reactivity_maze", "tiger", "tmaze"]
