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
