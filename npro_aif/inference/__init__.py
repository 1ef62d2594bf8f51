"""The free energy of a posterior, exactly: posteriors give statistics, objectives add them up.

Each equation of the paper stands in one place here; the solvers decide how F is minimised.
"""
