"""Repository entries: what is written, from what, and what is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from serve_support import COMMAND, Layer, Many, add_layer, environment, options, samples

import poptorch
from poptorch._served import ServedExecutable
from softipu import SDK_VERSION, serve
from softipu.bench import harness
from softipu.bench.options import FIELDS, MEASURING, Options, spelling
from softipu.errors import ExportRefused, NotServable
from softipu.serve import export_command
from softipu.serve.served_model import ServedModel


def inference(module: torch.nn.Module, iterations: int = 2) -> poptorch.PoplarExecutor:
    return poptorch.inferenceModel(module, options(iterations))


def run(home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "export", *(str(word) for word in words)],
        env=environment(home), capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_an_entry_is_three_files(tmp_path: Path) -> None:
    model = inference(Layer())
    entry = serve.export(model, samples(6), tmp_path, "mine", max_batch_size=12, instances=2)
    model.destroy()
    assert entry == tmp_path / "mine"
    assert list(tmp_path.glob(".*")) == []
    found = {str(path.relative_to(entry)) for path in entry.rglob("*") if path.is_file()}
    assert found == {"config.pbtxt", "1/name_map.json", "1/executable.popef"}
    names = json.loads((entry / "1/name_map.json").read_text())
    assert names == {"input": "input_0", "layer/addmm:0": "output_0"}
    text = (entry / "config.pbtxt").read_text()
    for line in ('backend: "poplar"', "max_batch_size: 12", "count: 2", "dims: [ 4 ]"):
        assert line in text


def test_a_model_that_ran_is_exported_as_it_is(tmp_path: Path) -> None:
    model = inference(Layer())
    expected = model(samples(4))
    path = serve.export(model, samples(4), tmp_path, "ran") / "1/executable.popef"
    model.destroy()
    executable = ServedExecutable(path, SDK_VERSION)
    assert torch.equal(executable.run([samples(4)])[0], expected)
    assert executable.batch == 4
    assert executable.unit == 2


def test_the_weights_are_those_that_training_reached(tmp_path: Path) -> None:
    class Trained(Layer):
        def forward(self, x: torch.Tensor, target: torch.Tensor | None = None):
            out = self.layer(x)
            if target is None:
                return out
            return out, poptorch.identity_loss((out - target).square(), "mean")

    module = Trained()
    trainer = poptorch.trainingModel(
        module, options(), optimizer=poptorch.optim.SGD(module.parameters(), lr=0.01)
    )
    infers = poptorch.inferenceModel(module, options())
    infers(samples(2))
    before = module.layer.weight.detach().clone()
    trainer(samples(2), torch.ones(2, 3))
    path = serve.export(infers, samples(2), tmp_path, "trained") / "1/executable.popef"
    served = ServedExecutable(path, SDK_VERSION).run([samples(2)])[0]
    assert not torch.equal(module.layer.weight, before)
    torch.testing.assert_close(served, infers(samples(2)), rtol=0, atol=0)
    trainer.destroy()
    infers.destroy()


def test_what_compile_and_export_wrote_runs_without_the_model(tmp_path: Path) -> None:
    """For other models the file is as before: `loadExecutable` takes the model's own weights."""
    path = str(tmp_path / "model.popef")
    model = inference(Layer())
    model.compileAndExport(path, samples(4), export_model=False)
    expected = model(samples(4))
    model.destroy()
    assert torch.equal(ServedExecutable(path, SDK_VERSION).run([samples(4)])[0], expected)
    with pytest.raises(AssertionError, match="export_model=False"):
        poptorch.load(path)
    other = inference(Layer(seed=5))
    other.loadExecutable(path)
    torch.testing.assert_close(other(samples(4)), Layer(seed=5)(samples(4)).detach())
    other.destroy()


@pytest.mark.parametrize("count", [1, 2, 3, 9, 16, 17, 50])
def test_any_number_of_samples_runs(tmp_path: Path, count: int) -> None:
    module = Layer()
    model = poptorch.inferenceModel(module, options(8))
    path = serve.export(model, samples(16), tmp_path, "m") / "1/executable.popef"
    model.destroy()
    found = ServedExecutable(path, SDK_VERSION).run([samples(count)])[0]
    with torch.no_grad():
        torch.testing.assert_close(found, module(samples(count)))


