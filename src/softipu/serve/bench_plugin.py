"""pytest's side of `run_benchmark_with_triton_server.py`: options, names of tests, a session."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..bench.options import PRECISIONS
from ..tools import cli
from .bench_session import Choices, Session, readable
from .bench_traffic import RequestType

#: Names of models in the repository -> configurations of the harness.
MODELS = ("resnet50", "efficientnet-b0", "efficientnet-b4")
PROCESSES = (1, 4, 8)
BENCHMARK = "test_single_model"


def pytest_addoption(parser: pytest.Parser) -> None:
    add = parser.getgroup("triton", "measuring models on a Triton server").addoption
    kept = "where models are exported to, and served from (default: a temporary directory)"
    add("--model-repository", metavar="DIR", type=Path, help=kept)
    port = "port of the server (default: the next free one from 2000)"
    add("--grpc-port", metavar="P", type=cli.port, help=port)
    only = "leave out the tests of other request sizes; values are compared all the same"
    add("--benchmark_only", nargs="?", const=True, default=False, type=_flag, help=only)
    names = f"configurations of the CNN harness to serve (default: {','.join(MODELS)})"
    add("--configs", metavar="A,B", type=_names, default=MODELS, help=names)
    add("--requests", metavar="N", type=_from_one, default=10, help="of each client (default: 10)")
    size = "samples of a request (default: a micro-batch)"
    add("--request-size", metavar="N", type=_from_one, help=size)
    micro = "of the executables (default: 1; IPUs had 90, 49 and 12 samples)"
    add("--micro-batch-size", metavar="N", type=_from_one, default=1, help=micro)
    iterations = "micro-batches of one execution (default: 8; IPUs had 128)"
    add("--device-iterations", metavar="N", type=_from_one, default=8, help=iterations)
    precision = "of activations and of weights (default: the configuration's)"
    add("--precision", choices=PRECISIONS, help=precision)
    shared = "tensors go through system shared memory instead of gRPC"
    add("--shared-memory", action="store_true", help=shared)


def _flag(text: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not true or false: use --benchmark_only=true"
        )
    return known[text.lower()]


def _from_one(text: str) -> int:
    number = cli.whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!a} is not a whole number from 1")
    return number


def _names(text: str) -> tuple[str, ...]:
    from ..bench import configs

    names = tuple(text.split(","))
    known = configs.names()
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"there is no {name!r}; known: {', '.join(known)}")
    return names


def choices(config: pytest.Config) -> Choices:
    option = config.getoption
    harness: dict[str, Any] = {
        "micro_batch_size": option("--micro-batch-size"),
        "device_iterations": option("--device-iterations"),
    }
    if option("--precision"):
        harness["precision"] = option("--precision")
    size = option("--request-size") or harness["micro_batch_size"]
    most = harness["micro_batch_size"] * harness["device_iterations"]
    if size > most:
        raise pytest.UsageError(
            f"--request-size {size} is more than the {most} samples of an execution: "
            "--device-iterations makes that more"
        )
    folder = option("--model-repository")
    return Choices(
        repository=None if folder is None else folder.absolute(),
        grpc_port=option("--grpc-port"),
        requests=option("--requests"),
        request_size=size,
        shared_memory=option("--shared-memory"),
        harness=tuple(harness.items()),
    )


def only_named(arguments: list[str], script: str) -> list[str]:
    """The tests that arguments name. Paths are left out: specs name the folder of other tests."""
    named = [arg.partition("::")[2] or arg for arg in arguments]
    named = [arg for arg in named if arg.startswith("test_") and "/" not in arg]
    return [f"{script}::{name}" for name in named] or [script]


def pytest_configure(config: pytest.Config) -> None:
    choices(config)  # What is wrong is said before anything is made.


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # One after the other: ids are put together in this order.
    columns: dict[str, tuple[Any, ...]] = {
        "request_type": tuple(RequestType), "number_of_processes": PROCESSES,
    }  # fmt: skip
    if "model_name" in metafunc.fixturenames:
        pairs = [(name, name) for name in metafunc.config.getoption("--configs")]
        metafunc.parametrize(("model_name", "yml_config"), pairs)
    for name, values in columns.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, values)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A model's tests follow each other: changing models costs an export and a server."""
    names = list(config.getoption("--configs"))
    items.sort(key=lambda item: names.index(_model(item)) if _model(item) in names else -1)
    if config.getoption("--benchmark_only"):
        others = [item for item in items if getattr(item, "originalname", "") != BENCHMARK]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def _model(item: pytest.Item) -> str:
    found = getattr(item, "callspec", None)
    return str(found.params.get("model_name", "")) if found is not None else ""


@pytest.fixture(scope="session")
def triton(pytestconfig: pytest.Config) -> Iterator[Session]:
    """Serves the models, one at a time."""
    with readable():
        session = Session(choices(pytestconfig))
    try:
        yield session
    finally:
        with readable():
            session.close()
