"""What changes in stock TensorFlow and Keras once a program imports the IPU modules.

Each change is here, so that one file answers "what did softipu do to my TensorFlow?".
"""

from __future__ import annotations

from . import legacy_keras


def install() -> None:
    """Idempotent; called by the import of tensorflow.python.ipu or keras.ipu."""
    _use_keras_2()


def _use_keras_2() -> None:
    legacy_keras.request()
    import tensorflow as tf
    from tensorflow.python.tools import module_util

    folder = module_util.get_parent_dir_for_name("tf_keras.api._v2.keras")
    if folder is not None and folder not in tf.__path__:
        tf.__path__.insert(0, folder)