def test_joined_requests_are_cut_apart_again(tmp_path: Path) -> None:
    model = inference(Many())
    inputs = [samples(4), torch.arange(4, dtype=torch.int32).reshape(4, 1)]
    entry = serve.export(model, inputs, tmp_path, "many")
    model.destroy()
    config = {
        "max_batch_size": 4,
        "input": [
            {"name": "input_0", "data_type": "TYPE_FP32", "dims": [4]},
            {"name": "input_1", "data_type": "TYPE_INT32", "dims": [1]},
        ],
        "output": [
            {"name": "output_0", "data_type": "TYPE_FP16", "dims": [4]},
            {"name": "output_1", "data_type": "TYPE_INT32", "dims": [1]},
            {"name": "output_2", "data_type": "TYPE_BOOL", "dims": [1]},
            {"name": "output_3", "data_type": "TYPE_FP32", "dims": [1]},
        ],
    }
    served = ServedModel(entry / "1", config)
    counts = [1, 3, 2]
    requests = [
        [samples(count, start=10 * count), torch.full((count, 1), count, dtype=torch.int32)]
        for count in counts
    ]
    wrong = [samples(2), torch.zeros(3, 1, dtype=torch.int32)]
    *answers, refused = served.answer([*requests, wrong])
    for count, request, answer in zip(counts, requests, answers, strict=True):
        assert torch.equal(answer[0], request[0].half() * 2)
        assert torch.equal(answer[1], torch.full((count, 1), count + 1, dtype=torch.int32))
        torch.testing.assert_close(answer[3], request[0].sum(1, keepdim=True))
    assert "SIPU-6110" in str(refused)


