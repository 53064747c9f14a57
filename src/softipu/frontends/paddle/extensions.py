"""C++ extensions of programs for the IPU: their parts for PopART are left out of the build.

`paddle.utils.cpp_extension.load` compiles what Paddle needs: operators with their shapes and types.
Vertices, PopART operators and graph patterns need Poplar's headers, libraries, and tiles to run on.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from softipu.errors import PaddleCustomOpMissing

_LIBRARIES = "popart poplar popops popnn poplin poprand popsparse popfloat poputil snap gcl"
_HEADER = re.compile(rf'^\s*#\s*include\s*[<"]({"|".join(_LIBRARIES.split())})/', re.MULTILINE)
_LINKED = re.compile(rf"-l({'|'.join(_LIBRARIES.split())})(_\w+)?$")
#: Text of all sources that were left out.
_left_out: list[str] = []


def install(paddle: Any) -> None:
    """Extensions are built from now on without what they have for PopART."""
    module = paddle.utils.cpp_extension.cpp_extension
    module._write_setup_file = _without_popart(module._write_setup_file)


def defines(name: str) -> bool:
    """Whether a source that was left out has this name in quotes, as graph patterns have theirs."""
    return any(f'"{name}"' in text for text in _left_out)


def _without_popart(write: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(write)
    def write_setup_file(
        name: str,
        sources: Sequence[str],
        file_path: str,
        build_dir: str,
        include_dirs: Any,
        library_dirs: Any,
        cxx_flags: Any,
        cuda_flags: Any,
        link_flags: Sequence[str] | None,
        verbose: bool = False,
    ) -> None:
        texts = {source: _text(source) for source in sources}
        ours = [source for source, text in texts.items() if not _HEADER.search(text)]
        others = [source for source in sources if source not in ours]
        if sources and not ours:
            raise PaddleCustomOpMissing(
                f"The extension {name} is for PopART only: {', '.join(others)}."
            )
        if others:
            _left_out.extend(texts[source] for source in others)
            warnings.warn(
                f"softipu: the extension {name} is built without its sources for PopART, which "
                f"need Poplar and real tiles: {', '.join(Path(one).name for one in others)}.",
                stacklevel=4,
            )
        flags = [flag for flag in link_flags or () if not _LINKED.match(flag)]
        write(name, ours, file_path, build_dir, include_dirs, library_dirs, cxx_flags, cuda_flags,
              flags, verbose)  # fmt: skip

    return write_setup_file


def _text(source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8", errors="replace")
    except OSError:  # the compiler says what is wrong with it
        return ""
