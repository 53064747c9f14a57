"""What a real server carries: tensors of the less usual types, and models without batching."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import tritonclient.grpc as grpc
from serve_support import Layer, Running, add_layer, options, samples, serving

import poptorch
from softipu import serve

Entries = tuple[Path, Layer]


class Kinds(torch.nn.Module):
    """An input of each type, and something of it; 64 bits become 32, as on an IPU."""

    def forward(
        self, half: torch.Tensor, double: torch.Tensor, whole: torch.Tensor, flag: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return half * 2, double + 0.5, whole - 1, ~flag, half.bfloat16()


def unbatched(entry: Path) -> None:
    """As a user writes it: no batching, so that the number of samples is a dimension."""
    file = entry / "config.pbtxt"
    text = re.sub(r"max_batch_size: \d+", "max_batch_size: 0", file.read_text())
    text = re.sub(r"dims: \[ (\d) \]", r"dims: [ -1, \1 ]", text)
    file.write_text(re.sub(r"dynamic_batching .*\n", "", text))


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Entries:
    folder = tmp_path_factory.mktemp("types")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTIPU_HOME", str(tmp_path_factory.mktemp("export-home")))
        model = poptorch.inferenceModel(Kinds(), options())
        serve.export(model, [torch.from_numpy(one) for one in given().values()], folder, "kinds")
        model.destroy()
        layer = add_layer(folder, "whole")
        unbatched(folder / "whole")
    return folder, layer


@pytest.fixture(scope="module")
def server(entries: Entries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(entries[0], tmp_path_factory.mktemp("home")) as running:
        yield running


def given() -> dict[str, np.ndarray]:
    """Two samples, by Triton's names of their types."""
    return {
        "FP16": np.array([[0.1, 2], [3, 65504]], dtype=np.float16),
        "FP64": np.array([[1 / 3], [-1e-3]]),
        "INT64": np.array([[5, -7, 0], [2**31 - 1, -(2**31) + 1, 1]]),
        "BOOL": np.array([[True], [False]]),
    }


def test_each_type_arrives_and_comes_back(server: Running) -> None:
    inputs = []
    for index, (kind, values) in enumerate(given().items()):
        inputs.append(grpc.InferInput(f"input_{index}", list(values.shape), kind))
        inputs[-1].set_data_from_numpy(values)
    with grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        answer = client.infer("kinds", inputs)
    half, double, whole, flag = given().values()
    found = [answer.as_numpy(f"output_{index}") for index in range(5)]
    assert [answer.get_output(f"output_{index}").datatype for index in range(5)] == [
        "FP16", "FP32", "INT32", "BOOL", "BF16",
    ]  # fmt: skip
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found[0], half * np.float16(2))
    np.testing.assert_array_equal(found[1], double.astype(np.float32) + np.float32(0.5))
    np.testing.assert_array_equal(found[2], whole - 1)
    np.testing.assert_array_equal(found[3], ~flag)
    rounded = torch.from_numpy(half).bfloat16().float().numpy()
    np.testing.assert_array_equal(found[4], rounded)


@pytest.mark.parametrize("count", [1, 3, 20])
def test_a_model_without_batching_takes_any_number_of_samples(
    server: Running, entries: Entries, count: int
) -> None:
    """An execution is eight samples; nothing limits a request to those."""
    with torch.no_grad():
        right = entries[1](samples(count))
    torch.testing.assert_close(server.values("whole", samples(count)), right)


def test_a_wrong_request_to_a_model_without_batching_is_an_error_of_its_own(
    server: Running,
) -> None:
    for shape in ([4], [1, 5], [0, 4]):
        size = int(np.prod(shape))
        status, body = server.infer("whole", samples(1), shape=shape, data=[1.0] * size)
        assert status in (400, 500), body
        assert "error" in body
    assert server.is_served("whole")
