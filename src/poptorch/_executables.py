"""Saving, loading and caching of executables; no file is ever trusted with code.

The file holds graphs of known operators, tensors and JSON. The user's Python is not in it: a loaded
model runs from its graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from softipu import executable, settings
from softipu.errors import ExecutableCorrupt, ExecutableUnwritable, NotPortable, SoftIPUError

from ._attachment import Attachment
from ._compiler import Job, compile_model, shards_of, share_of_options, write_hypers
from ._engine.backend import backend_device
from ._errors import createPoptorchError, failure
from ._executable import Executable
from ._executor_modes import outside_inference_mode
from ._graph_tensors import to_bytes
from ._inputs import Arguments
from ._loaded import LoadedModel, describe_model, describe_optimizer, restored_optimizer
from ._logging import logger
from ._program_file import PRODUCER, Compiled, check_fits, contents, restore
from ._threads import one_at_a_time
from ._weights import name_of, owner_of
from .enums import ConnectionType
from .optim import _rules
from .options import Options

if TYPE_CHECKING:
    from ._executor import PoplarExecutor


_NOT_SHAPING = {
    "values": (
        "random_seed", "ipu_id", "ipu_version", "use_model", "connection_type", "model_name",
        "log_dir", "max_repeat_logs", "auto_round_num_ipus",
    ),
    "private": ("_show_compilation_progress_bar", "_relax_optimizer_checks"),
}  # fmt: skip


class ExecutableFiles:
    """The part of PoplarExecutor that deals with files."""

    _executable: Executable | None

    def compileAndExport(
        self: Any, filename: str, *args: Any, export_model: bool = True, **kwargs: Any
    ) -> None:
        """Compiles for these arguments, without running, and saves the executable."""
        with self._profiling.tracepoint("compileAndExport"):
            self.compile(*args, **kwargs)
            self.save(filename, export_model)

    @one_at_a_time
    def save(
        self: Any, filename: str, export_model: bool = True, save_rng_state: bool = True
    ) -> None:
        """Writes the executable; with `export_model` also all that `load` needs in its place."""
        compiled = self._compiled()
        with _told():
            meta, blobs = self._contents(compiled, export_model, save_rng_state)
            path = _destination(filename)
            with self._profiling.tracepoint("saveExecutableToFile"):
                executable.write(path, meta, blobs, producer=PRODUCER)

    def _contents(
        self: Any, compiled: Executable, export_model: bool, save_rng_state: bool
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        meta, blobs = contents(_compiled_of(compiled))
        meta["name"] = self._label()
        meta["version"] = self._poptorch_version
        meta["backend"] = compiled.memory.device.type
        meta["options"] = self._options._toState()
        if export_model:
            self.copyWeightsToHostIfNeeded()
            model, weights = describe_model(self._user_model, self._signature)
            meta["model"] = model
            blobs["weights.safetensors"] = weights
            if self._training:
                meta["optimizer"], blobs["optimizer.safetensors"] = describe_optimizer(
                    self._optimizer, self._named()[0]
                )
        elif not self._training:
            # A server runs the file without the model, so it holds the weights, as PopEF does.
            blobs["weights.safetensors"] = self._weights_as_bytes()
        if self._description is not None:
            meta["update"] = self._description.traceKey
        if save_rng_state:
            meta["rng_state"] = self.rng_state
        return meta, blobs

    def _weights_as_bytes(self: Any) -> bytes:
        trainer = owner_of(self._user_model)
        if trainer is not None:
            trainer.copyWeightsToHostIfNeeded()
        parameters, buffers = self._named()
        values = {**parameters, **buffers}
        return to_bytes({name: t.detach().clone().contiguous() for name, t in values.items()})

    def loadExecutable(self: Any, filename: str) -> None:
        """Uses a saved executable in the place of compiling; the model must be the same."""
        with self._profiling.tracepoint("loadExecutable"):
            try:
                with _told(), _opened(filename, self._poptorch_version) as container:
                    meta = container.meta
                    compiled = restore(meta, container.blobs, container.blob)
            except AssertionError as error:
                raise createPoptorchError(f"Invalid file {filename}: {error}") from error
            self._adopt(compiled, meta.get("update"))

    @one_at_a_time
    @outside_inference_mode
    def _adopt(self: Any, compiled: Compiled, update: str | None) -> None:
        """Runs what a file held, in the place of what was compiled before."""
        job = self._job()
        check_fits(compiled, job, update)
        self.destroy()
        self._wrap()
        self._executable = _executable(compiled, job)
        if self._options.connection_type != ConnectionType.Never.value:
            self._attach()

    def _cached_or_compiled(self: Any, bound: Arguments) -> Executable:
        """From the cache if there is one and the model can be recognised, else compiled."""
        job = self._job()
        directory = _cache_directory(self._options)
        if directory is None:
            return compile_model(job, bound)
        from ._fingerprint import NotFingerprintable

        try:
            print_ = _fingerprint(job, bound)
        except NotFingerprintable as reason:
            logger.info("The executable cache is not used: %s", reason)
            return compile_model(job, bound)
        with _told():
            store = executable.Store(directory, producer=PRODUCER)
            key = store.key(print_)
            found = _from_cache(store, key)
            if found is None:
                with store.lock(key):
                    # Another process may have compiled it while this one waited.
                    found = _from_cache(store, key)
                    if found is None:
                        return _compiled_into(store, key, job, bound)
            return _executable(found, job)


def _from_cache(store: executable.Store, key: str) -> Compiled | None:
    container = store.get(key)
    if container is None:
        return None
    with container:
        try:
            compiled = restore(container.meta, container.blobs, container.blob)
        except ExecutableCorrupt as error:
            store.reject(key, error)
            return None
        logger.info("Executable found in the cache: %s", container.path)
        return compiled


def _compiled_into(store: executable.Store, key: str, job: Job, bound: Arguments) -> Executable:
    made = compile_model(job, bound)
    try:
        meta, blobs = contents(_compiled_of(made))
        meta["name"] = name_of(job.model)
        store.put(key, meta, blobs).close()
    except NotPortable as reason:
        logger.info("The executable can't be cached: %s", reason.what)
    return made


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What softipu says about files leaves as the exception that PopTorch users catch."""
    try:
        yield
    except SoftIPUError as error:
        raise failure(type(error), error.what, cause=error.cause, remedy=error.remedy) from error


