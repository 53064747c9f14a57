"""Errors of TensorFlow programs that run as several instances."""

from __future__ import annotations

from .base import SoftIPUError


class LayoutsDiffer(SoftIPUError):
    code = 7300
    cause = "A collective needs tensors of one type and shape in all instances."
    remedy = (
        "Run the same program in all instances, with batches of the same size: shard the data "
        "evenly (Dataset.shard, batch(..., drop_remainder=True))."
    )


class InstancesOutOfStep(SoftIPUError):
    code = 7301
    cause = (
        "Instances have to make the same collective calls in the same order; one of them took "
        "another way, had less data, or failed before."
    )
    remedy = (
        "Give all instances the same number of steps, and call fit, evaluate, save and "
        "strategy.reduce in all of them, not only in instance 0."
    )


class InstanceConfiguration(SoftIPUError):
    code = 7302
    cause = "IPUConfig.experimental.multi_replica_distribution is not what poprun started."
    remedy = "Let popdist.tensorflow.set_ipu_config(config) fill in the configuration."


class PopdistTensorFlowMisuse(SoftIPUError):
    code = 7303
    cause = "The arguments don't fit the instances that poprun started, or the configuration."
    remedy = "Give poprun and the program the same --ipus-per-replica, and pass an IPUConfig."
