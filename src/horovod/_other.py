"""Whether a Horovod of other people is installed; it wins over ours.

Both distributions have a package of this name. In one site-packages the files of whichever was
installed last are on top; in different folders of the path Python takes the first. Here it is
decided by one rule, and said aloud: a really installed Horovod is used, ours steps back.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path


def installed(own: Iterable[str]) -> str | None:
    """The folder of another horovod on Python's path; None with SOFTIPU_HOROVOD=1."""
    from softipu import settings

    ours = {os.path.realpath(folder) for folder in own}
    for place in ours:
        if os.path.isfile(f"{place}/common/__init__.py"):
            # Its packages hide our modules of the same names, whoever was installed last.
            warnings.warn(
                f"Files of another Horovod lie among softipu's in {place}: its modules are used. "
                "Uninstall it, or install it where softipu is not.",
                stacklevel=3,
            )
    for entry in sys.path:
        folder = Path(entry or ".") / "horovod"
        if (folder / "__init__.py").is_file() and os.path.realpath(folder) not in ours:
            if settings.get("SOFTIPU_HOROVOD"):
                return None
            warnings.warn(
                f"The Horovod in {folder} is used, not softipu's: it has its own processes and "
                "knows nothing of poprun's instances. SOFTIPU_HOROVOD=1 takes softipu's.",
                stacklevel=3,
            )
            return str(folder)
    return None