def _destination(filename: str) -> Path:
    path = Path(filename)
    if path.is_dir():
        logger.warning(
            "save(): %s is a directory, saving model to %s", path, path / "model.poptorch"
        )
        path = path / "model.poptorch"
    if path.parent.exists():
        assert path.parent.is_dir(), f"Destination folder {path.parent} is not a directory"
    else:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExecutableUnwritable(f"{path.parent}: {error.strerror}.") from error
    return path


def _compiled_of(made: Executable) -> Compiled:
    return Compiled(made.plan, made.arguments, made.structure, made.per_replica)


def _opened(filename: str, version: str) -> executable.Container:
    """The file, checked to the last byte; AssertionError for another version, as in PopTorch."""
    container = executable.read(filename, producer=PRODUCER)
    container.verify()
    made_by = container.meta.get("version")
    assert made_by == version, (
        f"PopTorch version mismatch: File was created with version: {made_by} and this is version "
        f"{version}. Compile and save the model anew, or load it with that version."
    )
    backend, here = container.meta.get("backend"), backend_device().type
    if backend != here:
        raise createPoptorchError(
            f"{filename} was compiled for the backend {backend}, and this process uses {here}. Set "
            "SOFTIPU_BACKEND, or compile and save the model anew."
        )
    return container


def _executable(compiled: Compiled, job: Job) -> Executable:
    """A restored plan with memory and IPUs of this process."""
    program = compiled.plan.program
    plan = dataclasses.replace(compiled.plan, share=share_of_options(job.options))
    if job.replica_groups:
        # Which replica has which slice depends on how many there are in all processes.
        plan = dataclasses.replace(plan, sharded=shards_of(job))
    seed = job.options.random_seed if job.options.exists("random_seed") else 0
    made = Executable(
        plan,
        compiled.arguments,
        compiled.structure,
        Attachment(job.options, compiled.per_replica),
        backend_device(),
        seed,
        compiled.per_replica,
    )
    if program.update is not None and job.description is not None:
        device = made.memory.device
        named = [[(name, job.parameters[name]) for name in group] for group in program.groups]
        state = _rules.state_spec(job.description, named)
        made.memory.state = {name: value.to(device) for name, value in state.items()}
        write_hypers(made, job.description)
    return made


