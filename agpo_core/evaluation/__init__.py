"""Evaluation: the scores that the training loop takes during a run, and benchmarks by their published protocols."""
