"""The process's IPU back end, seen by Paddle as `core.IpuBackend`, and `compile` on it."""

from __future__ import annotations

from typing import Any

import paddle

from softipu.errors import PaddleProgramInNewIr

from . import devices, feeds, graphs, lowering, modelled, plan
from .executable import Executable, names_of
from .program import stages_of
from .strategy import IpuStrategy
from .usage import EXECUTABLE


class IpuBackend:
    """One for the process, as on real IPUs: it holds the IPUs of the program compiled last."""

    _instance: IpuBackend | None = None

    def __init__(self) -> None:
        self._attachment: devices.Attachment | None = None
        self._scope: Any = None
        self._options: IpuStrategy | None = None
        self._last: Executable | None = None

    @classmethod
    def get_instance(cls) -> IpuBackend:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def set_scope(self, scope: Any) -> None:
        self._scope = scope

    def set_ipu_strategy(self, options: IpuStrategy) -> None:
        self._options = options

    def weights_to_host(self) -> None:
        """Weights live in the scope all the time: there is nothing to copy."""

    def detach(self) -> None:
        if self._attachment is not None:
            self._attachment.release()
            self._attachment = None

    def reset(self) -> None:
        self.detach()
        self._last = None

    def save_model_proto(self, path: str) -> None:
        """Writes the program that runs; an ONNX file, as PopART would, it is not."""
        from softipu.errors import PaddleUnsupported

        raise PaddleUnsupported(
            f"The program can't be written to {path} as an ONNX model of PopART.",
            remedy="Use paddle.static.save_inference_model.",
        )

    @property
    def ipu_ids(self) -> tuple[int, ...]:
        """The IPUs that are held now."""
        return () if self._attachment is None else self._attachment.ids

    def attached(self, executable: Executable) -> devices.Attachment:
        """The IPUs for a run; those of another program are given back first if they don't fit."""
        wanted = executable.plan.num_ipus
        current = self._attachment
        if current is None or current.count != wanted or not (current.held or current.is_model):
            self.detach()
            current = self._attachment = devices.attach(wanted, what="paddle")
        return current

    def compile(self, program: Any, feed_list: Any, fetch_list: Any) -> Executable:
        assert self._options is not None
        options = self._options
        how = plan.read(options)
        names = names_of(feed_list)
        fetches = names_of(fetch_list)
        plan.check_shards(how, program.global_block().ops)
        if how.random_seed is not None:
            paddle.seed(how.random_seed % 2**63)
        inputs = feeds.declared(program, names, fetches, how)
        lowered = lowering.lower(program, fetches, how, options, self._scope)
        plan.check_pipeline(how, stages_of(lowered.micro_batch, how))
        executable = Executable(lowered, how, inputs, fetches, self._scope, options, program)
        executable.modelled = modelled.ask_about_compiled(executable).call
        self.detach()
        self.attached(executable).describe(memory_bytes=executable.weight_bytes)
        _report_progress(options)
        self._last = executable
        return executable


def _report_progress(options: IpuStrategy) -> None:
    if options.progress_logger is not None:
        total = options["compilation_progress_total"]
        options.progress_logger(total, total)


def check_program(program: Any) -> None:
    """Programs must be of the older representation."""
    if isinstance(program, paddle.pir.Program):
        raise PaddleProgramInNewIr("The program is in Paddle's new representation (PIR).")


@graphs.in_static_mode
def compile_program(compiled: Any, feed_list: Any, fetch_list: Any) -> Any:
    """Stands for `IpuCompiledProgram.compile`; returns the program that will run."""
    backend = compiled._backend
    backend.set_scope(compiled._scope)
    backend.set_ipu_strategy(compiled._ipu_strategy._ipu_strategy)
    executable = backend.compile(compiled._program, feed_list, fetch_list)
    program = executable.lowered.micro_batch.clone()
    setattr(program, EXECUTABLE, executable)
    if hasattr(compiled._program, "lr_scheduler"):
        scheduler = program.lr_scheduler = compiled._program.lr_scheduler
        scheduler.lr_var = compiled._program.global_block().vars[scheduler._var_name]
    program.org_program = compiled._program
    compiled._ipu_strategy.need_compile = False
    return program
