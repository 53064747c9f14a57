"""Upstream's operations on the device itself."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import system


def ipu_clear_all_xla_compilation_caches(name: str | None = None) -> Any:
    """There is no such cache: nothing is compiled through Poplar."""
    return tf.no_op(name=name)


def ipu_event_trace(name: str | None = None) -> tf.Tensor:
    """The events since the last call: a software IPU has none of Poplar's events to report."""
    return tf.constant([], tf.string, name=name or "IpuEventTrace")


def ipu_get_configuration(name: str | None = None) -> tf.Tensor:
    """The serialised configuration of each device that is configured."""
    config = system.config()
    serialised = [] if config is None else [config._create_protobuf().SerializeToString()]
    return tf.constant(serialised, tf.string, name=name or "IpuGetConfiguration")
