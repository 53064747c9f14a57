"""Build hook: put the import finder's .pth file into editable installs too.

Hatchling's `force-include` serves wheels only; an editable install without the .pth file would
silently lack the TensorFlow and Paddle front ends.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EditableFinderHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data["force_include_editable"]["src/zz_softipu.pth"] = "zz_softipu.pth"