class Table(torch.nn.Module):
    """Rows of a table, and the numbers that chose them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.table(x), x, x


def table(folder: Path) -> tuple[ServedModel, Table]:
    module = Table()
    model = inference(module)
    serve.export(model, torch.zeros(4, 2, dtype=torch.int32), folder, "table")
    model.destroy()
    rows = [{"name": f"output_{i}", "data_type": "TYPE_INT32", "dims": [2]} for i in range(3)]
    rows[0] |= {"data_type": "TYPE_FP32", "dims": [2, 3]}
    given = [{"name": "input_0", "data_type": "TYPE_INT32", "dims": [2]}]
    return ServedModel(
        folder / "table/1", {"max_batch_size": 4, "input": given, "output": rows}
    ), module


def test_a_request_whose_values_fail_the_model_leaves_those_beside_it_alone(tmp_path) -> None:
    served, module = table(tmp_path)
    good = torch.tensor([[1, 9], [3, 4]], dtype=torch.int32)
    bad = torch.tensor([[1, 10]], dtype=torch.int32)
    first, failed, last = served.answer([[good], [bad], [good.flip(0)]])
    assert torch.equal(first[0], module.table(good).detach())
    assert torch.equal(last[0], module.table(good.flip(0)).detach())
    assert "SIPU-6110: The model raised IndexError: index out of range" in str(failed)
    assert isinstance(failed.__cause__, IndexError)


def test_inputs_that_are_handed_back_are_outputs_with_names_of_their_own(tmp_path) -> None:
    served, _ = table(tmp_path)
    names = json.loads((tmp_path / "table/1/name_map.json").read_text())
    assert sorted(names.values()) == ["input_0", "output_0", "output_1", "output_2"]
    given = torch.tensor([[1, 9]], dtype=torch.int32)
    ((_, again, once_more),) = served.answer([[given]])
    assert torch.equal(again, given)
    assert torch.equal(once_more, given)


def test_parameters_without_effect_are_noted(tmp_path: Path) -> None:
    add_layer(tmp_path, "m")
    config = {
        "max_batch_size": 8,
        "input": [{"name": "input_0", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "output_0", "data_type": "TYPE_FP32", "dims": [3]}],
        "parameters": {
            "synchronous_execution": {"string_value": "1"},
            "timeout_ns": {"string_value": "500000"},
        },
    }
    notes = ServedModel(tmp_path / "m/1", config).notes
    assert len(notes) == 1
    assert "timeout_ns" in notes[0]


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean()


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.calls


@pytest.mark.parametrize(("module", "says"), [(Mean(), "output_0"), (Counting(), "buffers")])
def test_models_whose_samples_depend_on_each_other_are_refused(tmp_path, module, says) -> None:
    model = inference(module)
    with pytest.raises(NotServable, match=says):
        serve.export(model, samples(4), tmp_path, "m")
    model.destroy()
    assert list(tmp_path.glob("*m*")) == []


def test_final_outputs_only_are_refused(tmp_path: Path) -> None:
    chosen = options(2)
    chosen.outputMode(poptorch.OutputMode.Final)
    model = poptorch.inferenceModel(Layer(), chosen)
    with pytest.raises(NotServable, match="output mode"):
        serve.export(model, samples(4), tmp_path, "m")
    model.destroy()


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "x" * 200])
def test_names_that_are_no_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportRefused, match="no name"):
        serve.export(None, samples(1), tmp_path, name)


def test_a_module_that_poptorch_did_not_wrap_is_refused_with_the_way_to_wrap_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(ExportRefused, match="Linear is no PopTorch model") as caught:
        serve.export(torch.nn.Linear(4, 3), torch.zeros(2, 4), tmp_path / "models", "layer")
    assert "poptorch.inferenceModel" in caught.value.remedy
    assert not list((tmp_path / "models").iterdir())


def test_an_entry_is_replaced_only_on_demand(tmp_path: Path) -> None:
    add_layer(tmp_path, "m")
    with pytest.raises(ExportRefused, match="already"):
        add_layer(tmp_path, "m")
    add_layer(tmp_path, "m", batch=1, overwrite=True)
    assert "max_batch_size: 4" in (tmp_path / "m/config.pbtxt").read_text()


@pytest.mark.parametrize(
    "choice",
    [
        {"max_batch_size": 0}, {"max_batch_size": "8"}, {"instances": 0}, {"instances": 1.5},
        {"queue_delay_us": -1}, {"threads": 0}, {"threads": True},
    ],
)  # fmt: skip
def test_numbers_that_the_server_could_not_use_are_refused(tmp_path: Path, choice) -> None:
    (name,) = choice
    with pytest.raises(ExportRefused, match=f"{name} is .* not a whole number from"):
        add_layer(tmp_path / "models", "m", **choice)
    assert list((tmp_path / "models").iterdir()) == []


def test_the_command_makes_an_entry_from_a_file(tmp_path: Path) -> None:
    model = inference(Layer())
    model.compileAndExport(str(tmp_path / "layer.popef"), samples(4), export_model=False)
    model.destroy()
    words = ["--executable", tmp_path / "layer.popef", "--output", tmp_path / "repository"]
    answer = run(tmp_path / "home", *words)
    assert answer.returncode == 2
    assert "--name" in answer.stderr
    answer = run(tmp_path / "home", *words, "--name", "layer", "--queue-delay", 500)
    assert answer.returncode == 0, answer.stderr
    text = (tmp_path / "repository/layer/config.pbtxt").read_text()
    assert "max_queue_delay_microseconds: 500" in text
    answer = run(tmp_path / "home", *words, "--name", "layer")
    assert answer.returncode == 1
    assert "SIPU-6111" in answer.stderr


@pytest.mark.parametrize("content", [None, b"nothing of ours"])
def test_the_command_refuses_other_files(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    answer = run(tmp_path / "h", "--executable", path, "--output", tmp_path / "r", "--name", "m")
    assert answer.returncode == 1
    assert answer.stderr.startswith("SIPU-")
    assert str(path) in answer.stderr
    assert not (tmp_path / "r").exists()


def test_the_command_exports_a_model_of_the_harness(tmp_path: Path) -> None:
    pytest.importorskip("softipu.bench.harness")
    words = ["--model", "mobilenet-v3-small", "--precision", "32.32", "--eight-bit-io"]
    words += ["--micro-batch-size", "1", "--device-iterations", "2"]
    answer = run(tmp_path / "home", *words, "--output", tmp_path / "repository", "--name", "small")
    assert answer.returncode == 0, answer.stderr
    text = (tmp_path / "repository/small/config.pbtxt").read_text()
    assert "data_type: TYPE_UINT8 dims: [ 3, 224, 224 ]" in text
    assert "data_type: TYPE_FP32 dims: [ 1000 ]" in text
    assert "max_batch_size: 2" in text


def test_a_configuration_is_exported_and_options_win_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The configuration takes bytes, in large batches."""
    words = ["--config", "mobilenet-v3-small", "--precision", "32.32", "--no-eight-bit-io"]
    words += ["--micro-batch-size", "1", "--device-iterations", "2", "--output", str(tmp_path)]
    assert export_command.main(words) == 0
    said = capsys.readouterr()
    assert "Exported" in said.out
    assert "Weights are random: --weights FILE loads others." in said.err
    text = (tmp_path / "mobilenet-v3-small/config.pbtxt").read_text()
    assert "data_type: TYPE_FP32 dims: [ 3, 224, 224 ]" in text
    assert "max_batch_size: 2" in text


def test_the_command_has_all_options_of_a_model_and_none_of_measuring() -> None:
    ours = export_command.parser()._option_string_actions
    for name, field in FIELDS.items():
        assert (spelling(name) in ours) == (name not in MEASURING), name
        if field.default is False and name not in MEASURING:
            assert spelling(f"no_{name}") in ours


@pytest.mark.parametrize(
    ("asked", "notes"),
    [
        ({}, ["Weights are random"]),
        ({"random_weights": True}, []),
        ({"weights": "mine.pt"}, []),
        ({"weights": "mine.pt", "eight_bit_io": True}, ["normalised on the IPU"]),
        ({"weights": "mine.pt", "num_io_tiles": 32, "pipeline_splits": ["layer2"]}, ["2 stages"]),
    ],
)
def test_what_options_mean_beyond_their_words_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asked, notes
) -> None:
    made: list[Options] = []
    monkeypatch.setattr(harness, "inference_executor", made.append)
    export_command._from_harness(None, {"model": "resnet18"} | asked)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(notes)
    assert all(note in line for note, line in zip(notes, lines, strict=True))
    assert made[0].normalization_location == ("ipu" if made[0].eight_bit_io else "host")
