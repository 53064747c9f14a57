"""The TensorFlow front end: what happens around `import tensorflow`.

Nothing here imports TensorFlow, except for a program that is for the IPU and imports Keras first:
`prepare` runs before TensorFlow's code and `apply` right after it, in every program of the
environment, also in those that never touch an IPU. In those they only make `tensorflow.python.ipu`
and its relatives importable; all else waits until one of them is imported.
"""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import ModuleSpec

from softipu import settings

from . import aliases, legacy_keras


def find_keras() -> ModuleSpec | None:
    """For `import keras`: Keras 2 in programs that say they are for the IPU, else nothing."""
    if legacy_keras.program_is_for_the_ipu():
        legacy_keras.request()
    if not legacy_keras.is_for_the_ipu():  # also where the user chose Keras 3
        legacy_keras.keras_3_is_imported()
        return None
    import_module("tensorflow")
    return aliases.AliasFinder().find_spec("keras")


def prepare() -> None:
    """Before TensorFlow's own code: Keras 2 for programs that say they are for the IPU, and where
    XLA keeps what it compiles."""
    if legacy_keras.program_is_for_the_ipu():
        legacy_keras.request()
    if settings.get("TF_POPLAR_FLAGS"):
        from . import executable_cache

        executable_cache.request()


def apply() -> None:
    """After TensorFlow's own code, and once more after that of Keras 2, which may be what loads
    TensorFlow.

    A program for the IPU may import optimisers of Keras before the IPU modules; they have to be
    those of 2.6 by then, because the later ones do not know `lr=`.
    """
    aliases.install()
    if legacy_keras.is_for_the_ipu() and not legacy_keras.is_loading():
        from . import patches

        patches.keras_as_in_2_6()
