"""Where a plan comes from: enough to rebuild the parts that it does not store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from npro_aif.guides import TableGuide
from npro_aif.inference.objectives import Objective
from npro_aif.pickling import Portable
from npro_aif.program.program import Program
from npro_aif.program.signature import Signature


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Origin(Portable):
    """The program, the guide and the objective of a plan; equal only to itself, like the code compiled for it."""

    program: Program
    guide: TableGuide
    objective: Objective

    @property
    def signature(self) -> Signature:
        return self.program.signature


def model_name(model: Any) -> str:
    """A model in words."""
    function = getattr(model, "func", model)  # of a functools.partial
    return getattr(function, "__name__", type(function).__name__)
