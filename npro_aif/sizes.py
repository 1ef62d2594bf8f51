"""Every size at which the package changes its method, with the measurements from which it was chosen.

"Small" has one meaning, :func:`is_small`. The times come from ``python benchmarks/bench_sizes.py``, in float32 on one
core of a machine whose other core was busy. A size that was not measured says how it was chosen.
"""

from __future__ import annotations

import os

# --- Small or large -----------------------------------------------------------------------------------------

# Entries of a (θ, s, u) table. Below this size a call, a branch or a loop costs more than the computation inside it, so
# slices are looked at together, beliefs are planned together, and perception goes into the same call as planning.
# Milliseconds for a belief in a batch and alone, first treated as small and then as large: 0.26, 1.0 and 0.93, 1.5 with
# 80 entries; 1.6, 2.9 and 2.3, 3.4 with 2,000; 5.1, 7.1 and 6.9, 6.8 with 4,000; 6.9, 23 and 16, 16 with 8,000.
SMALL = 2_000

# --- Which parameters a plan considers ----------------------------------------------------------------------

# With fewer parameters than this nothing is left out: a ring takes 1.1 ms with 2, 1.6 with 4, 1.7 with 8, 2.3 with 16
# and 3.5 with 64, and every size compiles for 8 to 12 s.
PRUNE_FROM = 8
# The least number that supports are padded to: every size of DoorKey-8x8 compiles for 14 s or more, and with 2 and 4
# layouts a plan takes the same time (306 and 329 ms).
SMALLEST_SUPPORT = 4
# Belief updates are padded to 16, 128, 1024, … parameters: each size compiles for 4 s, and an update of DoorKey-8x8
# takes 0.5 ms with 16 layouts, 1.2 with 128 and 2.2 with all.
FEWEST_UPDATED, GROWTH_UPDATED = 16, 8
# Entries of p(x, θ) that are updated together: 8 MB; more go in parts, so that memory stays small. (Not measured.)
MOST_UPDATED = 2**21

# Entries (θ, x) of a belief that are updated together where it is kept by them, and the least number that they are
# padded to; in between are steps of 8. (DoorKey-16x16 has 5.6 million before the first look; bounds on memory.)
ENTRIES_AT_ONCE, FEWEST_ENTRIES = 2**18, 2**9

# The bytes of a plan over devices from which on parameters are padded finely, as it takes longer than compiling another
# size: with 2,816 layouts of DoorKey-12x12 and 40 steps, 1.3 GB, 13 s of a core and 6 s.
PADDED_FINELY = 2**30

# --- Many problems at once ----------------------------------------------------------------------------------

# Fewer problems are solved one after the other: 4 decisions of the T-maze take 2.2 ms so and 4.2 together, 16 take 8.7
# and 4.1, 64 take 35 and 7.9; a batch of a new size compiles for 5 to 9 s.
TOGETHER_FROM = 16
# Episodes of one block, which go in step: one job of a worker, and the same blocks in a plain run. Small enough that a
# hundred episodes keep several workers busy; their beliefs are in memory together, and take no more than this many
# bytes (a bound on memory, not measured).
LOCKSTEP = 32
MOST_BELIEF_BYTES = 2**31

# Starts of the coordinate solver in a small world, as one batch. In random worlds (benchmarks/solver_quality.py, policy
# learned) F_planning ended over 1e-3 above the lowest F that was found in 13, 4.5, 2 and 1.5 % of 200 with 1, 4, 8 and
# 16 starts (--first 100), and in 8, 5, 3 and 1 % of the 100 that are reported; F_active (descended) in 6, 2, 0 and 0 %.
STARTS = 16

# Entries of the first values that a plan is handed over even where it does not start from another: 64 MB. (A bound on
# memory, not measured.)
MOST_BLANK = 2**24

# --- Programs and tables ------------------------------------------------------------------------------------

