"""IPU programs are written for Keras 2; TensorFlow picks its Keras when that is first used.

The choice is one environment variable for the whole process, so it is only made for programs that
import the IPU modules: before TensorFlow loads where the program's text says so, else when
`tensorflow.python.ipu` is imported, which is in time unless Keras 3 has been used before.
"""

from __future__ import annotations

import os
import re
import sys

from . import program_text

VARIABLE = "TF_USE_LEGACY_KERAS"
#: The spellings under which programs import us.
_MENTION = re.compile(
    r"tensorflow\.python\.ipu|keras\.ipu|tensorflow\.compiler\.plugin|"
    r"(?:tensorflow\.python|keras)\s+import\s*(?:\([^)]*|[^\n]*)\bipu\b|"
    r"ipu_tensorflow_addons|popdist\.tensorflow"
)
_asked: list[bool] = []
#: Where the program's own code imported Keras 3 as `keras`.
_keras_3: list[str] = []


def requested() -> bool:
    return os.environ.get(VARIABLE) in ("true", "True", "1")


def request() -> None:
    """Keras 2 from now on, unless the user chose otherwise."""
    _asked.append(True)
    os.environ.setdefault(VARIABLE, "1")


def is_for_the_ipu() -> bool:
    """Whether Keras 2 is in use for an IPU program, to which plain `keras` means that one too."""
    return bool(_asked) and requested()


def is_loading() -> bool:
    """Whether Keras 2 is in the middle of its own import: the last of its names is missing."""
    module = sys.modules.get("tf_keras")
    return module is not None and not hasattr(module, "Sequential")


def program_is_for_the_ipu() -> bool:
    """Whether the program that this process runs names the IPU modules in its own text."""
    return any(_MENTION.search(text) for text in program_text.texts())


def keras_3_is_imported() -> None:
    """Called before `import keras` gets Keras 3; what libraries do with it is their own affair, and
    who set the variable has chosen."""
    if VARIABLE in os.environ:
        return
    frame = program_text.importer()
    if frame is not None and not program_text.is_installed(frame.f_code.co_filename):
        _keras_3.append(f"{frame.f_code.co_filename}, line {frame.f_lineno}")


def used_too_early() -> str | None:
    """What of Keras 3 this process already uses, and where."""
    if _keras_3 and "keras" in sys.modules:
        return f"`keras` ({_keras_3[0]})"
    return "`tf.keras`" if _loaded_too_early() else None


def _loaded_too_early() -> bool:
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
