"""One function a figure. Each returns the figure and the data that it draws, for asserts."""

from agpo_core.experiments.plots.runs import controller_traces, learning_curves, main_results

__all__ = ["controller_traces", "learning_curves", "main_results"]