# Entries of the tables that a program keeps: 256 MB. A world with more is large, and its tables are evaluated for the
# parameters that are asked for. (A bound on memory, not measured.)
MOST_FROZEN = 2**26
# Bytes of the folder in which the command line keeps numbers of programs: DoorKey-8x8 takes 13 MB, and the largest that
# is kept 256. (A bound on disk space, not measured.)
MOST_KEPT_BYTES = 2**30
# How many parameters of a large world are checked when it is read. (Not measured.)
SAMPLED_PARAMETERS = 64
# Groups of parameters that lead to different states at one (u, x): 576 states, 5 controls and 64 parameters take 0.23,
# 0.26, 0.56 and 0.76 ms by rows with 1, 2, 4 and 8 groups, and 0.43, 0.38, 0.32 and 0.34 ms by looking every entry up.
MOST_GROUPS = 2
# Blocks of controls that are pushed one after the other, so that what a block needs stays in the cache: a gradient of
# DoorKey-8x8 with all layouts takes 146 ms in one block and 166 ms in five, so that it matters little.
MOST_BLOCKS = 8
# Entries of a (θ, s, u) table from which on states are gone through one by one, those with something in them only
# (npro_aif.tables.live). Seconds of one core for a plan of DoorKey, F_active with sites: 0.90 so and 1.11 at once at
# size 8 with 260 layouts (750,000 entries), both by labels (1.8 without); at size 12 with 3,096 layouts (25 million),
# 12 steps and one device of a mesh, 6.8 so and by labels and 33 before, of which 3 make the tables.
ROW_BY_ROW = 2**19
# Labels of what certain observations show together, at most one for so many parameters, by which mass is summed there.
# (Chosen, not measured: what a site shows is then looked up for each label and state.)
LABEL_SHARE = 4
# Rows over as many states or more are kept by their entries if at most one of so many is one. A push and a pull with 4
# controls and 8 entries a row take 0.04, 0.22, 0.30, 2.7 and 44 ms as rows with 128, 256, 512, 1024 and 2048 states,
# and 0.04, 0.06, 0.11, 0.35 and 0.86 ms by entries.
SPARSE_FROM, SPARSE_SHARE = 256, 16
# Sums of so few terms are written out, which XLA fuses with what comes before and after: 4096 sums take 12, 19, 61 and
# 122 µs so with 2, 8, 16 and 32 terms, and 17, 24, 61 and 78 as a product with ones.
FEW_TERMS = 8
# Terms that are added up one after the other where a sum must be near: rounding then grows with the logarithm of their
# number, as that of NumPy's pairwise sums does. (Chosen, not measured.)
BLOCK = 64

# --- Search -----------------------------------------------------------------------------------------------

# A search takes in the parameters that beliefs hold possible; those of a large world, so many at once. (All 276,480
# hypotheses (θ, x) of DoorKey-8x8 take some 0.15 s; 64 parameters of DoorKey-16x16 0.37, and a step brings in some 5.)
ROWS_AT_ONCE, FEW_ROWS = 64, 8
# Hypotheses (θ, x) that have come in so; more, and a planner begins anew with those of its present belief. (A bound on
# memory: one of DoorKey-16x16 takes about 200 bytes, its class as many and 8 for each step: 100 steps are about 2 GB.)
MOST_TAKEN_IN = 2**21
# Hypotheses in all information states that a planner keeps: about 1 GB with what leads from one to the other. More, and
# it forgets them. (A bound on memory; all first looks of DoorKey-8x8 and what follows them are well below.)
MOST_REMEMBERED = 2**25

# --- What is refused ----------------------------------------------------------------------------------------

# NumPyro gives each enumerated site a letter and a dimension of its own, of which there are so many.
MOST_ENUMERATED_SITES = 25
# Plans × state sequences × observation sequences × parameters of an enumeration: 0.8 GB in float32.
MOST_ENUMERATED_ENTRIES = 200_000_000
# Outcomes of several uncertain observation sites together, in one slice: a table of 500 states and 10 parameters has
# then 80 MB.
MOST_JOINT_OUTCOMES = 4_096
# Places for each entry of a sparse kernel when these are sorted by where they lead; with more a scatter of the entries
# is taken (chosen, not measured).
MOST_PADDING = 8
# Contents of a memory. The Tiger takes 9 s and 0.8 GB for its first plan of 7 steps with 6 of them remembered (117,649
# contents), 24 s and 2.3 GB for 8 and 7 (823,543), 37 s and 7 GB with one more (5.8 million).
MOST_CONTENTS = 2**20
# Logits of a sequence guide: one more time step multiplies them by U·X or X·Y.
MOST_SEQUENCE_LOGITS = 4_000_000


def is_small(num_parameters: int, num_states: int, num_controls: int) -> bool:
    """Whether a world (with this many of its parameters) is small.

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
