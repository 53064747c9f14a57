"""Running commands in tests, with errors that show what the command said."""

from __future__ import annotations

import subprocess
from typing import Any

DEFAULT_PROCESS_TIMEOUT_SECONDS = 40 * 60


class CalledProcessError(subprocess.CalledProcessError):
    """A failed command together with its output."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.stdout}\n{self.stderr}"


def run_command_fail_explicitly(
    command: str | list[str],
    cwd: str = ".",
    *,
    suppress_warnings: bool = False,
    **kwargs: Any,
) -> str:
    """What a command printed; CalledProcessError with all of it when the command fails.

    With `suppress_warnings`, standard error is kept out of what is returned.
    """
    options: dict[str, Any] = {
        "shell": isinstance(command, str) and " " in command,
        "stderr": subprocess.STDOUT,
        "timeout": DEFAULT_PROCESS_TIMEOUT_SECONDS,
        "text": True,
        **kwargs,
    }
    if suppress_warnings:
        options["stderr"] = subprocess.PIPE
    try:
        return str(subprocess.check_output(command, cwd=cwd, **options))
    except subprocess.CalledProcessError as error:
        raise CalledProcessError(1, command, _text(error.stdout), _text(error.stderr)) from error


def _text(output: Any) -> Any:
    return output.decode("utf-8", errors="ignore") if isinstance(output, bytes) else output
