"""Notebooks as benchmarks; also the module that the runner starts for them."""

from softipu.bench.runner.notebook import entry, run_notebook

__all__ = ["run_notebook"]

if __name__ == "__main__":
    entry()
