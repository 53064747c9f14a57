"""The names under which IPU programs import this front end, resolved by one import finder.

A module is loaded once, under its canonical name; its other spellings are the same object.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from softipu.errors import EstimatorModuleNotThere

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
#: Where the modules of Keras 2 are: with all their inner names, and with the public ones.
_KERAS_2 = ("tf_keras.src", "tf_keras")
#: What TensorFlow had until version 2.15.
_ESTIMATORS = (
    "tensorflow.estimator", "tensorflow.python.estimator", "tensorflow.compat.v1.estimator",
    "tensorflow.compat.v2.estimator",
)  # fmt: skip
#: Those that mean something else as inner modules.
_PUBLIC = ("keras.optimizers",)


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


class _Borrowed(Loader):
    """Loads a module that was found under another spelling of its name, once for both."""

    def __init__(self, found: ModuleSpec) -> None:
        self._found = found

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = module_from_spec(self._found)
        sys.modules[self._found.name] = module
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._found
        assert self._found.loader is not None
        self._found.loader.exec_module(module)


class AliasFinder:
    """Finds our packages under TensorFlow's and Keras's names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name == "keras":
            return _same(name, "tf_keras") if legacy_keras.is_for_the_ipu() else None
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


class LastResort:
    """Finds a module of our packages that someone provides under another spelling only, and tells
    programs for IPUs of what nobody provides any more.

    It comes after all other finders, and asks them itself, so that it is never asked by itself.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for spelling, canonical in SPELLINGS.items():
            if canonical not in PACKAGES or not name.startswith(canonical + "."):
                continue
            found = _of_others(spelling + name[len(canonical) :], path, target)
            if found is not None and found.loader is not None:
                return ModuleSpec(name, _Borrowed(found))
        if name in _ESTIMATORS and legacy_keras.is_for_the_ipu():
            raise EstimatorModuleNotThere(f"The module {name} is not available.")
        return None


def _of_others(
    name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is None or isinstance(finder, AliasFinder | LastResort):
            continue
        found: ModuleSpec | None = find(name, path, target)
        if found is not None:
            return found
    return None


def _keras_2(name: str) -> ModuleSpec | None:
    """Inner modules of Keras 2, in a program that calls it `keras`; else they would load twice."""
    keras_2 = sys.modules.get("tf_keras")
    if keras_2 is None or sys.modules.get("keras") is not keras_2:
        return None
    packages = reversed(_KERAS_2) if name.startswith(_PUBLIC) else _KERAS_2
    found = (_same(name, f"{package}.{name.removeprefix('keras.')}") for package in packages)
    return next(filter(None, found), None)


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
        sys.meta_path.append(LastResort())
