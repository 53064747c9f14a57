"""Whether this process uses the native IPU API, and what that switches on.

IPU programs need Paddle's older program representation and operations that the wheel dropped there.
Programs that don't use the API must not notice us, so all of it waits for a sign: the text of the
program, an object of the API, or SOFTIPU_PADDLE_OLD_IR=1.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from softipu import settings

#: The name of the device, with the plugin and without.
DEVICE = "ipu"
#: Under this name a compiled program carries what runs it.
EXECUTABLE = "_softipu_executable"

#: Names that only programs for the static IPU API spell.
_MENTION = re.compile(r"\b(IpuStrategy|IpuCompiledProgram|ipu_shard_guard|set_ipu_shard)\b")
_TRANSLATION = "FLAGS_enable_pir_with_pt_in_dy2st"
_LARGEST_PROGRAM = 4_000_000
#: Where code lies that is not the program's own: libraries, and softipu wherever it is installed.
_LIBRARIES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[2]),
)

_read: set[str] = set()
_in_use = False


def in_use() -> bool:
    return _in_use


def activate() -> None:
    """Switch to what IPU programs need. Doing it twice is allowed."""
    global _in_use
    if _in_use:
        return
    _in_use = True
    import paddle
    from paddle import pir_utils

    paddle.set_flags({"FLAGS_enable_pir_api": False})
    pir_utils._switch_to_old_ir_()
    from . import extensions, legacy_arguments, legacy_fluid, legacy_ops

    legacy_ops.install(paddle)
    legacy_arguments.install(paddle)
    legacy_fluid.install(paddle)
    extensions.install(paddle)
    train_old_static_layers()


def has_plugin() -> bool:
    """Whether the device comes from the PaddleCustomDevice plugin."""
    from paddle.base import core

    return DEVICE in core.get_all_custom_device_type()


def train_old_static_layers() -> None:
    """Have Paddle run the backward programs of `to_static` layers as they are.

    In the older representation it translates them, and on a plugin's device (which is the one that
    programs begin with where there is a plugin) asks tensors without memory for their place.
    """
    import paddle

    old = not paddle.get_flags("FLAGS_enable_pir_api")["FLAGS_enable_pir_api"]
    if old and has_plugin() and _TRANSLATION not in os.environ:
        paddle.set_flags({_TRANSLATION: False})


def activate_if_meant() -> None:
    """Activate when the environment or the text of the program asks for it."""
    if not _in_use and (settings.get("SOFTIPU_PADDLE_OLD_IR") or _text_mentions_the_api()):
        activate()


def _text_mentions_the_api() -> bool:
    return any(_mentions(path) for path in _program_files())


def _program_files() -> Iterator[str]:
    """Files of the program itself: the main one, those being imported, those loaded already."""
    modules = [sys.modules.get("__main__"), *list(sys.modules.values())]
    for module in modules:
        yield from _own_file(getattr(module, "__file__", None))
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield from _own_file(frame.f_code.co_filename)
        frame = frame.f_back


def _own_file(path: Any) -> Iterator[str]:
    if not isinstance(path, str) or not path.endswith(".py") or path in _read:
        return
    _read.add(path)  # each file is read once
    if not path.startswith(_LIBRARIES):
        yield path


def _mentions(path: str) -> bool:
    file = Path(path)
    try:
        if file.stat().st_size > _LARGEST_PROGRAM:
            return False
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a module whose file is gone has no text to look at
        return False
    return _MENTION.search(text) is not None
