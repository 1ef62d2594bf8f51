"""The two posterior factorisations of the paper as NumPyro programs over tables of logits, and any guide of a user."""

from npro_aif.guides.base import Start, Table, TableGuide
from npro_aif.guides.generic import GenericGuide
from npro_aif.guides.sequence import SequenceGuide
from npro_aif.guides.temporal import TemporalGuide

__all__ = ["GenericGuide", "SequenceGuide", "Start", "Table", "TableGuide", "TemporalGuide"]
