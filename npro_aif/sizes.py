"""Every size at which the package does something else, with what was measured when it was set.

"Small" has one meaning, :func:`is_small`. The times are of one core of a two-core machine, in float32;
``python benchmarks/bench_sizes.py`` measures those marked with an asterisk anew.
"""

from __future__ import annotations

import os

# --- Small or large -----------------------------------------------------------------------------------------

# * Entries of a (θ, x, u) table. Below, a call, a branch or a loop costs more than what it computes: slices are looked at
# together, beliefs are planned together, and perception goes into the same call as planning. Above, each of these is
# as fast one by one, and compiles once for a size.
SMALL = 2_000

# --- Which parameters a plan considers ----------------------------------------------------------------------

# With fewer parameters than this nothing is left out: the Reactivity Maze with 2 of its 2 and with 1 takes the same time.
PRUNE_FROM = 8
# The least number that supports are padded to. DoorKey with 1, 2 and 4 layouts takes 9.6, 9.9 and 11 ms, and every size
# compiles for 6 to 8 s.
SMALLEST_SUPPORT = 4
# Belief updates are padded to 16, 128, 1024, … parameters: each size compiles for about a second, and an update of DoorKey
# with 16 layouts takes 0.3 ms, with 128 1.1 ms.
FEWEST_UPDATED, GROWTH_UPDATED = 16, 8
# Entries of p(x, θ) that are updated together (8 MB); more go in parts, so that memory stays small.
MOST_UPDATED = 2**21

# --- Many problems at once ----------------------------------------------------------------------------------

# * Fewer problems are solved one after the other: a batch of a new size compiles for about a second, and sixteen
# decisions of the T-maze take 10 ms.
TOGETHER_FROM = 16
# How many episodes go in step at most: their beliefs are in memory together, and take no more than this many bytes.
LOCKSTEP = 128
MOST_BELIEF_BYTES = 2**31

# --- Programs and tables ------------------------------------------------------------------------------------

# Entries of the tables that a program keeps (256 MB); a world with more is large, and its tables are evaluated for the
# parameters that are asked for. DoorKey-8x8 has 2.6 million, DoorKey-16x16 about 700 million.
MOST_FROZEN = 2**26
# How many parameters of a large world are checked: with 64 of DoorKey-16x16's 14,196 layouts reading takes 4 s.
SAMPLED_PARAMETERS = 64
# Groups of parameters that lead to different states at one (u, x). With more, looking every entry up is as fast as
# shifting rows: DoorKey has 2.
MOST_GROUPS = 4
# Blocks of controls that are pushed one after the other; more would take long to compile. DoorKey's five controls one by
# one took 26 ms a gradient step, at once 72 ms.
MOST_BLOCKS = 8
# Sums of so few terms are written out: XLA then fuses them with what comes before and after (T-maze: 1.4 to 0.9 ms).
FEW_TERMS = 8

# --- What is refused ----------------------------------------------------------------------------------------

# NumPyro gives each enumerated site a letter and a dimension of its own, of which there are so many.
MOST_ENUMERATED_SITES = 25
# Plans × state sequences × observation sequences × parameters of an enumeration: about 0.8 GB and 10 s.
MOST_ENUMERATED_ENTRIES = 200_000_000
# Logits of a sequence guide: a step on more takes over 30 ms, and one more time step would not fit at all.
MOST_SEQUENCE_LOGITS = 4_000_000


def is_small(num_parameters: int, num_states: int, num_controls: int) -> bool:
    """Whether a world (with so many of its parameters) is small.

    >>> is_small(2, 5, 4), is_small(300, 576, 5)
    (True, False)
    """
    return num_parameters * num_states * num_controls < SMALL


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def num_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
