"""IPU programs are written for Keras 2; TensorFlow picks its Keras when that is first used.

The choice is one environment variable for the whole process, so it is only made for programs that
import the IPU modules: before TensorFlow loads where the main program's text says so, else when
`tensorflow.python.ipu` is imported, which is in time unless Keras 3 has been used before.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

VARIABLE = "TF_USE_LEGACY_KERAS"
#: The spellings under which programs import us.
_MENTION = re.compile(
    r"tensorflow\.python\.ipu|tensorflow\.python\s+import\s[^\n]*\bipu\b|keras\.ipu|"
    r"keras\s+import\s[^\n]*\bipu\b|import_module\(.tensorflow\.python\.ipu|"
    r"ipu_tensorflow_addons"
)
_LARGEST_PROGRAM = 4_000_000
_asked: list[bool] = []


def requested() -> bool:
    return os.environ.get(VARIABLE) in ("true", "True", "1")


def request() -> None:
    """Keras 2 from now on, unless the user chose otherwise."""
    _asked.append(True)
    os.environ.setdefault(VARIABLE, "1")


def is_for_the_ipu() -> bool:
    """Whether Keras 2 is in use for an IPU program, to which plain `keras` means that one too."""
    return bool(_asked) and requested()


def main_program_is_for_the_ipu() -> bool:
    """Whether the program that this process runs names the IPU modules in its own text."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if not main or not main.endswith(".py"):
        return False
    path = Path(main)
    try:
        if path.stat().st_size > _LARGEST_PROGRAM:
            return False
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a main program that is not a file has no text to look at
        return False
    return _MENTION.search(text) is not None


def loaded_too_early() -> bool:
    """Whether this process already uses Keras 3 under the name tf.keras."""
    modules = (sys.modules.get("tensorflow.keras"), vars(sys.modules["tensorflow"]).get("keras"))
    # Looked up in their dictionaries: asking the lazy loader of Keras anything would load it.
    facts = [vars(module) for module in modules if module is not None]
    return any(
        known.get("_tfll_keras_version") == "keras_3"
        or str(known.get("__name__")).startswith("keras.")
        or "_tf_keras" in str(known.get("__file__"))
        for known in facts
    )
