"""Standard EFE and Sophisticated Inference for comparison: pymdp behind our agents' interface, and exact references."""

from npro_aif.baselines.acting import ReferenceAgent
from npro_aif.baselines.adapter import Arrays, Translation, pymdp_arrays
from npro_aif.baselines.pymdp_agents import Search, Sophisticated, StandardEFE
from npro_aif.baselines.reference import sophisticated, standard_efe
from npro_aif.baselines.tables import Tables, TooLarge, dense_tables

__all__ = [
    "Arrays",
    "ReferenceAgent",
    "Search",
    "Sophisticated",
    "StandardEFE",
    "Tables",
    "TooLarge",
    "Translation",
    "dense_tables",
    "pymdp_arrays",
    "sophisticated",
    "standard_efe",
]
