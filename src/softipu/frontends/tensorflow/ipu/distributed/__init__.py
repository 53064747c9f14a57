"""Part of tensorflow.python.ipu: programs of several processes, as PopDist starts them."""

from .host_collective_ops import allgather, allreduce, broadcast

__all__ = ["allgather", "allreduce", "broadcast"]
