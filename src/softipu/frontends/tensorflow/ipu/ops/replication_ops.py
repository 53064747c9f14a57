"""Which replica am I?"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas


def replication_index(name: str | None = None) -> Any:
    """The number of the replica that runs this, from 0."""
    return tf.identity(replicas.replica_index(), name=name or "ReplicationIndex")
