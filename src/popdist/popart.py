"""popdist.popart: names that programs import; PopART's own sessions are not there."""

from __future__ import annotations

from typing import Any

from softipu.errors import PopartNotThere


def configureSessionOptions(opts: Any) -> None:
    """Raises: there are no PopART sessions to configure."""
    raise _not_there("configureSessionOptions")


def getDevice(ipus_per_replica: int = 1) -> Any:
    """Raises: there are no PopART sessions that could use the device."""
    raise _not_there("getDevice")


def _not_there(name: str) -> PopartNotThere:
    return PopartNotThere(f"popdist.popart.{name} is for programs that use PopART's own API.")
