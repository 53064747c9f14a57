"""The older name of tensorflow.python.ipu.distributed.popdist_strategy."""

from ..distributed.popdist_strategy import PopDistStrategy

__all__ = ["PopDistStrategy"]
