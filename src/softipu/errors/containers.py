"""What the SDK shell and the container tools report."""

from __future__ import annotations

from .base import SoftIPUError

# --- 70xx: the SDK shell and containers ----------------------------------------------------------


class SdkNotInstalled(SoftIPUError):
    code = 7001
    cause = "The SDK's bin/ links to the commands that pip installs; it would be empty."
    remedy = "Install softipu with pip, in the environment whose commands the SDK shall have."


class SdkPlaceTaken(SoftIPUError):
    code = 7002
    cause = "An SDK is written to a new directory, an empty one, or over an older SDK of softipu's."
    remedy = "Name another directory, or empty this one."


class SdkUnwritable(SoftIPUError):
    code = 7003
    cause = "The directory is on a full or read-only file system, or belongs to somebody else."
    remedy = "Name a directory of yours: `softipu sdk write DIR`, or set SOFTIPU_HOME."


class EngineMissing(SoftIPUError):
    code = 7010
    cause = "gc-docker starts containers with docker, gc-podman with podman; it is not installed."
    remedy = "Install it, or add its directory to PATH."


class EngineDown(SoftIPUError):
    code = 7011
    cause = "The engine's daemon is not running, or this user may not talk to it."
    remedy = "Start it (`systemctl start docker`), join the group docker, or use gc-podman."


class EngineSilent(SoftIPUError):
    code = 7012
    cause = "The engine hangs, or the machine is very busy."
    remedy = "Restart the engine, or give it more time with SOFTIPU_ENGINE_TIMEOUT."


class ImageUnknown(SoftIPUError):
    code = 7013
    cause = "The name is misspelt, or its registry does not have it or cannot be reached."
    remedy = "Check the name with `docker images`; docker/build_docker.sh builds softipu's image."


class RunArgumentsUnclear(SoftIPUError):
    code = 7014
    cause = "What follows -- are options of `docker run`, then an image, then its program."
    remedy = "For example: gc-docker -- -it --rm IMAGE."


class ContainerConflict(SoftIPUError):
    code = 7015
    cause = "Arguments of the container contradict what it needs to use the IPUs."
    remedy = "Leave one of the two out; `--echo` shows the whole command."


class PathNotMountable(SoftIPUError):
    code = 7016
    cause = "Docker's option -v separates its parts by colons and knows no way to quote them."
    remedy = "Set SOFTIPU_HOME, or IPUOF_CONFIG_PATH, to a path without a colon."
