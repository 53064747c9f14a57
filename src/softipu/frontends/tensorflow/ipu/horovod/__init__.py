"""Part of tensorflow.python.ipu: names of SDKs before 3.0, where Horovod joined the instances."""

from horovod.tensorflow import (
    Average,
    Sum,
    allgather,
    allreduce,
    broadcast,
    init,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

__all__ = [
    "Average",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "init",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]
