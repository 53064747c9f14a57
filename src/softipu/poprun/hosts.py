"""Lists of hosts: `a,b`, `host[0-2,4]`, or a file with one host on each line."""

from __future__ import annotations

import re
import socket
from functools import cache
from pathlib import Path

from ..errors import HostListInvalid
from . import network

LOCALHOST = "localhost"
#: Names go onto ssh's command line: none may look like an option there.
_NAME = re.compile(r"(?:[A-Za-z0-9_.-]+@)?[A-Za-z0-9_][A-Za-z0-9_.:%-]*")
_MOST_HOSTS = 4096


def parse(text: str) -> tuple[str, ...]:
    """The hosts of `--host`, in their order."""
    found = [name for part in _parts(text) for name in _expanded(part)]
    return _checked(found, f"--host {text!a}")


def read(path: Path) -> tuple[str, ...]:
    """The hosts of `--hostfile`: blank lines and what follows a `#` do not count."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise HostListInvalid(f"The host file {path} cannot be read: {reason}.") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return _checked([name for line in lines if line for name in _expanded(line)], str(path))


def _checked(names: list[str], where: str) -> tuple[str, ...]:
    if not names:
        raise HostListInvalid(f"{where} names no host.")
    for name in names:
        if not _NAME.fullmatch(name):
            raise HostListInvalid(f"{where}: {name!a} is not the name of a host.")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise HostListInvalid(
            f"{where} names {twice[0]} twice.",
            cause="Each host gets its share of the instances once.",
            remedy="Name it once; --num-instances says how many instances there are in all.",
        )
    return tuple(names)


def _parts(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise HostListInvalid(f"--host {text!a}: brackets do not match.")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    if depth:
        raise HostListInvalid(f"--host {text!a}: brackets do not match.")
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _expanded(part: str) -> list[str]:
    match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)", part)
    if match is None:
        return [part]
    return [f"{match[1]}{number}{match[3]}" for number in _numbers(match[2], part)]


def _numbers(text: str, part: str) -> list[str]:
    """`0-2,4` as texts; leading zeros give all numbers of a range the same width."""
    found: list[str] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", piece)
        if match is None:
            raise HostListInvalid(f"--host: {piece!a} in {part!a} is neither a number nor a range.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST_HOSTS:
            raise HostListInvalid(f"--host: the range {piece.strip()} in {part!a} cannot be.")
        width = len(match[1]) if match[1].startswith("0") else 0
        found += [str(number).zfill(width) for number in range(first, last + 1)]
    return found


@cache
def is_here(name: str) -> bool:
    """Whether a name means this machine, so that no ssh is needed to get there."""
    bare = name.rpartition("@")[2]
    own = socket.gethostname()
    if bare in (LOCALHOST, "127.0.0.1", "::1", own, own.partition(".")[0]):
        return name == bare
    if name != bare:
        return False  # another user's account, even if on this machine
    return network.is_own(bare)
