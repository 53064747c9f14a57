"""Saved executables: the same results from a file, in other processes, and no trust in any file."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executor_support import Loop, Net, Norm, Shape, batch, quiet, same, same_weights, seeded

import poptorch
from poptorch._program_file import PRODUCER
from softipu import devices, executable

X, TARGET = batch(4)


def saved(path: Path, *, steps: int = 0, **how: Any) -> poptorch.PoplarExecutor:
    """A training model with dropout and momentum, saved after some steps."""
    model = seeded(Norm)
    model.head = torch.nn.Sequential(torch.nn.Dropout(0.3), model.head)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.05)
    options = Shape(2, iterations=2).options().randomSeed(11)
    trained = poptorch.trainingModel(model, options, optimizer)
    trained.compile(X, TARGET)
    for _ in range(steps):
        trained(X, TARGET)
    trained.save(str(path), **how)
    return trained


def infers(path: Path, model: torch.nn.Module | None = None, **how: Any) -> torch.nn.Module:
    model = model or seeded(Net)
    poptorch.inferenceModel(model, quiet().deviceIterations(2)).compileAndExport(
        str(path), X, TARGET, **how
    )
    return model


def test_a_saved_inference_model_runs_in_a_process_without_its_class(
    tmp_path: Path, fresh: Callable[..., Any]
) -> None:
    model = infers(tmp_path / "model.poptorch")
    (ended,) = fresh(
        """
        import json, sys, torch, poptorch
        from poptorch import _compiler
        _compiler.capture = None
        executor = poptorch.load(sys.argv[1])
        x, target = (torch.tensor(value) for value in json.loads(sys.argv[2]))
        out, loss = executor(x, target)
        print(json.dumps([out.tolist(), loss.tolist()]))
        print(executor.isAttachedToDevice(), executor.fc.weight.shape)
        """,
        tmp_path / "model.poptorch",
        json.dumps([X.tolist(), TARGET.tolist()]),
    )
    assert ended.status == 0, ended.output
    out, loss = json.loads(ended.lines[-2])
    expected = [model(X[i : i + 2], TARGET[i : i + 2]) for i in (0, 2)]
    same(torch.tensor(out), torch.cat([e[0] for e in expected]).detach())
    same(torch.tensor(loss), torch.stack([e[1] for e in expected]).detach())
    assert ended.lines[-1] == "True torch.Size([2, 3])"


class Converted(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint16, torch.uint32, torch.uint64])
def test_results_of_the_less_usual_types_are_saved_too(tmp_path: Path, dtype: torch.dtype) -> None:
    path = str(tmp_path / "model.popef")
    given = torch.tensor([[1.0, 2.0], [3.0, 100.0]])
    poptorch.inferenceModel(Converted(dtype), quiet()).compileAndExport(
        path, given, export_model=False
    )
    loaded = poptorch.inferenceModel(Converted(dtype), quiet())
    loaded.loadExecutable(path)
    assert torch.equal(loaded(given), given.to(dtype))
    loaded.destroy()


def test_training_continues_from_a_file_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    path = tmp_path / "model.poptorch"
    original = saved(path, steps=2)
    loaded = poptorch.load(str(path))
    for step in range(3):
        inputs = batch(4, step)
        ours, theirs = loaded(*inputs), original(*inputs)
        same(ours[0], theirs[0])
        same(ours[1], theirs[1])
    given = loaded.state_dict()
    for name, value in original.model.state_dict().items():
        same(given[name], value)
    mine, other = loaded._optimizer.state_dict(), original._optimizer.state_dict()
    assert mine["ipu_state"].keys() == other["ipu_state"].keys()
    for name, value in other["ipu_state"].items():
        same(mine["ipu_state"][name], value)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "LAMB", "torch.optim.AdamW"])
def test_every_optimiser_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    make: Any = torch.optim.AdamW if "." in kind else getattr(poptorch.optim, kind)
    model = seeded(Net)
    groups = [{"params": [model.fc.weight], "lr": 0.2}, {"params": [model.fc.bias]}]
    original = poptorch.trainingModel(model, quiet(), make(groups, lr=0.05, weight_decay=0.1))
    original.compileAndExport(str(tmp_path / "model"), *batch(2))
    loaded = poptorch.load(str(tmp_path / "model"))
    for step in range(2):
        same(loaded(*batch(2, step))[0], original(*batch(2, step))[0])
    same(loaded.state_dict()["fc.weight"], model.fc.weight.detach())
    assert loaded._description == original._description
    assert type(loaded._optimizer) is make


def test_a_loaded_model_can_be_called_on_the_host_and_saved_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    model = infers(first)
    loaded = poptorch.load(str(first))
    x, target = X[:2], TARGET[:2]
    same(loaded.model(x, target=target)[0], model(x, target)[0].detach())
    assert repr(loaded.model) == "LoadedModel(Net)"
    loaded.save(str(second))
    same(poptorch.load(str(second))(X, TARGET)[0], loaded(X, TARGET)[0])


def test_a_loaded_model_has_the_parameters_and_buffers_of_the_original(tmp_path: Path) -> None:
    class Shares(Net):
        def __init__(self) -> None:
            super().__init__()
            self.again = self.fc
            self.register_buffer("shift", torch.ones(2))
            self.inner = torch.nn.Module()
            self.inner.register_buffer("same", self.shift)
            self.inner.register_buffer("passing", torch.ones(1), persistent=False)
            self.inner.tied = self.fc.weight
            self.fc.bias.requires_grad_(False)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
            return super().forward(x + self.inner.passing, target - self.inner.same)

    model = infers(tmp_path / "model", Shares())
    loaded = poptorch.load(str(tmp_path / "model"))
    assert loaded.model.state_dict().keys() == model.state_dict().keys()
    assert loaded.model.inner.tied is loaded.model.fc.weight
    assert loaded.model.inner.same is loaded.model.shift
    assert not loaded.model.fc.bias.requires_grad
    loaded.load_state_dict(model.state_dict())
    same(loaded(X, TARGET)[0], model(X, TARGET)[0].detach())


def test_load_executable_takes_the_place_of_compiling(tmp_path: Path, captures: list[str]) -> None:
    path = tmp_path / "only"
    infers(path, export_model=False)
    other = seeded(Net, seed=8)
    executor = poptorch.inferenceModel(other, quiet().deviceIterations(2))
    captures.clear()
    executor.loadExecutable(str(path))
    out = executor(X, TARGET)[0]
    same(out, torch.cat([other(X[i : i + 2], TARGET[i : i + 2])[0] for i in (0, 2)]).detach())
    assert captures == []
    with pytest.raises(AssertionError, match="export_model=False.*loadExecutable"):
        poptorch.load(str(path))


def test_loading_replaces_a_compiled_model_without_losing_weights_or_ipus(tmp_path: Path) -> None:
    path = tmp_path / "model"
    optimised = seeded(Net)
    loop = Loop(optimised, Shape())
    optimizer = poptorch.optim.SGD(optimised.parameters(), lr=0.1)
    trained = poptorch.trainingModel(optimised, quiet(), optimizer)
    trained(*batch(2))
    trained.save(str(path), export_model=False)
    trained.loadExecutable(str(path))
    assert sum(status.held for status in devices.status()) == 1
    trained(*batch(2))
    for _ in range(2):
        loop.train(*batch(2))
    same_weights(optimised, loop.model)


def test_options_of_a_loaded_model_can_be_edited_but_not_its_batching(tmp_path: Path) -> None:
    path = tmp_path / "model"
    infers(path)
    executor = poptorch.load(str(path), edit_opts_fn=lambda opts: opts.useIpuId(5))
    (held,) = [status for status in devices.status() if status.held]
    assert (held.ipu.id, held.record.executable) == (5, "Net")
    executor.destroy()
    with pytest.raises(poptorch.Error, match="compiled with other options"):
        poptorch.load(str(path), edit_opts_fn=lambda opts: opts.deviceIterations(4))


def test_an_offline_target_compiles_without_ipus_and_runs_where_there_are_some(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model"
    options = quiet().useOfflineIpuTarget()
    executor = poptorch.inferenceModel(seeded(Net), options)
    with pytest.raises(AssertionError, match="ConnectionType.Never"):
        executor(X, TARGET)
    executor.compileAndExport(str(path), X, TARGET)
    with pytest.raises(AssertionError, match="ConnectionType.Never"):
        executor.attachToDevice()
    assert not any(status.held for status in devices.status())
    same(poptorch.load(str(path))(X, TARGET)[0], seeded(Net)(X, TARGET)[0].detach())


MISFITS: dict[str, tuple[Callable[[], poptorch.PoplarExecutor], str]] = {
    "another shape": (
        lambda: poptorch.inferenceModel(Net(3, 5), quiet().deviceIterations(2)),
        r"another model: its parameters differ \(fc.bias, fc.weight\)",
    ),
    "another type": (
        lambda: poptorch.inferenceModel(Net().half(), quiet().deviceIterations(2)),
        "another model: its parameters differ",
    ),
    "buffers": (
        lambda: poptorch.inferenceModel(seeded(Norm), quiet().deviceIterations(2)),
        "another model",
    ),
    "training": (
        lambda: poptorch.trainingModel(Net(), quiet().deviceIterations(2)),
        "The executable is for inference.*inferenceModel",
    ),
    "batching": (
        lambda: poptorch.inferenceModel(Net(), quiet().deviceIterations(4)),
        "compiled with other options",
    ),
}


@pytest.mark.parametrize(("make", "message"), MISFITS.values(), ids=MISFITS.keys())
def test_an_executable_of_another_model_is_refused(
    make: Callable[[], Any], message: str, tmp_path: Path
) -> None:
    infers(tmp_path / "model")
    executor = make()
    with pytest.raises(poptorch.Error, match=message):
        executor.loadExecutable(str(tmp_path / "model"))
    assert not executor.isCompiled()


def test_an_executable_with_another_optimiser_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    makers = (poptorch.optim.SGD, poptorch.optim.Adam)
    executors = []
    for make in makers:
        model = seeded(Net)
        executors.append(poptorch.trainingModel(model, quiet(), make(model.parameters(), lr=0.1)))
    executors[0].compileAndExport(str(path), *batch(2))
    with pytest.raises(poptorch.Error, match="another optimizer than ADAM"):
        executors[1].loadExecutable(str(path))


# --- files that are not what they seem -----------------------------------------------------------


class Hostile:
    """Unpickling it leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def refused(path: Path, label: str) -> None:
    """Both ways to load must refuse, with a label, and leave nothing behind."""
    with pytest.raises(poptorch.Error) as raised:
        poptorch.load(str(path))
    assert raised.value.code == label
    assert "Way out: " in str(raised.value)
    executor = poptorch.inferenceModel(seeded(Net), quiet().deviceIterations(2))
    with pytest.raises(poptorch.Error) as raised:
        executor.loadExecutable(str(path))
    assert raised.value.code == label
    assert not executor.isCompiled()
    executor(X, TARGET)


