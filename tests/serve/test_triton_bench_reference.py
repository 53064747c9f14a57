"""What a server's answers are compared with; and that they always are."""

from __future__ import annotations

import os
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from serve_support import Layer, add_layer, eventually, options, samples

import poptorch
from softipu.bench.options import Options
from softipu.errors import PortInUse, RequestsTooAlike, ServedValuesWrong, ServerDied
from softipu.serve.bench_reference import Case, check_apart, options_for, pictures, write_entry
from softipu.serve.bench_server import HOST, next_free_port
from softipu.serve.bench_session import Choices, Session
from softipu.serve.bench_traffic import RequestType, Turn


def layer_case(repository: Path, module: Layer) -> Case:
    given = samples(8)
    with torch.no_grad():
        expected = module(given).numpy()
    return Case("layer", Options(), repository, given.numpy(), expected)


def test_requests_are_different_and_keep_their_answers(tmp_path: Path) -> None:
    case = layer_case(tmp_path, Layer())
    requests = case.requests(3)
    assert requests.inputs.shape == (2, 3, 4)
    assert requests.size == 3
    np.testing.assert_array_equal(requests.expected[1], case.expected[3:6])
    assert len(case.requests(1).inputs) == 8


def test_answers_that_could_be_exchanged_unseen_are_refused(tmp_path: Path) -> None:
    case = layer_case(tmp_path, Layer())
    check_apart(case)
    case.expected[5] = case.expected[4] * (1 + case.tolerance)
    with pytest.raises(RequestsTooAlike, match="layer: two images' scores differ by"):
        check_apart(case)


def test_images_are_bytes_of_the_models_size_and_no_two_alike() -> None:
    found = pictures(options_for("resnet50", micro_batch_size=1, device_iterations=3))
    assert found.shape == (6, 3, 224, 224)
    assert found.dtype == torch.uint8
    assert len({tuple(image.flatten().tolist()[:500]) for image in found}) == 6


def test_an_entry_that_is_there_keeps_its_configuration_and_names(tmp_path: Path) -> None:
    add_layer(tmp_path, "layer", seed=0)
    entry = tmp_path / "layer"
    config = (entry / "config.pbtxt").read_text() + "# of the user\n"
    (entry / "config.pbtxt").write_text(config)
    names = (entry / "1/name_map.json").read_bytes()
    before = (entry / "1/executable.popef").read_bytes()
    model = poptorch.inferenceModel(Layer(seed=1), options(4))
    write_entry(model, samples(8), tmp_path, "layer")
    model.destroy()
    assert (entry / "config.pbtxt").read_text() == config
    assert (entry / "1/name_map.json").read_bytes() == names
    assert (entry / "1/executable.popef").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir() if "layer" in path.name] == ["layer"]


def test_a_measurement_always_compares_values(tmp_path: Path) -> None:
    """Served is a layer of other weights than the one whose answers are expected."""
    add_layer(tmp_path, "layer", seed=1)
    session = Session(Choices(repository=tmp_path, requests=3))
    try:
        session._case = layer_case(tmp_path, Layer(seed=1))
        found = session.measure("layer", "layer", RequestType.ASYNC, 2)
        assert "layer-RequestType.ASYNC-2 results:" in found
        session._case = layer_case(tmp_path, Layer(seed=0))
        with pytest.raises(ServedValuesWrong, match="6 of 6 answers are wrong"):
            session.measure("layer", "layer", RequestType.SYNC, 2)
    finally:
        session.close()


def test_a_server_that_falls_fails_the_test_under_way_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = layer_case(tmp_path, add_layer(tmp_path, "layer"))
    monkeypatch.setattr(Session, "_made", lambda _self, name, _config: replace(case, name=name))
    session = Session(Choices(repository=tmp_path, requests=3))
    model = ("layer", "layer")
    try:
        first = session.server(*model).server.pid
        threading.Timer(1.5, os.kill, (first, signal.SIGKILL)).start()
        with pytest.raises(ServerDied, match="ended by signal 9"):
            session.measure(*model, RequestType.SYNC, 1, Turn(seconds=3))
        assert "layer-RequestType.SYNC-1 results:" in session.measure(*model, RequestType.SYNC, 1)
        second = session.server(*model)
        os.kill(second.server.pid, signal.SIGKILL)
        eventually(lambda: second.trouble)
        assert session.case("other", "other").name == "other"
        with pytest.raises(ServerDied, match="ended by signal 9"):
            session.close()
    finally:
        session.close()


def test_a_port_in_use_is_refused_before_any_work() -> None:
    with socket.socket() as holder:
        holder.bind((HOST, next_free_port(21000)))
        holder.listen(1)
        with pytest.raises(PortInUse):
            Session(Choices(grpc_port=holder.getsockname()[1]))
