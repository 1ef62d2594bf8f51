"""Checks of a reading: the carry, the numbers of rows, memories and preferences, the belief.

:mod:`npro_aif.program.plain` checks that the tables agree with plain NumPyro.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from npro_aif.belief import ROW_SUM_TOLERANCE, Belief, check_numbers, check_shape
from npro_aif.errors import ModelError
from npro_aif.numerics import is_concrete
from npro_aif.program.axes import MEMORY, NEXT, NEXT_MEMORY, RESERVED, STATE, THETA, axis_name
from npro_aif.program.reading import Reading
from npro_aif.program.signature import Signature


def check_structure(reading: Reading) -> None:
    """The carry that a step returns must have the structure of the first one."""
    first, returned = (str(jax.tree.structure(carry)) for carry in reading.carries[0])
    if first != returned:
        raise ModelError(f"rollout: the step returned a carry of structure {returned}, expected the first's, {first}")


def check_carry(reading: Reading, signature: Signature) -> None:
    """The carry must be the same function of the new state as it was of the present one."""
    check_structure(reading)
    before, after = reading.carries[0]
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        ndim = max(jnp.ndim(old), jnp.ndim(new), -NEXT_MEMORY)
        old, new = (jnp.reshape(a, (1,) * (ndim - jnp.ndim(a)) + jnp.shape(a)) for a in (old, new))
        if new.shape[RESERVED] > 1:
            raise ModelError(
                f"rollout: the step's carry is an array with {new.shape[RESERVED]} entries in its last axis, expected "
                "one number for each value of the new states; carry the states, and compute what the step needs there"
            )
        for axis in range(-ndim, 0):
            if new.shape[axis] > 1 and axis not in (NEXT, THETA, NEXT_MEMORY):
                raise ModelError(
                    f"rollout: the step's carry depends on {axis_name(axis, signature)}, expected a function of the "
                    "new states; put what the next step needs into a state site"
                )
        if is_concrete(old, new) and not np.allclose(
            old, np.swapaxes(np.swapaxes(np.asarray(new), NEXT, STATE), NEXT_MEMORY, MEMORY)
        ):
            raise ModelError(
                "rollout: the step returned a carry that is not the same function of the new states as the first "
                f"carry was of the initial states ({', '.join(s.name for s in signature.state)})"
            )


def check_rows(reading: Reading) -> None:
    """Refuse rows that are not distributions, in a reading whose values are known.

    Their probabilities are negative or do not sum to one, or their certain outcomes are out of range.
    """
    for draw in reading.draws:
        lowest, highest, least = (float(fault) for fault in draw.faults)
        total = lowest if not abs(lowest - 1) <= abs(highest - 1) else highest
        name = ", ".join(draw.names)
        if draw.index is not None:
            index = np.asarray(draw.index)  # JAX would compile its least and largest entry for each shape
            low, high, last = int(index.min()), int(index.max()), draw.sizes[0] - 1
            if low < 0 or high > last:
                raise ModelError(f"site '{name}': found an index that runs over {low}..{high}, expected 0..{last}")
        if not abs(total - 1) <= ROW_SUM_TOLERANCE:
            raise ModelError(f"site '{name}': found a probability row that sums to {total:.6g}, expected 1")
        if least < 0:
            raise ModelError(f"site '{name}': found a negative probability {least:.6g}, expected at least 0")
    for memory in reading.memories:
        low, high = int(memory.value.min()), int(memory.value.max())
        if low < 0 or high >= memory.size:
            raise ModelError(
                f"memory '{memory.name}': found contents that run over {low}..{high}, expected 0..{memory.size - 1} "
                f"(its size is {memory.size})"
            )


def check_preferences(reading: Reading) -> None:
    """Refuse preferences that are infinite or not a number (in a reading whose values are known)."""
    for factor in reading.factors:
        table = np.asarray(factor.log)
        if not np.isfinite(table).all():
            raise ModelError(
                f"preference '{factor.name}': found {table[~np.isfinite(table)].flat[0]}, expected finite numbers (use "
                "a large negative one for what must not be)"
            )


def check_belief(belief: Belief, signature: Signature, name: str = "belief") -> None:
    """Refuse a belief that does not fit the program, or (where its numbers are known) that does not sum to one."""
    check_shape(belief, name)
    check_size(np.shape(belief.state), signature, name)
    check_numbers(belief, name)


def check_size(shape: tuple[int, ...], signature: Signature, name: str = "belief") -> None:
    """Refuse a belief whose p(x|θ), of this shape, has other numbers of parameters or states than the program."""
    if shape != (signature.num_parameters, signature.num_states):
        raise ModelError(
            f"{name}: found state of shape {shape}, expected ({signature.num_parameters}, "
            f"{signature.num_states}) for the parameters {[s.name for s in signature.parameter]} and the states "
            f"{[s.name for s in signature.state]}"
        )


def check_beliefs(beliefs: Belief, signature: Signature) -> None:
    """Refuse a batch of beliefs, (B, Θ) and (B, Θ, X), in which one is wrong, and say which."""
    parameter, state = np.asarray(beliefs.parameter), np.asarray(beliefs.state)
    if state.shape[1:] == (signature.num_parameters, signature.num_states):
        sums = np.concatenate([parameter.sum(-1).ravel(), state.sum(-1).ravel()])
        if (np.abs(sums - 1) <= ROW_SUM_TOLERANCE).all() and parameter.min() >= 0 and state.min() >= 0:
            return
    for i, row in enumerate(zip(parameter, state, strict=True)):
        check_belief(Belief(*row), signature, f"beliefs[{i}]")
