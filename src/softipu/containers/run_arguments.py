"""The arguments of `docker run` and `podman run`, understood as far as gc-docker needs it.

Which word is the image depends on which options take a value, so all of them are listed. An option
that no list has is refused unless its value is written with `=`: a guess would start another image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import RunArgumentsUnclear

#: Options of either program that take no value.
_FLAGS = """
detach disable-content-trust env-host help http-proxy init interactive no-healthcheck
no-hostname no-hosts oom-kill-disable passwd privileged publish-all quiet read-only
read-only-tmpfs replace rm rmi rootfs sig-proxy tls-verify tty unsetenv-all use-api-socket
"""
#: Options of either program that take one.
_VALUED = """
add-host annotation arch attach authfile blkio-weight blkio-weight-device cap-add cap-drop
cgroup-conf cgroup-parent cgroupns cgroups chrootdirs cidfile conmon-pidfile cpu-count
cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus
cpuset-mems creds decryption-key detach-keys device device-cgroup-rule device-read-bps
device-read-iops device-write-bps device-write-iops dns dns-opt dns-option dns-search
domainname entrypoint env env-file env-merge expose gidmap gpus group-add group-entry
health-cmd health-interval health-log-destination health-max-log-count health-max-log-size
health-on-failure health-retries health-start-interval health-start-period
health-startup-cmd health-startup-interval health-startup-retries health-startup-success
health-startup-timeout health-timeout hostname hosts-file hostuser image-volume init-ctr
init-path io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory label label-file
link link-local-ip log-driver log-opt mac-address memory memory-reservation memory-swap
memory-swappiness mount name net net-alias network network-alias oom-score-adj os
passwd-entry personality pid pidfile pids-limit platform pod pod-id-file preserve-fd
preserve-fds publish pull rdt-class requires restart retry retry-delay runtime sdnotify
seccomp-policy secret security-opt shm-size shm-size-systemd stop-signal stop-timeout
storage-opt subgidname subuidname sysctl systemd timeout tmpfs tz uidmap ulimit umask unsetenv
user userns uts variant volume volume-driver volumes-from workdir
"""
FLAGS = frozenset(_FLAGS.split())
VALUED = frozenset(_VALUED.split())
SHORT = {
    "a": "attach", "c": "cpu-shares", "d": "detach", "e": "env", "h": "hostname",
    "i": "interactive", "l": "label", "m": "memory", "p": "publish", "P": "publish-all",
    "q": "quiet", "t": "tty", "u": "user", "v": "volume", "w": "workdir",
}  # fmt: skip
_SAME = {"net": "network", "net-alias": "network-alias", "dns-opt": "dns-option"}


@dataclass(frozen=True)
class RunArguments:
    """What stands behind `--`: options, image, and the program's words."""

    words: tuple[str, ...]
    options: tuple[tuple[str, str | None], ...]  #: long name and value, in order
    image: str

    def values(self, name: str) -> list[str]:
        return [value for option, value in self.options if option == name and value is not None]

    def has(self, *names: str) -> bool:
        return any(option in names for option, _ in self.options)

    def last(self, name: str) -> str | None:
        return next(reversed(self.values(name)), None)

    def mount_targets(self) -> Iterator[str]:
        """The places inside the container at which something is mounted."""
        for value in self.values("volume"):
            parts = value.split(":")
            yield parts[1] if len(parts) > 1 else parts[0]
        for value in self.values("mount"):
            for field in value.split(","):
                key, _, target = field.partition("=")
                if key in ("target", "dst", "destination"):
                    yield target
        yield from (value.split(":")[0] for value in self.values("tmpfs"))


def parse(words: Sequence[str]) -> RunArguments:
    options: list[tuple[str, str | None]] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if not word.startswith("-") or word == "-":
            break
        found, wants_value = _long(word) if word.startswith("--") else _short(word)
        at += 1
        if wants_value:
            if at == len(words):
                raise RunArgumentsUnclear(f"The option {word} needs a value, but none follows.")
            found[-1] = (found[-1][0], words[at])
            at += 1
        options += found
    if at >= len(words):
        raise RunArgumentsUnclear("No image is named after the options.")
    if not words[at]:
        raise RunArgumentsUnclear("The image's name is empty; was a shell variable not set?")
    return RunArguments(tuple(words), tuple(options), words[at])


def _long(word: str) -> tuple[list[tuple[str, str | None]], bool]:
    name, equals, value = word[2:].partition("=")
    known = _SAME.get(name, name)
    if equals:
        return [(known, value)], False
    if name not in FLAGS and name not in VALUED:
        raise RunArgumentsUnclear(
            f"The option {word} is not known here, so it cannot be told whether a value follows.",
            remedy=f"Write {word}=VALUE (or {word}=true).",
        )
    return [(known, None)], name in VALUED


def _short(word: str) -> tuple[list[tuple[str, str | None]], bool]:
    """`-it`, `-e NAME`, `-eNAME`, `-d=true`."""
    found: list[tuple[str, str | None]] = []
    for at, letter in enumerate(word[1:], start=2):
        name = SHORT.get(letter)
        if name is None:
            raise RunArgumentsUnclear(f"{word}: -{letter} is not an option of docker run.")
        rest = word[at:]
        if name in VALUED or rest.startswith("="):
            found.append((name, rest.removeprefix("=") or None))
            return found, name in VALUED and not rest
        found.append((name, None))
    return found, False
