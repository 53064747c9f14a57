"""What a run of `run_benchmark_with_triton_server.py` keeps between its tests: one served model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import BenchClientFailed, SoftIPUError
from .bench_clients import Clients, check
from .bench_figures import figures, lines
from .bench_server import HOST, Served, next_free_port, served
from .bench_traffic import RequestType, Traffic, Turn
from .ports import chosen_port

if TYPE_CHECKING:
    from .bench_reference import Case


@dataclass(frozen=True)
class Choices:
    """The options of the script, beside pytest's."""

    repository: Path | None = None
    grpc_port: int | None = None
    requests: int = 10
    request_size: int = 1
    shared_memory: bool = False
    #: Fields of the harness's options that replace those of the configurations.
    harness: tuple[tuple[str, Any], ...] = ()


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Errors of ours fail a test with their own words; our code's places would say nothing."""
    found = None
    try:
        yield
    except SoftIPUError as error:
        found = error
    if found is not None:  # Not above: pytest would show the error twice.
        pytest.fail(str(found), pytrace=False)


class Session:
    """Serves the model that the present test is about. Close it at the end."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._stack = contextlib.ExitStack()
        self._serving = contextlib.ExitStack()
        self._repository = choices.repository
        self._port = choices.grpc_port
        if self._port is not None:  # Before minutes of work.
            chosen_port(HOST, self._port, "--grpc-port")
        self._case: Case | None = None
        self._served: Served | None = None
        self._failed: dict[str, SoftIPUError] = {}
        #: What went wrong with servers after their last test.
        self._untold: list[SoftIPUError] = []

    def case(self, model_name: str, config: str) -> Case:
        """The model's values and its entry in the repository; the same one until another's turn."""
        if self._case is None or self._case.name != model_name:
            self._leave()
            self._case = self._made(model_name, config)
        return self._case

    def _made(self, model_name: str, config: str) -> Case:
        """A model that failed once is not tried again by each of its tests."""
        from .bench_reference import make_case, options_for

        if model_name in self._failed:
            raise self._failed[model_name]
        options = options_for(config, **dict(self.choices.harness))
        try:
            return make_case(model_name, options, self._folder())
        except SoftIPUError as error:
            self._failed[model_name] = error
            raise

    def _folder(self) -> Path:
        if self._repository is None:
            made = tempfile.TemporaryDirectory(prefix="softipu-models-")
            self._repository = Path(self._stack.enter_context(made))
        return self._repository

    def server(self, model_name: str, config: str) -> Served:
        case = self.case(model_name, config)
        if self._served is not None:
            self._check(self._served)
        else:
            if self._port is None:
                self._port = next_free_port()
            entered = served(case.repository, model_name, self._port)
            self._served = self._serving.enter_context(entered)
        return self._served

    def measure(
        self,
        model_name: str,
        config: str,
        request_type: RequestType,
        clients: int,
        turn: Turn | None = None,
        request_size: int | None = None,
    ) -> list[str]:
        """Lines with the figures, after every value of every answer was compared."""
        running = self.server(model_name, config)
        case = self.case(model_name, config)
        requests = case.requests(request_size or self.choices.request_size)
        traffic = Traffic(running.address, model_name, request_type, self.choices.shared_memory)
        try:
            with Clients(clients, traffic, requests) as sending:
                records = sending.take(turn or Turn(requests=self.choices.requests))
            check(records, requests.tolerance)
        except BenchClientFailed:
            self._check(running)  # If it fell, that says more than what its clients met.
            raise
        return [
            "-" * 91,
            f"{model_name}-{request_type}-{clients} results:",
            f"\tmicro_batch_size: {case.options.micro_batch_size}",
            f"\trequest_size: {requests.size}",
            f"\tdata_mode: {case.options.data}",
            f"\tdata_type: {requests.expected.dtype}",
            f"\tnum_ipus: {case.options.ipus}",
            f"\tshared_memory: {'system' if self.choices.shared_memory else 'none'}",
            *lines(figures(records, requests.size)),
        ]

    def _check(self, running: Served) -> None:
        """Raises what is wrong with the server, if anything is; the next test gets another one."""
        try:
            running.check()
        except SoftIPUError:
            with contextlib.suppress(SoftIPUError):  # It ends with the trouble that is told here.
                self._end_server()
            raise

    def _end_server(self) -> None:
        self._served = None
        self._serving.close()

    def _leave(self) -> None:
        """Of trouble with this model's server the next one's tests are innocent."""
        self._case = None
        try:
            self._end_server()
        except SoftIPUError as error:
            self._untold.append(error)

    def close(self) -> None:
        """Raises what went wrong with a server and made no test fail."""
        self._leave()
        self._stack.close()
        untold, self._untold = self._untold, []
        if untold:
            raise untold[0]
