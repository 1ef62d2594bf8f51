"""Families of odd but plausible programs, for ``benchmarks/fuzz_programs.py``."""
