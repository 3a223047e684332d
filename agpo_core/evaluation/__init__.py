"""Evaluation: what the loop asks during a run, and benchmarks by their published protocols."""
