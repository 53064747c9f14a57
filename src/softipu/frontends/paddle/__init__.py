"""The Paddle front end: what happens around `import paddle`.

Nothing here imports Paddle: `prepare` runs before its code and `apply` right after it, in every
program of the environment, also in those that never touch an IPU.
"""

from __future__ import annotations

import os
import re
import sys
import warnings

_flags_before: list[int] = []
#: Whose functions the front end knows and changes: the versions that it is tested with.
SUPPORTED = "3.3"


def prepare() -> None:
    """Before Paddle's own code, which loads the plugin."""
    from . import partition

    partition.hand_over()
    # Paddle sets it to 1 if the user did not: the plugin could not tell who did. 0: all cores.
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    os.environ.setdefault("SOFTIPU_PADDLE_THREADS", wanted or "0")
    # Milliseconds. Idle threads would spin for 200 after each op, on cores that others could use.
    os.environ.setdefault("KMP_BLOCKTIME", "1")
    # Both bring parts of the same libraries. Paddle must not find TensorFlow's in place of its own:
    # it would end with a signal.
    if "tensorflow" in sys.modules:
        flags = sys.getdlopenflags()
        _flags_before.append(flags)
        sys.setdlopenflags(flags | os.RTLD_DEEPBIND)


def apply() -> None:
    """After Paddle's own code."""
    while _flags_before:
        sys.setdlopenflags(_flags_before.pop())
    import paddle

    version = getattr(paddle, "__version__", "of an unknown version")
    if not is_supported(version):
        _tell_version(version)
        return
    from . import inference, patches, usage

    patches.install(paddle)
    usage.activate_if_meant()
    usage.train_old_static_layers()
    inference.install(paddle)


def is_supported(version: str) -> bool:
    """Whether a Paddle of this version is one that the front end may change."""
    return re.match(rf"{re.escape(SUPPORTED)}(\.|$)", version) is not None


def _tell_version(version: str) -> None:
    """Paddle itself goes on: most of its programs have nothing to do with IPUs."""
    from softipu.errors import PaddleVersion

    problem = PaddleVersion(f"Paddle {version} was imported, and has no IPUs.")
    warnings.warn(str(problem), stacklevel=2)
