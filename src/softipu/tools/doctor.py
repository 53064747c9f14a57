"""`softipu doctor`: check the installation, and pack what a bug report needs into a zip.

The zip holds no secrets: environment variables only by our own table, keys never, and the user's
name, home directory and host name replaced everywhere.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import json
import os
import re
import socket
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from .. import devices, settings
from ..devices.home import user_home
from ..errors import SelfTestFailed, SoftIPUError, StateUnusable
from . import cli
from .checks import CHECKS, FAIL, SECRETS, Finding, hide_credentials

DEFAULT_ZIP = "softipu-doctor.zip"


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu doctor",
        description="Check versions, state, hooks and devices; write a zip for a bug report.",
    )
    add = result.add_argument
    add("--zip", metavar="FILE", default=DEFAULT_ZIP, help=f"zip to write (default {DEFAULT_ZIP})")
    add("--no-zip", action="store_true", help="only check")
    add("--json", action="store_true", help="print the findings as JSON")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    findings = collect()
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{finding.level:<5} {finding.topic}: {finding.text}")
    if not options.no_zip:
        path = Path(options.zip)
        try:
            write_zip(path, findings)
        except OSError as error:
            raise StateUnusable(
                f"The zip {path} cannot be written: {error.strerror}.",
                cause="The directory does not exist, is full, or may not be written.",
                remedy="Name another file with --zip, or leave it out with --no-zip.",
            ) from error
        print(f"Wrote {path}: look into it, then attach it to your report.", file=sys.stderr)
    failed = [finding for finding in findings if finding.level == FAIL]
    if failed:
        topics = ", ".join(sorted({finding.topic for finding in failed}))
        raise SelfTestFailed(f"{len(failed)} of {len(findings)} checks failed: {topics}.")
    return 0


def collect() -> list[Finding]:
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings += check()
        except Exception as error:  # noqa: BLE001 - a doctor must survive every patient
            name = check.__name__.removeprefix("check_").replace("_", " ")
            findings.append(Finding(FAIL, name, f"{type(error).__name__}: {error}"))
    return findings


def write_zip(path: Path, findings: Sequence[Finding]) -> None:
    clean = redactor()
    contents = {
        "findings.txt": "\n".join(f"{f.level:<5} {f.topic}: {f.text}" for f in findings),
        "environment.txt": "\n".join(_environment()),
        "packages.txt": "\n".join(_packages()),
        "devices.json": _devices(),
        "about.txt": time.strftime("made %Y-%m-%d %H:%M:%S UTC by softipu doctor", time.gmtime()),
    }
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        open(os.open(path, flags, 0o600), "wb") as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, text in contents.items():
            archive.writestr(name, clean(text) + "\n")


def redactor() -> Callable[[str], str]:
    """A function that takes names of people and machines, and credentials in URLs, out of text."""
    replacements = [(socket.gethostname(), "<host>")]
    home = user_home()
    if home is not None:
        replacements.insert(0, (str(home), "<home>"))
    with contextlib.suppress(KeyError, OSError):  # a uid without a name has none to hide
        replacements.append((getpass.getuser(), "<user>"))
    key = settings.get("SOFTIPU_VIPU_ACCESS_KEY")
    if key:
        replacements.insert(0, (key, "<key>"))

    def clean(text: str) -> str:
        for secret, label in replacements:
            if len(secret) > 1:
                text = re.sub(rf"(?<![\w]){re.escape(secret)}(?![\w])", label, text)
        return hide_credentials(text)

    return clean


def _environment() -> list[str]:
    lines = []
    for name in settings.SETTINGS:
        if settings.is_set(name):
            lines.append(f"{name}={'<set>' if name in SECRETS else os.environ[name]}")
    return lines


def _packages() -> list[str]:
    found = {
        f"{distribution.metadata['Name']} {distribution.version}"
        for distribution in importlib.metadata.distributions()
    }
    return sorted(found, key=str.lower)


def _devices() -> str:
    try:
        body = [
            {
                "partition": partition.name,
                "system": partition.system,
                "origin": partition.origin,
                "ipus": len(partition.ipus),
                "held": [
                    {"id": s.ipu.id, "command": s.record.command if s.record else None}
                    for s in devices.status(partition)
                    if s.held
                ],
            }
            for partition in devices.partitions()
        ]
    except SoftIPUError as error:
        return json.dumps(error.to_json(), indent=2)
    return json.dumps(body, indent=2)


entry = cli.run(main)
