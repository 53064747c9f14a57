"""Paddle's plugin tells errors from C++: they are the same as in Python, and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from softipu.errors import SoftIPUError

ROOT = Path(__file__).parent.parent.parent
SOURCES = [
    *(ROOT / "plugins" / "paddle" / "runtime").glob("*.cc"),
    *(ROOT / "plugins" / "paddle" / "src").glob("*.cc"),
    *(ROOT / "src" / "softipu" / "frontends" / "paddle" / "cpp" / "src").glob("*.cc"),
]
_TEXT = r'((?:\s*"(?:[^"\\]|\\.)*")+)'
_KIND = re.compile(rf"const ErrorKind k\w+\{{\s*(\d+),{_TEXT},{_TEXT}\}};")


def _joined(literals: str) -> str:
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals))


KINDS = _KIND.findall((ROOT / "plugins" / "paddle" / "runtime" / "errors.cc").read_text())


def test_every_kind_was_found():
    text = (ROOT / "plugins" / "paddle" / "runtime" / "errors.cc").read_text()
    assert len(KINDS) == text.count("const ErrorKind k") > 10


@pytest.mark.parametrize(("code", "cause", "remedy"), KINDS, ids=[kind[0] for kind in KINDS])
def test_cause_and_way_out_are_those_of_python(code: str, cause: str, remedy: str):
    known = SoftIPUError.registry[int(code)]
    assert (_joined(cause), _joined(remedy)) == (known.cause, known.remedy)


def test_codes_in_the_text_are_known():
    used = {int(code) for path in SOURCES for code in re.findall(r"SIPU-(\d{4})", path.read_text())}
    assert used >= {4201, 4202, 4203, 4204}
    assert used <= SoftIPUError.registry.keys() | {SoftIPUError.code}
