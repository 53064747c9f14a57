"""`python -m examples_utils COMMAND`."""

from softipu.bench.runner.cli import entry

entry()
