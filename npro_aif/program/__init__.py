"""From a NumPyro program to tables: its sites are found, its use of them is checked, and it is evaluated once.

Everything that looks inside a user's function is here; what comes out is a :class:`~npro_aif.tables.world.World`.
"""
