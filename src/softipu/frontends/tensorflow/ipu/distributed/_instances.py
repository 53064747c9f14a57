"""The processes of one program, as PopDist counts them; without PopDist there is one."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any


def _popdist() -> Any:
    if importlib.util.find_spec("popdist") is None:
        return None
    return importlib.import_module("popdist")


def start() -> None:
    popdist = _popdist()
    if popdist is not None:
        popdist.init()
    require_one("PopDistStrategy")


def count() -> int:
    popdist = _popdist()
    return int(popdist.getNumInstances()) if popdist is not None else 1


def index() -> int:
    popdist = _popdist()
    return int(popdist.getInstanceIndex()) if popdist is not None else 0


def require_one(who: str) -> None:
    """There is no communication between processes yet."""
    instances = count()
    if instances > 1:
        raise NotImplementedError(
            f"{who}: PopDist says that this program has {instances} instances, but virtual IPUs "
            "of several processes can't work together yet. Run one instance and give it all the "
            "IPUs (IPUConfig.auto_select_ipus): it runs as many replicas."
        )
