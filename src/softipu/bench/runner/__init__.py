"""The runner for benchmarks.yml files, known as `python -m examples_utils benchmark`."""
