"""The names under which IPU programs import this front end, resolved by one import finder.

A module is loaded once, under its canonical name; its other spellings are the same object.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from . import legacy_keras

_HERE = Path(__file__).parent
#: Canonical name of a package -> where its files are.
PACKAGES = {
    "tensorflow.python.ipu": _HERE / "ipu",
    "tf_keras.ipu": _HERE / "keras",
    "tensorflow.compiler.plugin": _HERE / "plugin",
}
#: Other spellings -> canonical name.
SPELLINGS = {
    "keras.ipu": "tf_keras.ipu",
    "tensorflow.keras.ipu": "tf_keras.ipu",
    "tensorflow.python.keras.ipu": "tf_keras.ipu",
    "tf_keras.api._v2.keras.ipu": "tf_keras.ipu",
    "tf_keras.src.ipu": "tf_keras.ipu",
}


class _SameModule(Loader):
    """A loader that hands out a module which is already there."""

    def __init__(self, canonical: str) -> None:
        self._canonical = canonical
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._canonical)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just put the other spelling's there


class AliasFinder:
    """Finds our packages under TensorFlow's and Keras's names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if not name.startswith(("tensorflow.", "keras.", "tf_keras.")):
            return None
        for spelling, canonical in SPELLINGS.items():
            if name == spelling or name.startswith(spelling + "."):
                return _same(name, canonical + name[len(spelling) :])
        if name.startswith("keras.") and ".ipu" not in name:
            return _keras_2(name)
        folder = PACKAGES.get(name)
        if folder is None:
            return None
        legacy_keras.request()
        return spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )


def _keras_2(name: str) -> ModuleSpec | None:
    """Inner modules of Keras 2, in a program that calls it `keras`; else they would load twice."""
    keras_2 = sys.modules.get("tf_keras")
    if keras_2 is None or sys.modules.get("keras") is not keras_2:
        return None
    return _same(name, f"tf_keras.src.{name.removeprefix('keras.')}")


def _same(name: str, canonical: str) -> ModuleSpec | None:
    """`name` is the module `canonical`, where that exists; else other finders are asked."""
    try:
        found = canonical in sys.modules or find_spec(canonical) is not None
    except ModuleNotFoundError:
        return None
    return ModuleSpec(name, _SameModule(canonical)) if found else None


def install() -> None:
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())
