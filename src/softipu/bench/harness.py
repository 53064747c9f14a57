"""From options to a running model: PopTorch's options, the executor, and an example batch."""

from __future__ import annotations

from typing import Any

import torch

import poptorch

from .data import batch_of_noise
from .models import build_model
from .options import Options, checked


def inference_executor(
    options: Options, settings: poptorch.Options | None = None
) -> tuple[poptorch.PoplarExecutor, torch.Tensor]:
    """The model as an executor that isn't compiled yet, and a host batch to call it with.

    `settings` replaces the PopTorch options that `poptorch_options` would make."""
    model = build_model(options)
    executor = poptorch.inferenceModel(model, settings or poptorch_options(options))
    return executor, batch_of_noise(options)


def poptorch_options(options: Options) -> poptorch.Options:
    """What the options of the harness mean to PopTorch."""
    checked(options)
    result = poptorch.Options()
    result.replicationFactor(options.replicas)
    result.deviceIterations(options.device_iterations)
    if options.model_cache_path is not None:
        result.enableExecutableCaching(options.model_cache_path)
    if options.data == "synthetic":
        result.enableSyntheticData(True)
    result.Precision.setPartialsType(torch.float16 if options.half_partial else torch.float32)
    popart: Any = result._Popart
    popart.set("groupNormStridedChannelGrouping", options.enable_fast_groupnorm)
    target = {"opt.internalExchangeOptimisationTarget": options.exchange_memory_target}
    popart.set("engineOptions", target)
    if options.num_io_tiles > 0:
        # Pipelines fill the time of I/O with other stages; overlap within a stage excludes them.
        result.setExecutionStrategy(poptorch.ShardedExecution())
        popart.set("defaultPrefetchBufferingDepth", 3)
        result.TensorLocations.numIOTiles(options.num_io_tiles)
    if options.compile_only:
        result.useOfflineIpuTarget(options.offline_target_ipu_version)
    return result
