"""How an agent is started: as a child process on this host, by ssh (or its like) on others."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

AGENT_MODULE = "softipu.poprun.agent"
#: Programs that join their words and give them to a shell there; others start them as they are.
_SHELLS = ("ssh", "rsh", "gsissh", "autossh", "dbclient")


@dataclass(frozen=True)
class RemoteShell:
    """The command that reaches other hosts."""

    words: tuple[str, ...] = ("ssh",)
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    connect_seconds: int = 30

    def command(self, host: str) -> list[str]:
        agent = [self.python, "-m", AGENT_MODULE]
        program = os.path.basename(self.words[0])
        if program == "ssh":
            return [*self.words, *self._ssh_options(), *self.arguments, host, shlex.join(agent)]
        if program in _SHELLS:
            return [*self.words, *self.arguments, host, shlex.join(agent)]
        return [*self.words, *self.arguments, host, *agent]

    def _ssh_options(self) -> list[str]:
        options = {
            "BatchMode": "yes",  # a question for a password would wait for ever
            "ConnectTimeout": str(self.connect_seconds),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "EscapeChar": "none",
        }
        return [
            "-T",
            *(f"-o{name}={value}" for name, value in options.items()),
        ]


def start_here() -> subprocess.Popen[bytes]:
    return _start([sys.executable, "-m", AGENT_MODULE])


def start_there(shell: RemoteShell, host: str) -> subprocess.Popen[bytes]:
    return _start(shell.command(host))


def _start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is poprun's business, which then ends all in order."""
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
