"""Docker or Podman as a program: is it there, does it answer, does it have the image.

Every question has a limit in time, and whoever does not answer is ended with all its children.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import IO

from ..errors import EngineDown, EngineMissing, EngineSilent, ImageUnknown


@dataclass(frozen=True)
class Engine:
    name: str
    program: str
    patience: float  #: seconds that a question may take

    def image_user(self, image: str) -> str | None:
        """The user that an image names ("" is root), or None if the image is not here."""
        question = ("image", "inspect", "--format", "{{.Config.User}}", image)
        status, output, _ = self._ask(question)
        if status == 0:
            return output.strip()
        self.check_answers()
        return None

    def check_answers(self) -> None:
        status, _, complaint = self._ask(("version", "--format", "{{.Server.Version}}"))
        if status != 0 and self.name == "docker":
            raise EngineDown(f"{self.name} does not work: {_last_line(complaint)}")
        if status != 0:  # podman has no server to ask about, and says so in its own way
            status, _, complaint = self._ask(("version",))
            if status != 0:
                raise EngineDown(f"{self.name} does not work: {_last_line(complaint)}")

    def pull(self, image: str, patience: float) -> None:
        """Get the image, with the engine's own words about it on standard error."""
        try:
            status, _ = _run([self.program, "pull", image], patience, sys.stderr)
        except subprocess.TimeoutExpired:
            raise EngineSilent(
                f"{self.name} did not get the image {image} within {patience:g} seconds.",
                cause="The registry does not answer, or the image is large.",
                remedy=f"Get it first with `{self.name} pull`, or give more time: --pull-timeout.",
            ) from None
        if status != 0:
            raise ImageUnknown(f"There is no image {image} here, and {self.name} cannot get it.")

    def _ask(self, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        try:
            status, (output, complaint) = _run(
                [self.program, *arguments], self.patience, subprocess.PIPE
            )
        except subprocess.TimeoutExpired:
            raise EngineSilent(
                f"{self.name} {arguments[0]} gave no answer within {self.patience:g} seconds."
            ) from None
        except OSError as error:
            raise EngineDown(f"{self.program} cannot be run: {error.strerror}.") from error
        return status, output, complaint


def find(name: str, patience: float) -> Engine:
    program = shutil.which(name)
    if program is None:
        raise EngineMissing(f"There is no program {name} in PATH.")
    return Engine(name, program, patience)


def _run(
    command: list[str], patience: float, complaints: int | IO[str]
) -> tuple[int, tuple[str, str]]:
    """In a session of its own, so that helpers of the engine end with it when time is up."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if complaints == subprocess.PIPE else complaints,
        stderr=complaints,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, complaint = process.communicate(timeout=patience)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return process.returncode, (output or "", complaint or "")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it says nothing about why."
