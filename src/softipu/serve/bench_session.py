"""What a run of `run_benchmark_with_triton_server.py` keeps between its tests: one served model."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import SoftIPUError
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
        if self._served is None:
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
        address = self.server(model_name, config).address
        case = self.case(model_name, config)
        requests = case.requests(request_size or self.choices.request_size)
        traffic = Traffic(address, model_name, request_type, self.choices.shared_memory)
        with Clients(clients, traffic, requests) as sending:
            records = sending.take(turn or Turn(requests=self.choices.requests))
        check(records, requests.tolerance)
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

    def _leave(self) -> None:
        self._case = self._served = None
        self._serving.close()

    def close(self) -> None:
        self._leave()
        self._stack.close()
