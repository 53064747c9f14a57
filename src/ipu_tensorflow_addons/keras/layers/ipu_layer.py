"""What all layers here refuse alike."""

from __future__ import annotations

from typing import Any


def refuse(layer: str, given: dict[str, Any], method: str = "__init__") -> None:
    """Arguments that exist for Keras's sake, and that IPUs do nothing with."""
    for name, value in given.items():
        if value is not None and value is not False and value != 0:
            raise NotImplementedError(
                f"ipu_tensorflow_addons.keras.layers.{layer} does not support {method} argument "
                f"{name}. It is there because keras.layers.{layer} has it: leave it out, or use "
                f"that layer."
            )
