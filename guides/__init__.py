"""The two posterior factorisations of the paper, as NumPyro programs over tables of logits."""

from npro_aif.guides.base import TableGuide
from npro_aif.guides.sequence import SequenceGuide
from npro_aif.guides.temporal import TemporalGuide

__all__ = ["SequenceGuide", "TableGuide", "TemporalGuide"]