def _cache_directory(options: Options) -> str | None:
    native = options._Popart.options
    # Switched off is stronger than any path, from before or from the environment.
    if not native.get("enableEngineCaching", True):
        return None
    chosen = native.get("cachePath") or settings.get("POPTORCH_CACHE_DIR")
    return os.fspath(chosen) if chosen else None


def _shaping(options: Options) -> dict[str, Any]:
    """The options without those that say where and when a program runs, not what it computes."""
    state = options._toState()
    state.pop("Distributed", None)
    for group, names in _NOT_SHAPING.items():
        state[group] = {k: v for k, v in state[group].items() if k not in names}
    popart = state["popart"]["$map"]
    state["popart"] = [row for row in popart if row[0] not in ("cachePath", "enableEngineCaching")]
    return state


def _fingerprint(job: Job, bound: Arguments) -> str:
    from ._fingerprint import fingerprint

    description = job.description
    extra = {
        "options": _shaping(job.options),
        "training": job.training,
        "backend": backend_device().type,
        "optimiser": None if description is None else description.traceKey,
        "groups": job.groups,
        "replica_groups": {k: [str(v) for v in vs] for k, vs in (job.replica_groups or {}).items()},
    }
    text: str = fingerprint(job.model, bound.positional, bound.named, extra=extra)
    return text


def load_executable(
    filename: str, edit: Callable[[Options], None] | None, version: str
) -> PoplarExecutor:
    """What `poptorch.load` does."""
    from ._executor import PoplarExecutor

    try:
        with _told():
            opened = _opened(filename, version)
    except AssertionError as error:
        raise AssertionError(f"Invalid file {filename}: {error}") from error
    with opened as container, _told():
        meta = container.meta
        assert "model" in meta, (
            f"{filename} is a valid PopTorch file but was created with 'export_model=False' which "
            "means you need to re-create the PopTorch model using poptorch.inferenceModel or "
            f'poptorch.trainingModel then call poptorch_model.loadExecutable("{filename}").'
        )
        compiled = restore(meta, container.blobs, container.blob)
        model, optimizer, options = _described(container, compiled)
    _online(options)
    _as_this_process(options)
    if edit is not None:
        edit(options)
    training = compiled.plan.program.training
    executor = PoplarExecutor(
        model, options, training, version, optimizer=optimizer, user_model=model
    )
    executor._adopt(compiled, meta.get("update"))
    if "rng_state" in meta:
        executor.rng_state = meta["rng_state"]
    return executor


def _described(
    container: executable.Container, compiled: Compiled
) -> tuple[LoadedModel, torch.optim.Optimizer | None, Options]:
    """What a file says beside the program; ExecutableCorrupt if it makes no sense."""
    meta, read = container.meta, container.blob
    optimizer = None
    try:
        model = LoadedModel(meta["model"], read("weights.safetensors"), compiled)
        if compiled.plan.program.training:
            state = read("optimizer.safetensors")
            optimizer = restored_optimizer(meta["optimizer"], state, model)
        return model, optimizer, Options._fromState(meta["options"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ExecutableCorrupt(f"The file's description is incomplete: {error!r}.") from error


def _online(options: Options) -> None:
    """An executable that was compiled without IPUs runs on those that are here."""
    options.deleteIfExists("ipu_version")
    if options.connection_type == ConnectionType.Never.value:
        options.connectionType(ConnectionType.Always)


def _as_this_process(options: Options) -> None:
    """A file that one process of a program saved is for all of them."""
    if options.Distributed.numProcesses > 1:
        options.Distributed.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")


def importPoptorchMetadataFromFile(filename: str) -> dict[str, Any]:
    """The metadata of a saved executable, as JSON values."""
    with _told(), executable.read(filename, producer=PRODUCER) as container:
        return dict(container.meta)


__all__ = ["ExecutableFiles", "importPoptorchMetadataFromFile", "load_executable"]
