"""The paper's two posterior factorisations as NumPyro programs over tables of logits, policies that remember
everything, and guides of a user's own.

>>> FACTORS  # what ``learn`` may name
('parameter', 'control', 'state', 'observation')
"""

from npro_aif.guides.base import FACTORS, Start, Table, TableGuide
from npro_aif.guides.generic import GenericGuide
from npro_aif.guides.recall import RecallGuide
from npro_aif.guides.sequence import SequenceGuide
from npro_aif.guides.temporal import TemporalGuide

__all__ = ["FACTORS", "GenericGuide", "RecallGuide", "SequenceGuide", "Start", "Table", "TableGuide", "TemporalGuide"]
