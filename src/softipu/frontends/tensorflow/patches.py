"""What changes in stock TensorFlow and Keras once a program imports the IPU modules.

Each change is here, so that one file answers "what did softipu do to my TensorFlow?".
"""

from __future__ import annotations

from importlib import import_module

from softipu.errors import KerasAlreadyLoaded

from . import aliases, legacy_keras, legacy_optimizer_state, legacy_optimizers, moved_names

_PARTS = (
    "moved_names", "estimators", "device_list", "sessions", "ipu_semantics", "replica_variables",
    "dataset_iterators",
)  # fmt: skip


def install() -> None:
    """Idempotent; called by the import of tensorflow.python.ipu or keras.ipu."""
    keras_as_in_2_6()
    for part in _PARTS:
        import_module(f".{part}", __package__).install()
    _add_keras_ipu()


def keras_as_in_2_6() -> None:
    """Idempotent; names in Keras mean what programs for the IPU take them for."""
    _use_keras_2()
    aliases.SPELLINGS.update(moved_names.MODULES)
    legacy_optimizers.install()
    legacy_optimizer_state.install()
    _add_version()


def extend_keras() -> None:
    """What models need that are made under an IPUStrategy."""
    import_module("tf_keras.ipu")


def _use_keras_2() -> None:
    used = legacy_keras.used_too_early()
    if used:
        raise KerasAlreadyLoaded(f"Keras 3 was used before the IPU modules were imported: {used}")
    legacy_keras.request()
    import tensorflow as tf
    from tensorflow.python.tools import module_util

    folder = module_util.get_parent_dir_for_name("tf_keras.api._v2.keras")
    if folder is not None and folder not in tf.__path__:
        tf.__path__.insert(0, folder)


def _add_keras_ipu() -> None:
    """`ipu` as an attribute of Keras under each of its names."""
    module = import_module("tf_keras.ipu")
    for name in ("tf_keras", "tf_keras.api._v2.keras", "tf_keras.src", "tensorflow.keras"):
        import_module(name).ipu = module  # type: ignore[attr-defined]


def _add_version() -> None:
    """TensorFlow 2.6 had it as `tf.keras.__version__`."""
    version = import_module("tf_keras").__version__
    for name in ("tf_keras.api._v2.keras", "tensorflow.keras"):
        vars(import_module(name)).setdefault("__version__", version)
