"""How far a run is: a bar on a terminal, a line for each call elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from . import together
from .figures import Call, call_line
from .vision import package


@contextlib.contextmanager
def shown(total: int, elsewhere: TextIO) -> Iterator[Callable[[Call], None]]:
    """What to call with each call of the program; without a terminal, lines go `elsewhere`. Of
    poprun's instances only the first shows anything."""
    if not sys.stderr.isatty():
        yield lambda call: together.tell(together.label() + call_line(call), elsewhere)
        return
    if not together.is_first():
        yield lambda _call: None
        return
    with package("tqdm").tqdm(total=total, unit="call", file=sys.stderr, leave=False) as bar:

        def advance(call: Call) -> None:
            bar.set_postfix_str(f"{call.throughput:.1f} imgs/sec", refresh=False)
            bar.update()
            if bar.n == total:  # However soon after the one before it.
                bar.refresh()

        yield advance
