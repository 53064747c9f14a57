"""The cache of executables: found by other processes, never wrong, never in the way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executor_support import Loop, Net, Norm, Shape, batch, quiet, same, same_weights, seeded

import poptorch
from poptorch import _executables
from poptorch._program_file import PRODUCER
from softipu import executable
from softipu.tools import cache as cache_tool

#: Trains for two steps and prints how often it captured, and the weights it reached.
TRAINS = """
import sys
sys.path.insert(0, sys.argv[1])
from executor_support import *
from poptorch import _compiler
count, capture = [], _compiler.capture
_compiler.capture = lambda source: (count.append(1), capture(source))[1]
model = seeded(Norm)
optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
options = Shape(2, iterations=2).options()
if len(sys.argv) > 2:
    options.enableExecutableCaching(sys.argv[2])
trained = poptorch.trainingModel(model, options, optimizer)
for step in range(2):
    trained(*batch(4, step))
print(len(count), model.bn.running_mean.tolist() + model.fc.weight.flatten().tolist())
"""
HERE = str(Path(__file__).parent)


def train() -> torch.nn.Module:
    """The same program in this process."""
    model = seeded(Norm)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    options = Shape(2, iterations=2).options()
    trained = poptorch.trainingModel(model, options, optimizer)
    for step in range(2):
        trained(*batch(4, step))
    return model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(directory))
    return directory


def entries(directory: Path) -> list[Any]:
    return executable.Store(directory, producer=PRODUCER).entries()


def test_a_second_process_finds_what_the_first_compiled(
    cache: Path, fresh: Callable[..., Any]
) -> None:
    # Both are fresh: what other tests registered or replaced in this process is part of its keys.
    (first,) = fresh(TRAINS, HERE)
    assert first.lines[-1].startswith("1 "), first.output
    assert len(entries(cache)) == 1
    (second,) = fresh(TRAINS, HERE)
    count, _, numbers = second.lines[-1].partition(" ")
    assert count == "0", second.output
    model = train()
    expected = [*model.bn.running_mean.tolist(), *model.fc.weight.flatten().tolist()]
    same(torch.tensor(json.loads(numbers)), torch.tensor(expected))


def test_the_cache_lists_models_by_name(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))
    assert cache_tool.main(["list"]) == 0
    assert "Net" in capsys.readouterr().out


def test_a_warm_start_of_inference_does_not_load_the_machinery_of_capture(
    cache: Path, start: Callable[..., Any]
) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from executor_support import *
poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))
print([name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules])
"""
    cold, _ = start(program, HERE).communicate(timeout=60)
    assert "sympy" in cold
    warm, _ = start(program, HERE).communicate(timeout=60)
    assert warm == "[]\n"


def test_many_processes_at_once_compile_once(tmp_path: Path, fresh: Callable[..., Any]) -> None:
    cache = tmp_path / "shared"
    ended = fresh(TRAINS, HERE, cache, copies=4)
    assert [one.status for one in ended] == [0] * 4, ended[0].output
    counts, numbers = zip(*(one.lines[-1].split(" ", 1) for one in ended), strict=True)
    assert sorted(counts) == ["0", "0", "0", "1"]
    # Not equal to the bit: which variant does the second step is a matter of timing.
    first, *others = (torch.tensor(json.loads(text)) for text in numbers)
    for other in others:
        same(other, first)
    assert len(entries(cache)) == 1


def test_the_same_model_with_other_weights_or_learning_rate_hits(
    cache: Path, captures: list[str]
) -> None:
    shape = Shape(2, iterations=2)
    for seed, lr in ((1, 0.01), (2, 0.3)):
        model = seeded(Net, seed=seed)
        loop = Loop(model, shape)
        loop.optimizer = torch.optim.Adam(loop.model.parameters(), lr=lr)
        optimizer = poptorch.optim.Adam(model.parameters(), lr=lr)
        trained = poptorch.trainingModel(model, shape.options(), optimizer)
        for step in range(3):
            trained(*batch(4, step))
            loop.train(*batch(4, step))
        same_weights(model, loop.model)
    assert captures == ["Net"]


CHANGES: dict[str, Callable[[], Any]] = {
    "another size": lambda: poptorch.inferenceModel(Net(3, 2), quiet())(*batch(4)),
    "other options": lambda: poptorch.inferenceModel(Net(3, 2), quiet().deviceIterations(2))(
        *batch(2)
    ),
    "training": lambda: poptorch.trainingModel(Net(3, 2), quiet())(*batch(2)),
    "another optimiser": lambda: poptorch.trainingModel(
        one := Net(3, 2), quiet(), poptorch.optim.Adam(one.parameters())
    )(*batch(2)),
    "frozen weights": lambda: poptorch.inferenceModel(Net(3, 2).requires_grad_(False), quiet())(
        *batch(2)
    ),
    "another type": lambda: poptorch.inferenceModel(Net(3, 2).half(), quiet())(
        *(t.half() for t in batch(2))
    ),
    "another attribute": lambda: poptorch.inferenceModel(_changed(), quiet())(*batch(2)),
}


