"""`python -m softipu.poprun`."""

from .cli import entry

entry()
