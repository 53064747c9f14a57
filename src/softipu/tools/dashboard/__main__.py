"""`python -m softipu.tools.dashboard`, the same as `softipu dashboard`. No logic of its own."""

from .. import cli
from .command import main

if __name__ == "__main__":
    cli.run(main)()
