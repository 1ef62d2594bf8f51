"""Planning under uncertainty as variational inference in NumPyro."""

from npro_aif.errors import GuideError, ImpossibleObservation, ModelError
from npro_aif.language import (
    Belief,
    DeterministicCategorical,
    control,
    initial_state,
    observation,
    parameter,
    parameters,
    preference,
    rollout,
    state,
)
from npro_aif.objectives import Active, Marginal, Planning
