"""Standard EFE and Sophisticated Inference for comparison: pymdp behind our agents' interface, and exact references."""

from npro_aif.baselines.acting import ReferenceAgent
from npro_aif.baselines.adapter import Arrays, Translation, pymdp_arrays
from npro_aif.baselines.published import PublishedAgent
from npro_aif.baselines.published_reactivity import published_agent, published_arrays
from npro_aif.baselines.pymdp_agents import Search, Sophisticated, StandardEFE
from npro_aif.baselines.reference import sophisticated, standard_efe
from npro_aif.baselines.tables import Tables, TooLarge, dense_tables

__all__ = [
    "Arrays",
    "PublishedAgent",
    "ReferenceAgent",
    "Search",
    "Sophisticated",
    "StandardEFE",
    "Tables",
    "TooLarge",
    "Translation",
    "dense_tables",
    "published_agent",
    "published_arrays",
    "pymdp_arrays",
    "sophisticated",
    "standard_efe",
]
