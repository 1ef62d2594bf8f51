"""The free energy of a posterior, exactly: posteriors give statistics, objectives add them up.

Each equation of the paper stands in one place here; how F is minimised is the business of the solvers.
"""