def _changed() -> Net:
    model = Net(3, 2)
    model.calls = 17
    return model


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_changes_the_program_misses(
    change: Callable[[], Any], cache: Path, captures: list[str]
) -> None:
    def base() -> None:
        poptorch.inferenceModel(Net(3, 2), quiet())(*batch(2))

    base()
    base()
    assert len(captures) == 1
    change()
    assert len(captures) == 2


ELSEWHERE: dict[str, Callable[[poptorch.Options], Any]] = {
    "process of a job": lambda options: options.Distributed.configureProcessId(1, 2),
    "seed": lambda options: options.randomSeed(9),
    "device": lambda options: options.useIpuId(3),
    "name": lambda options: options.modelName("other"),
    "connection": lambda options: options.connectionType(poptorch.ConnectionType.OnDemand),
    "progress bar": lambda options: options.showCompilationProgressBar(True),
    "model instead of IPUs": lambda options: options.useIpuModel(True),
}


@pytest.mark.parametrize("change", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_where_and_when_a_program_runs_does_not_matter(
    change: Callable[[poptorch.Options], Any], cache: Path, captures: list[str]
) -> None:
    poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))
    options = quiet()
    change(options)
    out = poptorch.inferenceModel(seeded(Net), options)(*batch(2))[0]
    same(out, seeded(Net)(*batch(2))[0].detach())
    assert len(captures) == 1


def test_each_backend_has_entries_of_its_own(
    cache: Path, captures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))
    monkeypatch.setattr(_executables, "backend_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(_executables, "compile_model", lambda job, bound: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))


def test_python_that_the_model_calls_is_part_of_the_key(cache: Path, captures: list[str]) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self, by: Callable[[torch.Tensor], torch.Tensor]) -> None:
            super().__init__()
            self.by = by

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.by(x)

    x = torch.ones(2)
    for factor in (2.0, 2.0, 3.0):
        result = poptorch.inferenceModel(Scaled(lambda x, f=factor: x * f), quiet())(x)
        assert torch.equal(result, x * factor)
    assert len(captures) == 2


def test_enable_executable_caching_takes_the_directory(tmp_path: Path, captures: list[str]) -> None:
    directory = tmp_path / "chosen"
    for _ in range(2):
        options = quiet().enableExecutableCaching(str(directory))
        poptorch.inferenceModel(seeded(Net), options)(*batch(2))
    assert len(captures) == 1
    assert len(entries(directory)) == 1


def test_none_switches_the_cache_off_whoever_named_a_directory(
    cache: Path, tmp_path: Path, captures: list[str]
) -> None:
    """A path from before, and POPTORCH_CACHE_DIR before the options were made and since."""
    chosen = tmp_path / "chosen"
    for _ in range(2):
        options = quiet().enableExecutableCaching(str(chosen)).enableExecutableCaching(None)
        poptorch.inferenceModel(seeded(Net), options)(*batch(2))
    assert len(captures) == 2
    assert not cache.exists()
    assert not chosen.exists()
    on_again = options.clone().enableExecutableCaching(str(chosen))
    poptorch.inferenceModel(seeded(Net), on_again)(*batch(2))
    assert len(entries(chosen)) == 1


def test_without_a_directory_nothing_is_written(tmp_path: Path, captures: list[str]) -> None:
    for _ in range(2):
        poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))
    assert len(captures) == 2
    assert not list(tmp_path.rglob("*.softipu"))


def test_a_damaged_entry_is_compiled_again_with_a_warning(cache: Path, captures: list[str]) -> None:
    for damage in (_cut, _without_sense):
        poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))
        damage(cache)
        before = len(captures)
        with pytest.warns(executable.CacheWarning, match="Compiling again"):
            out = poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))[0]
        same(out, seeded(Net)(*batch(2))[0].detach())
        assert len(captures) == before + 1
        poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))
        assert len(captures) == before + 1, "the new entry is good"


def _path(cache: Path) -> Path:
    (entry,) = entries(cache)
    found = executable.Store(cache, producer=PRODUCER).get(entry.key)
    assert found is not None
    with found:
        return found.path


def _cut(cache: Path) -> None:
    path = _path(cache)
    os.truncate(path, path.stat().st_size - 10)


def _without_sense(cache: Path) -> None:
    """Intact bytes, but not of a program."""
    path = _path(cache)
    with executable.read(path) as container:
        blobs = {name: container.blob(name) for name in container.blobs}
    executable.write(path, {"program": 3}, blobs, producer=PRODUCER)


def test_what_fits_in_no_file_runs_without_the_cache(cache: Path, captures: list[str]) -> None:
    x = torch.ones(2)
    for _ in range(2):
        host = poptorch.CPU(lambda x: x + 1, "host")
        assert torch.equal(poptorch.inferenceModel(host, quiet())(x), x + 1)
    assert len(captures) == 2
    assert entries(cache) == []


def test_a_directory_that_cannot_be_used_is_an_error_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(poptorch.Error, match="POPTORCH_CACHE_DIR") as raised:
        poptorch.inferenceModel(seeded(Net), quiet())(*batch(2))
    assert raised.value.code == "SIPU-1606"
