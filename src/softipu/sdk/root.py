"""Where the SDK's directory is, what is in it, and how it is written.

Each file is replaced whole, so that several processes may write the same SDK at once and a shell
that sources a file meanwhile reads the old or the new one. Nothing else is ever overwritten: a
marker file tells our directories from others.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from ..devices.home import Home, read_json
from ..errors import SdkNotInstalled, SdkPlaceTaken, SdkUnwritable

#: In the SDK and in each component; `softipu doctor` looks for it, and so do the shell files.
MARKER = "softipu"
#: Stands where the name of a system stands in real names: scripts look for `poplar-ubuntu*`.
SYSTEM = "ubuntu_any"
_FILES = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Sdk:
    """The paths of one SDK."""

    root: Path
    version: str = __version__

    @property
    def poplar(self) -> Path:
        """What POPLAR_SDK_ENABLED names."""
        return self.root / f"poplar-{SYSTEM}-{self.version}"

    @property
    def popart(self) -> Path:
        return self.root / f"popart-{SYSTEM}-{self.version}"

    @property
    def bin(self) -> Path:
        return self.poplar / "bin"


def installed_scripts() -> dict[str, Path]:
    """The commands of the environment that this process runs in, by name."""
    try:
        found = importlib.metadata.distribution("softipu")
    except importlib.metadata.PackageNotFoundError:
        raise SdkNotInstalled("This Python has no package softipu, only its source.") from None
    names = {entry.name for entry in found.entry_points if entry.group == "console_scripts"}
    scripts = {
        file.name: Path(os.path.abspath(str(found.locate_file(file))))
        for file in found.files or ()
        if file.name in names and file.parent.name == "bin"
    }
    missing = sorted(name for name in names if not _is_program(scripts.get(name)))
    if missing or not names:
        raise SdkNotInstalled(
            f"Commands of softipu are not where its installation says: {', '.join(missing)}."
        )
    return dict(sorted(scripts.items()))


def _is_program(path: Path | None) -> bool:
    return path is not None and os.access(path, os.X_OK)


def default_sdk(home: Home | None = None) -> Sdk:
    """The SDK of this environment, in the state directory; one for each environment."""
    name = hashlib.sha256(sys.prefix.encode(errors="surrogateescape")).hexdigest()[:10]
    base = (home or Home()).path / "sdk"
    return Sdk(base / f"poplar_sdk-{SYSTEM}-{__version__}-{name}")


def write(sdk: Sdk, scripts: Mapping[str, Path]) -> None:
    """Make the SDK, or bring it up to date. A directory with other files in it is refused."""
    with _explained(sdk.root):
        _check_place(sdk.root)
        marker = {"softipu": sdk.version, "environment": sys.prefix}
        # The marker first: what a killed writer leaves, or another one has begun, is then known
        # to be ours.
        for folder in (sdk.root, sdk.poplar, sdk.popart):
            folder.mkdir(parents=True, exist_ok=True)
            _replace(folder / MARKER, json.dumps(marker) + "\n")
        sdk.bin.mkdir(exist_ok=True)
        for name, script in scripts.items():
            _link(sdk.bin / name, script)
        for entry in sdk.bin.iterdir():
            if entry.name not in scripts and entry.is_symlink():
                entry.unlink(missing_ok=True)
        _replace(sdk.poplar / "enable.sh", _sourced("prepend.sh", "poplar_enable.sh"))
        _replace(sdk.popart / "enable.sh", _sourced("prepend.sh", "popart_enable.sh"))
        _replace(sdk.root / "enable", _sourced("enable.sh"))
        _replace(sdk.root / "envs.sh.template", _text("envs.sh.template"))
        _remove_other_versions(sdk)


@contextlib.contextmanager
def _explained(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SdkUnwritable(f"{error.filename or root}: {error.strerror or error}.") from error


def _check_place(root: Path) -> None:
    if not os.path.lexists(root):
        return
    if not root.is_dir():
        raise SdkPlaceTaken(f"{root} is a file, not a directory.")
    drafts = f".{MARKER}."
    if any(not path.name.startswith(drafts) for path in root.iterdir()) and not is_ours(root):
        raise SdkPlaceTaken(f"{root} has files in it, but none of softipu's.")


def is_ours(folder: Path) -> bool:
    marker = read_json(folder / MARKER)
    return isinstance(marker, dict) and MARKER in marker


def _text(name: str) -> str:
    return (_FILES / name).read_text()


def _sourced(*names: str) -> str:
    """A whole shell file: each must do without the others, wherever it is copied."""
    return "".join(_text(part) for part in ("common.sh", *names, "finish.sh"))


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")


def _replace(path: Path, text: str) -> None:
    draft = _draft(path)
    try:
        draft.write_text(text)
        draft.chmod(0o644)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and os.readlink(path) == str(target):
        return
    draft = _draft(path)
    try:
        draft.symlink_to(target)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _remove_other_versions(sdk: Sdk) -> None:
    """Scripts that look for `poplar-*/enable.sh` must find one."""
    for component in (sdk.poplar, sdk.popart):
        prefix = component.name.removesuffix(sdk.version)
        for other in sdk.root.glob(f"{prefix}*"):
            if other.name != component.name and not other.is_symlink() and is_ours(other):
                shutil.rmtree(other)
