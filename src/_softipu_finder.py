"""Import finder that hands control to a front end after TensorFlow or Paddle was imported.

zz_softipu.pth runs this in every Python process of the environment, so it imports nothing itself
and costs one tuple comparison for each import until one of the frameworks comes along.
"""

import sys

#: Framework -> the front end whose `apply()` is called once the framework is loaded.
FRONT_ENDS = {
    "tensorflow": "softipu.frontends.tensorflow",
    "paddle": "softipu.frontends.paddle",
}


class FrontEndFinder:
    """Stands first in sys.meta_path; finds nothing, but wraps the loader of a framework."""

    def __init__(self, front_ends):
        self.front_ends = front_ends
        self._searching = set()

    def find_spec(self, name, path=None, target=None):
        if path is not None or name not in self.front_ends or name in self._searching:
            return None
        from importlib.util import find_spec

        self._searching.add(name)
        try:
            spec = find_spec(name)
            front_end = self.front_ends[name]
            if spec is None or spec.loader is None or not _exists(front_end):
                return None
        finally:
            self._searching.discard(name)
        spec.loader = _ApplyAfterLoading(spec.loader, front_end)
        return spec


class _ApplyAfterLoading:
    """A loader that applies the front end right after the framework's own code ran."""

    def __init__(self, loader, front_end):
        self._loader = loader
        self._front_end = front_end

    def __getattr__(self, name):  # resources, source and the like: the real loader knows
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # Put the real loader back: the framework must not see a difference.
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        from importlib import import_module

        import_module(self._front_end).apply()


def _exists(module_name):
    """Whether this softipu has that front end; the parents are imported, the module is not."""
    from importlib.util import find_spec

    try:
        return find_spec(module_name) is not None
    except ModuleNotFoundError:
        return False


def installed():
    return any(isinstance(finder, FrontEndFinder) for finder in sys.meta_path)


def install():
    import os

    if not installed() and os.environ.get("SOFTIPU_DISABLE_HOOKS", "0") in ("", "0"):
        sys.meta_path.insert(0, FrontEndFinder(FRONT_ENDS))
