"""The planning problem as arrays: the world's conditional tables, each in the form that is fastest for its content.

Each kind of table is one file, with a class for transitions and one for emissions; no other code asks which kind it is.
"""
