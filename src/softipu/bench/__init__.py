"""Measuring: benchmarks, the runner for files of them, plots of their results."""
