"""The planning problem as arrays: the world's conditional tables, in the form that is fastest for what they hold.

A kind of table is one file with a class for transitions and one for emissions; nothing outside asks which it is.
"""
