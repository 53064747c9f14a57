"""From devices, engine and the user's arguments to the one command to run. Pure functions.

Where the user says otherwise, his word counts and ours is left out; where that cannot work, the
command is refused with the reason.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import ContainerConflict, PathNotMountable
from .passing import CHOOSING, CONFIGURATIONS, STATE, Passing
from .run_arguments import RunArguments

#: Options that docker refuses, or ignores, on the host's network.
_OWN_NETWORK = ("ip", "ip6", "link", "link-local-ip", "mac-address", "network-alias")
_ROOT = ("", "0", "root")


@dataclass(frozen=True)
class Host:
    """What the command depends on besides the user's words."""

    uid: int
    gid: int
    engine: str  #: docker or podman
    state_uid: int  #: owner of the state directory
    state_is_shared: bool = False  #: its group or everybody may write there
    memory_lock_unlimited: bool = True  #: the caller's own limit

    @property
    def rootless(self) -> bool:
        """Podman without root: the container's root is the caller."""
        return self.engine == "podman" and self.uid != 0


def own_variables(arguments: RunArguments, env_files: Iterable[Mapping[str, str]]) -> set[str]:
    """The variables that the user passes himself."""
    names = {value.partition("=")[0] for value in arguments.values("env")}
    return names.union(*env_files)


def chooses_ipus(arguments: RunArguments, variables: set[str]) -> bool:
    """Whether the user says himself which IPUs the container gets."""
    mounted = (target.rstrip("/") for target in arguments.mount_targets())
    return bool(variables.intersection(CHOOSING)) or any(
        target == CONFIGURATIONS or target.startswith(f"{CONFIGURATIONS}/") for target in mounted
    )


def check(arguments: RunArguments, variables: set[str], some_devices: bool, host: Host) -> None:
    """Refuse what contradicts itself, before anything is looked at or written."""
    if some_devices and chooses_ipus(arguments, variables):
        raise ContainerConflict(
            "--device-id chooses devices, and so do the variables or files given to the container.",
            remedy=f"Leave out --device-id, or {', '.join(CHOOSING)} and {CONFIGURATIONS}.",
        )
    if "SOFTIPU_HOME" in variables:
        raise ContainerConflict(
            "SOFTIPU_HOME is given to the container, but it is always passed.",
            remedy="To share another state directory: SOFTIPU_HOME=DIR before the command.",
        )
    if any(target.rstrip("/") == STATE for target in arguments.mount_targets()):
        raise ContainerConflict(
            f"Something is mounted at {STATE}, where the state directory belongs.",
            remedy="Mount it elsewhere; for another state directory set SOFTIPU_HOME.",
        )
    if not arguments.has("network", "pod"):
        for name in _OWN_NETWORK:
            if arguments.has(name):
                raise ContainerConflict(
                    f"--{name} needs a network of the container's own, but it gets the host's.",
                    remedy="Name a network too: --network=NAME.",
                )
    _check_user(arguments, host)


def _check_user(arguments: RunArguments, host: Host) -> None:
    user = (arguments.last("user") or "").partition(":")[0]
    if not user.isdigit() or host.state_is_shared or host.rootless:
        return
    if int(user) not in (0, host.state_uid):
        raise ContainerConflict(
            f"User {user} in the container could not use the state directory, which is user "
            f"{host.state_uid}'s alone.",
            remedy=f"Use --user={host.state_uid}, or a SOFTIPU_HOME that both may write.",
        )


def check_network(arguments: RunArguments, passing: Passing) -> None:
    """A V-IPU server must be in reach of the container."""
    network = arguments.last("network")
    if passing.server is None or network in (None, "host"):
        return
    if network == "none" or (is_loopback(passing.server) and not arguments.has("pod")):
        raise ContainerConflict(
            f"The V-IPU server {passing.server} cannot be reached with --network={network}.",
            remedy="Leave the option out, or give the container an IPUoF file instead.",
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def run_command(
    program: str,
    passing: Passing,
    arguments: RunArguments,
    host: Host,
    image_user: str | None,
) -> list[str]:
    """The whole command. `image_user` is the user that the image names, None if nobody knows."""
    ours = [*_settings(arguments, host), *_user(arguments, host, image_user)]
    ours += _mount(str(passing.state), STATE)
    for source, target in passing.files:
        ours += _mount(str(source), f"{target}:ro")
    for name, value in (("SOFTIPU_HOME", STATE), *passing.variables):
        ours += ["-e", name if value is None else f"{name}={value}"]
    return [program, "run", *ours, *arguments.words]


def _settings(arguments: RunArguments, host: Host) -> Iterable[str]:
    """What the real tool passes for IPUs; a software IPU works without, so the user may differ."""
    limited = any(value.startswith("memlock") for value in arguments.values("ulimit"))
    # Podman without root cannot raise a limit of the caller.
    if not limited and (host.memory_lock_unlimited or not host.rootless):
        yield "--ulimit=memlock=-1:-1"
    if not arguments.has("network", "pod"):
        yield "--net=host"
    # --shm-size asks for a segment of the container's own, which the host's IPC would take away.
    if not arguments.has("ipc", "pod", "shm-size"):
        yield "--ipc=host"
    dropped = {value.upper().removeprefix("CAP_") for value in arguments.values("cap-drop")}
    if "IPC_LOCK" not in dropped:
        yield "--cap-add=IPC_LOCK"


def _user(arguments: RunArguments, host: Host, image_user: str | None) -> Iterable[str]:
    """Root in a container may use the state directory; an image's other users are nobody here."""
    if image_user is None or image_user.partition(":")[0] in _ROOT:
        return
    if arguments.has("user", "userns") or host.state_is_shared:
        return
    if host.rootless:
        yield "--userns=keep-id"
    yield f"--user={host.uid}:{host.gid}"


def _mount(source: str, target: str) -> list[str]:
    if ":" in source:
        raise PathNotMountable(f"{source} has a colon in it, which docker takes for a separator.")
    return ["-v", f"{source}:{target}"]
