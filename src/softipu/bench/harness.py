"""From options to a running model and its figures: PopTorch's options, the executor, the calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import popdist.poptorch
import poptorch

from .. import report
from .. import settings as environment
from ..errors import OutputFailed, UnfitBenchOption
from . import together
from .data import batch_of_noise, loader
from .figures import Call, ModelledFigures, Result, summary
from .models import build_model
from .options import Options, checked


def poptorch_options(options: Options) -> poptorch.Options:
    """What the options of the harness mean to PopTorch; poprun decides on replicas if it runs."""
    try:
        return _poptorch_options(checked(together.share(options)))
    except (AssertionError, ValueError) as error:  # How PopTorch refuses values.
        raise UnfitBenchOption(str(error)) from error


def _poptorch_options(options: Options) -> poptorch.Options:
    result = _with_replicas(options)
    result.deviceIterations(options.device_iterations)
    # Three stages are fine, though IPUs come in groups of two, four, eight ...
    result.autoRoundNumIPUs(True)
    if options.model_cache_path is not None:
        result.enableExecutableCaching(options.model_cache_path)
    if options.data == "synthetic":
        result.enableSyntheticData(True)
    result.Precision.setPartialsType(torch.float16 if options.half_partial else torch.float32)
    popart: Any = result._Popart
    popart.set("groupNormStridedChannelGrouping", options.enable_fast_groupnorm)
    if options.exchange_memory_target != Options.exchange_memory_target:
        target = {"opt.internalExchangeOptimisationTarget": options.exchange_memory_target}
        popart.set("engineOptions", target)
    if options.num_io_tiles > 0:
        # Pipelines fill the time of I/O with other stages; overlap within a stage excludes them.
        result.setExecutionStrategy(poptorch.ShardedExecution())
        popart.set("defaultPrefetchBufferingDepth", 3)
        result.TensorLocations.numIOTiles(options.num_io_tiles)
    if options.compile_only:
        result.useOfflineIpuTarget(options.offline_target_ipu_version)
    # One bar for all instances is enough.
    result.showCompilationProgressBar(together.is_first())
    return result


def _with_replicas(options: Options) -> poptorch.Options:
    if popdist.isPopdistEnvSet():
        return popdist.poptorch.Options(ipus_per_replica=options.stages)
    result = poptorch.Options()
    result.replicationFactor(options.replicas)
    return result


def inference_executor(
    options: Options, settings: poptorch.Options | None = None
) -> tuple[poptorch.PoplarExecutor, torch.Tensor]:
    """The model as an executor that isn't compiled yet, and a host batch to call it with.

    `settings` replaces the PopTorch options that `poptorch_options` would make."""
    options = together.share(options)
    return _executor(options, settings or poptorch_options(options)), batch_of_noise(options)


def compile_only(options: Options) -> float:
    """Compile without attaching to an IPU; seconds that it took. A cache keeps the result."""
    executor, batch = inference_executor(options)
    return _seconds(lambda: executor.compile(batch))


def measure(options: Options, progress: Callable[[Call], None] = lambda _call: None) -> Result:
    """Call the model as often as the options ask for; `progress` hears of each call.

    Instances of poprun call it at the same time, and each returns the result of all."""
    options = together.share(options)
    together.calls_each(options)
    together.connect()
    settings = poptorch_options(options)
    batches = loader(options, settings)
    with _attached(options, settings) as executor:
        compile_seconds = 0.0
        calls: list[Call] = []
        for batch in batches:
            if not calls:
                compile_seconds = _seconds(partial(executor.compile, batch))
                settle(executor, batch, options.settle)
            together.wait_for_all()
            start = time.perf_counter()
            output = executor(batch)
            seconds = time.perf_counter() - start
            calls.append(Call(len(batch), seconds, executor._measured_latency()))
            progress(calls[-1])
        part = together.Part(calls, compile_seconds, settled(executor))
        modelled, no_model = _modelled(executor)
    every = together.gathered(part)
    backend = environment.get("SOFTIPU_BACKEND")
    host = summary(every.calls, options, backend, every.compile_seconds)
    host = replace(host, settled=every.settled, instances=together.count(), hosts=len(every.hosts))
    return Result(options, str(output.dtype), host, modelled, no_model)


def _modelled(executor: poptorch.PoplarExecutor) -> tuple[ModelledFigures | None, str]:
    """Figures of a real IPU, or why there are none: what was measured is worth telling anyway."""
    try:
        return ModelledFigures.of(executor._estimate()), ""
    except poptorch.Error as error:
        return None, error.message


def settle(executor: poptorch.PoplarExecutor, batch: torch.Tensor, limit: float) -> None:
    """Call until the engine has chosen how to compute, for at most so many seconds."""
    end = time.perf_counter() + limit
    while time.perf_counter() < end and not settled(executor):
        executor(batch)


def settled(executor: poptorch.PoplarExecutor) -> bool:
    """Whether the engine has tried all its ways to compute this model and kept the fastest."""
    executable = executor._executable
    runner = None if executable is None else executable._runner
    return runner is not None and runner.tuner.settled


def profile(options: Options, folder: Path) -> tuple[Path, Path] | None:
    """Two files: a PyTorch profiler trace of one call here, after the calls that don't count, and
    the page of the report on a real IPU. Of poprun's instances only the first writes them."""
    options = together.share(options)
    together.calls_each(options)
    together.connect()
    settings = poptorch_options(options)
    batch = next(iter(loader(options, settings)))
    with _attached(options, settings) as executor:
        executor.compile(batch)
        settle(executor, batch, options.settle)
        for _ in range(1 + options.warmup_iterations):
            together.wait_for_all()
            executor(batch)
        together.wait_for_all()
        with torch.profiler.profile() as profiler:
            executor(batch)
        estimate = executor._estimate()
    if not together.is_first():
        return None
    name = f"{options.model}_bs{options.micro_batch_size}"
    file = folder / f"{name}_trace.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        raise OutputFailed(f"The trace can't be written to {file}: {error.strerror}.") from error
    profiler.export_chrome_trace(str(file))
    return file, report.write(estimate, folder / f"{name}_report")[report.PAGE]


def _executor(options: Options, settings: poptorch.Options) -> poptorch.PoplarExecutor:
    return poptorch.inferenceModel(build_model(options), settings)


@contextlib.contextmanager
def _attached(options: Options, settings: poptorch.Options) -> Iterator[poptorch.PoplarExecutor]:
    """An executor that gives its IPUs back at the end, whatever happens."""
    executor = _executor(options, settings)
    try:
        yield executor
    finally:
        if executor.isCompiled():
            executor.destroy()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
