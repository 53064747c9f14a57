"""The SDK shell: a directory that scripts written for the Poplar SDK can `source` and look into.

It holds no program of its own, only links to the commands of one Python environment.
"""

from __future__ import annotations

from .root import Sdk, default_sdk, installed_scripts, write

__all__ = ["Sdk", "default_sdk", "installed_scripts", "write"]
