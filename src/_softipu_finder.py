"""Import finder that hands control to a front end after TensorFlow or Paddle was imported.

zz_softipu.pth runs this in every Python process of the environment, so it imports nothing itself
and costs one dictionary look-up for each import until one of the frameworks comes along.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: Framework -> the front end: `prepare()` is called before the framework loads, `apply()` after.
FRONT_ENDS = {
    "tensorflow": "softipu.frontends.tensorflow",
    "paddle": "softipu.frontends.paddle",
}
#: A package that loads a framework in the middle of its own code: the front end acts after it, too.
AROUND = {"tf_keras": "tensorflow"}
#: The module whose meaning the front end of TensorFlow decides.
KERAS = "keras"


class FrontEndFinder:
    """Stands first in sys.meta_path; finds nothing but Keras, and wraps a framework's loader."""

    def __init__(self, front_ends: dict[str, str]) -> None:
        self.front_ends = front_ends
        self._searching: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == KERAS and path is None and name not in self._searching:
            return self._find_keras()
        framework = AROUND.get(name, name)
        if framework not in self.front_ends or path is not None or name in self._searching:
            return None
        from importlib.util import find_spec

        self._searching.add(name)  # the search below comes past here again
        try:
            spec = find_spec(name)
        finally:
            self._searching.discard(name)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            return None  # a single file of that name is somebody's own
        if not exists(self.front_ends[framework]):
            return None
        wrapped = _ApplyAfterLoading(spec.loader, self.front_ends[framework])
        spec.loader = wrapped  # type: ignore[assignment]  # importlib.abc would cost 10 ms
        return spec

    def _find_keras(self) -> ModuleSpec | None:
        """Keras may be imported before TensorFlow; which one it is depends on the program."""
        front_end = self.front_ends.get("tensorflow")
        if front_end is None or not exists(front_end):
            return None
        from importlib import import_module

        self._searching.add(KERAS)
        try:
            spec: ModuleSpec | None = import_module(front_end).find_keras()
        finally:
            self._searching.discard(KERAS)
        return spec


class _ApplyAfterLoading:
    """A loader that lets the front end act right before and after the framework's own code."""

    def __init__(self, loader: Loader, front_end: str) -> None:
        self._loader = loader
        self._front_end = front_end

    def __getattr__(self, name: str) -> object:  # resources, source: the real loader knows
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Put the real loader back: the framework must not see a difference.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        from importlib import import_module

        front_end = import_module(self._front_end)
        front_end.prepare()
        self._loader.exec_module(module)
        front_end.apply()


def exists(module_name: str) -> bool:
    """Whether this softipu has that front end; the parents are imported, the module is not."""
    from importlib.util import find_spec

    try:
        return find_spec(module_name) is not None
    except ModuleNotFoundError:
        return False


def installed() -> bool:
    return any(isinstance(finder, FrontEndFinder) for finder in sys.meta_path)


def install() -> None:
    import os

    if not installed() and os.environ.get("SOFTIPU_DISABLE_HOOKS", "0") in ("", "0"):
        sys.meta_path.insert(0, FrontEndFinder(FRONT_ENDS))
