"""Plans for the eye and for ArviZ: one function per figure, and the conversion.

Nothing here is needed to plan, so nothing here is imported before it is used.
"""
