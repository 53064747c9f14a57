"""`python -m softipu.arch [NAME…]`: print the values of chips and systems as Markdown.

For the docs build and the curious; programs use the functions of `softipu.arch`.
"""

from __future__ import annotations

import argparse
import os
import sys

from softipu.arch.table import markdown_table
from softipu.errors import ArchitectureError, UnknownSystem


def main(arguments: list[str] | None = None) -> int:
    """Print the tables; 2 and a message on stderr when a name is unknown or a file is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m softipu.arch",
        description="Print every value of the chips and systems, with unit and source.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="chips or systems (default: all)")
    options = parser.parse_args(arguments)
    try:
        print(markdown_table(*options.names), flush=True)
    except (ArchitectureError, UnknownSystem) as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (head, less) has seen enough; keep Python quiet when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
