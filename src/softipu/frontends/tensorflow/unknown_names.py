"""The error for a name that a module of ours does not have, with the one that is meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_KERAS = "Keras for the IPU is `tf.keras.ipu`"
#: Names that were, or are taken to be, in a module -> where to look.
_ELSEWHERE = {
    ("tensorflow.python.ipu", "keras"): f"{_KERAS}, further layers are in ipu_tensorflow_addons.",
    ("tensorflow.python.ipu", "IPUConfig"): "It is `ipu.config.IPUConfig`.",
    ("tensorflow.python.ipu", "IPUStrategy"): "It is `ipu.ipu_strategy.IPUStrategy`.",
    ("tf_keras.ipu", "Model"): "`tf.keras.Model` under an IPUStrategy runs on IPUs.",
    ("tf_keras.ipu", "Sequential"): "`tf.keras.Sequential` under an IPUStrategy runs on IPUs.",
}
_ADDONS = {
    "tf_keras.ipu.layers": "More layers are in `ipu_tensorflow_addons.keras.layers`.",
    "tf_keras.ipu.optimizers": "More optimisers are in `ipu_tensorflow_addons.keras.optimizers`.",
}


def error(module: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    text = f"module {module!r} has no attribute {name!r}"
    if name.startswith("__"):  # asked for by Python, not by a program
        return AttributeError(text)
    hints = [_ELSEWHERE.get((module, name)) or _similar(name, known), _ADDONS.get(module)]
    return AttributeError(" ".join([f"{text}.", *filter(None, hints)]))


def _similar(name: str, known: Iterable[str]) -> str | None:
    public = [each for each in known if not each.startswith("_")]
    same = [each for each in public if each.lower() == name.lower()]
    close = same or get_close_matches(name, public, 3)
    return f"Did you mean {', '.join(f'`{each}`' for each in close)}?" if close else None
