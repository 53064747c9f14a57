"""Image classification inference on the software IPU; the same as `softipu bench run`."""

from __future__ import annotations

from softipu.bench.run import main
from softipu.tools import cli

entry = cli.run(lambda argv: main(argv, prog="run_benchmark.py"))

if __name__ == "__main__":
    entry()