def test_files_of_other_kinds_are_foreign_and_run_nothing(tmp_path: Path) -> None:
    path, trace = tmp_path / "file", tmp_path / "trace"
    archive = io.BytesIO()
    torch.save({"model": Hostile(trace)}, archive)
    for content in (pickle.dumps(Hostile(trace)), archive.getvalue(), b"", b"PK\x03\x04 no", b"{}"):
        path.write_bytes(content)
        refused(path, "SIPU-1601")
    assert not trace.exists()
    refused(tmp_path / "missing", "SIPU-1604")


def test_a_damaged_file_is_refused_wherever_the_damage_is(tmp_path: Path) -> None:
    path, damaged = tmp_path / "model", tmp_path / "damaged"
    infers(path)
    good = path.read_bytes()
    for place in range(40, len(good), len(good) // 12):
        damaged.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(poptorch.Error) as raised:
            poptorch.load(str(damaged))
        assert raised.value.code in ("SIPU-1601", "SIPU-1602", "SIPU-1603"), place
    damaged.write_bytes(good[: len(good) // 2])
    refused(damaged, "SIPU-1602")


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """The same file with other contents and correct checksums, as an attacker would make it."""
    with executable.read(path, producer=PRODUCER) as container:
        meta = json.loads(json.dumps(container.meta))
        blobs = {name: container.blob(name) for name in container.blobs}
    change(meta, blobs)
    executable.write(path, meta, blobs, producer=PRODUCER)


def test_an_executable_of_another_version_names_both(tmp_path: Path) -> None:
    path = tmp_path / "model"
    infers(path)
    rewritten(path, lambda meta, blobs: meta.update(version="1.2.3"))
    text = f"created with version: 1.2.3 and this is version {poptorch.__version__}"
    with pytest.raises(AssertionError, match=text):
        poptorch.load(str(path))
    executor = poptorch.inferenceModel(seeded(Net), quiet().deviceIterations(2))
    with pytest.raises(poptorch.Error, match=text):
        executor.loadExecutable(str(path))


def test_an_executable_for_another_backend_says_which(tmp_path: Path) -> None:
    path = tmp_path / "model"
    infers(path)
    rewritten(path, lambda meta, blobs: meta.update(backend="cuda"))
    with pytest.raises(poptorch.Error, match="for the backend cuda.*SOFTIPU_BACKEND"):
        poptorch.load(str(path))


@pytest.mark.parametrize("part", ["specs", "batching", "structure", "positional", "program"])
@pytest.mark.parametrize("junk", [None, [], {}, {"tensor": "x"}, [["a", [-1], "float32"]], 7])
def test_metadata_without_sense_is_refused(part: str, junk: Any, tmp_path: Path) -> None:
    path = tmp_path / "model"
    _exported(path)
    rewritten(path, lambda meta, blobs: meta.update({part: junk}))
    with pytest.raises(poptorch.Error) as raised:
        poptorch.load(str(path))(X, TARGET)
    assert raised.value.code.startswith("SIPU-") or part == "batching"


_content: list[bytes] = []


def _exported(path: Path) -> None:
    if not _content:
        infers(path)
        _content.append(path.read_bytes())
    path.write_bytes(_content[0])


@pytest.mark.parametrize("part", ["model", "options", "optimizer"])
def test_a_description_without_sense_is_refused(part: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    saved(path)
    for junk in (None, [], {}, {"name": 1}, 7):
        rewritten(path, lambda meta, blobs, junk=junk: meta.update({part: junk}))
        with pytest.raises(poptorch.Error) as raised:
            poptorch.load(str(path))
        # Options may lack rows, which then have their defaults; here those fit no compiled one.
        assert part == "options" or raised.value.code == "SIPU-1602"


def test_metadata_can_be_read_without_loading(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "model"
    infers(path)
    meta = poptorch.importPoptorchMetadataFromFile(str(path))
    assert meta["version"] == poptorch.__version__
    assert meta["model"]["name"] == "Net"
    with pytest.raises(poptorch.Error, match="SIPU-1604"):
        poptorch.importPoptorchMetadataFromFile(str(tmp_path / "missing"))


def test_a_model_with_a_host_function_says_that_it_fits_in_no_file(tmp_path: Path) -> None:
    executor = poptorch.inferenceModel(poptorch.CPU(lambda x: x + 1, "host"), quiet())
    executor.compile(X)
    with pytest.raises(poptorch.Error, match="SIPU-1608"):
        executor.save(str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()
    assert torch.equal(executor(X), X + 1)


def test_where_no_file_can_be_made_saving_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(poptorch.Error, match=r"(?s)no/such.*Way out: Save to another path"):
        infers(Path("/proc/no/such/model.poptorch"))
    with pytest.raises(poptorch.Error, match=r"(?s)file/sub: .*Way out: Save to another path"):
        infers(tmp_path / "file" / "sub" / "model.poptorch")
