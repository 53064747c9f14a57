"""IPUs in use: which a model holds, when, under what name, and what gc-monitor sees of it."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executor_support import Net, Shape, batch, quiet, same, seeded

import poptorch
from softipu import devices


def held() -> list[devices.IpuStatus]:
    return [status for status in devices.status() if status.held]


def ids() -> list[int]:
    return [status.ipu.id for status in held()]


def infer(options: poptorch.Options | None = None) -> poptorch.PoplarExecutor:
    return poptorch.inferenceModel(seeded(Net), options or quiet())


def test_a_model_holds_ipus_from_its_compilation_until_destroyed() -> None:
    executor = infer()
    assert ids() == []
    executor.compile(*batch(2))
    assert ids() == [0]
    executor.destroy()
    assert ids() == []
    executor(*batch(2))
    assert ids() == [0]


def test_the_record_names_process_program_and_memory() -> None:
    model = seeded(Net)
    trained = poptorch.trainingModel(
        model, quiet(), poptorch.optim.Adam(model.parameters(), lr=0.1)
    )
    trained(*batch(2))
    (status,) = held()
    assert status.record is not None
    assert status.record.pid == os.getpid()
    assert status.record.executable == "Net", "its own name, not that of the wrapped class"
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    assert status.record.memory_bytes >= 3 * weights, "weights and both moments"
    trained.destroy()
    options = quiet().modelName("bert")
    named = infer(options)
    named(*batch(2))
    assert held()[0].record.executable == "bert"


def test_gc_monitor_shows_the_program() -> None:
    executor = infer(quiet().replicationFactor(2))
    executor(*batch(2))
    done = subprocess.run(
        [sys.executable, "-c", "from softipu.tools.gc_monitor import entry; entry()", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    found = json.loads(done.stdout)
    assert str(os.getpid()) in json.dumps(found)


def test_each_replica_and_each_stage_takes_an_ipu() -> None:
    class Two(Net):
        def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
            poptorch.Block.start("a", ipu_id=0)
            x = x * 2
            poptorch.Block.start("b", ipu_id=1)
            return super().forward(x, target)

    options = Shape(1, iterations=2, replicas=2).options()
    executor = poptorch.inferenceModel(Two(), options)
    executor(*batch(4))
    assert len(ids()) == 4
    (record,) = {status.record.device for status in held()}
    assert record >= 16, "one device of four IPUs"


def test_a_number_of_ipus_that_is_no_power_of_two_is_refused_or_rounded_up() -> None:
    shape = Shape(1, replicas=3)
    with pytest.raises(poptorch.Error, match="autoRoundNumIPUs\\(True\\)"):
        infer(shape.options())(*batch(3))
    assert ids() == []
    executor = infer(shape.options().autoRoundNumIPUs(True))
    executor(*batch(3))
    assert len(ids()) == 4


def test_detaching_frees_the_ipus_and_the_next_call_takes_some_again() -> None:
    executor = infer()
    x, target = batch(2)
    first = executor(x, target)[0]
    executor.detachFromDevice()
    assert not executor.isAttachedToDevice()
    with devices.attach(device=0):
        same(executor(x, target)[0], first)
        assert ids() == [0, 1]
    with pytest.raises(poptorch.Error, match="already attached"):
        executor.attachToDevice()
    executor.detachFromDevice()
    with pytest.raises(poptorch.Error, match="not attached"):
        executor.detachFromDevice()
    executor.attachToDevice()
    assert executor.isAttachedToDevice()


def test_a_model_that_is_dropped_frees_its_ipus_even_if_its_optimiser_lives_on() -> None:
    model = seeded(Net)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    trained = poptorch.trainingModel(model, quiet(), optimizer)
    trained(*batch(2))
    assert ids() == [0]
    del trained
    gc.collect()
    assert ids() == []


def test_two_models_get_different_ipus_and_both_run() -> None:
    executors = [infer(), infer()]
    results = [executor(*batch(2))[0] for executor in executors]
    assert ids() == [0, 1]
    same(results[0], results[1])


@pytest.mark.parametrize("kind", ["Always", "OnDemand"])
def test_connection_types_with_ipus_attach_and_detach(kind: str) -> None:
    options = quiet().connectionType(getattr(poptorch.ConnectionType, kind))
    executor = infer(options)
    executor(*batch(2))
    assert ids() == [0]
    executor.detachFromDevice()
    assert ids() == []


def test_an_offline_model_compiles_but_never_takes_an_ipu() -> None:
    executor = infer(quiet().connectionType(poptorch.ConnectionType.Never))
    executor.compile(*batch(2))
    assert executor.isCompiled()
    assert not executor.isAttachedToDevice()
    assert ids() == []
    with pytest.raises(AssertionError, match="offline device"):
        executor(*batch(2))


def test_a_chosen_ipu_is_taken_and_no_other() -> None:
    executor = infer(quiet().useIpuId(7))
    executor(*batch(2))
    assert ids() == [7]
    other = infer(quiet().useIpuId(7))
    with pytest.raises(poptorch.Error, match="Failed to acquire device Id 7") as raised:
        other(*batch(2))
    assert raised.value.code == "SIPU-1203"
    executor.detachFromDevice()
    other(*batch(2))
    assert ids() == [7]
    with pytest.raises(poptorch.Error, match="gc-info -l"):
        infer(quiet().useIpuId(99))(*batch(2))


@pytest.mark.parametrize("how", ["option", "POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"])
def test_the_ipu_model_leases_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = quiet()
    if how == "option":
        options.useIpuModel(True)
    else:
        monkeypatch.setenv(how, "1")
    executor = infer(options)
    same(executor(*batch(2))[0], seeded(Net)(*batch(2))[0].detach())
    assert executor.isAttachedToDevice()
    assert ids() == []


def test_waiting_for_a_busy_ipu(monkeypatch: pytest.MonkeyPatch, hold: Callable[..., Any]) -> None:
    holder = hold(1, 2)
    executor = infer(quiet().useIpuId(2))
    with pytest.raises(poptorch.Error, match=f"pid {holder.pid}"):
        executor(*batch(2))
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    timer = threading.Timer(0.05, os.write, [holder.stdin.fileno(), b"\n"])
    timer.start()
    executor(*batch(2))
    timer.join()
    assert 2 in ids()


def test_work_is_counted() -> None:
    executor = infer(quiet().deviceIterations(4))
    x, target = batch(8)
    calls = 5
    for _ in range(calls):
        out = executor(x, target)
    executable = executor._executable
    assert executable is not None
    lease = executable.attachment._lease
    assert lease is not None
    lease.telemetry.flush()
    counters = held()[0].counters
    assert counters is not None
    assert 0 < counters.busy_seconds < 60
    given = (x.numel() + target.numel()) * 4
    assert counters.host_bytes_in == calls * given
    assert counters.host_bytes_out == calls * sum(t.numel() * 4 for t in out)


def test_questions_about_the_system() -> None:
    assert poptorch.ipuHardwareIsAvailable()
    assert poptorch.ipuHardwareIsAvailable(16)
    assert not poptorch.ipuHardwareIsAvailable(17)
    assert not poptorch.ipuHardwareIsAvailable(0)
    assert poptorch.ipuHardwareVersion() == 21
    with devices.attach(16):
        assert poptorch.ipuHardwareIsAvailable(), "free or not"


def test_a_forked_child_gives_nothing_back(fresh: Callable[..., Any]) -> None:
    (ended,) = fresh(
        """
        import gc, os, torch, poptorch
        from softipu import devices
        options = poptorch.Options().showCompilationProgressBar(False)
        executor = poptorch.inferenceModel(torch.nn.Linear(3, 2), options)
        for _ in range(3):
            executor(torch.ones(1, 3))
        if os.fork() == 0:
            del executor
            gc.collect()
            os._exit(0)
        os.wait()
        print(sum(status.held for status in devices.status()), executor(torch.ones(1, 3)).shape)
        del executor
        print(sum(status.held for status in devices.status()))
        """
    )
    assert ended.lines == ["1 torch.Size([1, 2])", "0"]


def test_a_program_that_ends_leaves_no_records_behind(
    fresh: Callable[..., Any], state: Path
) -> None:
    (ended,) = fresh(
        """
        import sys, torch, poptorch
        options = poptorch.Options().showCompilationProgressBar(False)
        executor = poptorch.inferenceModel(torch.nn.Linear(3, 2), options)
        executor(torch.ones(1, 3))
        sys.kept = executor  # nothing drops it before the very end
        """
    )
    assert ended.status == 0
    assert ids() == []
    assert not list((state / "ipus").glob("*.json"))


def test_cycles_of_the_modelled_ipu_count_once_they_are_known() -> None:
    options = quiet()
    options.logCycleCount(True)
    executor = infer(options)

    def cycles() -> int:
        executor._executable.attachment._lease.telemetry.flush()
        return held()[0].counters.cycles

    executor(*batch(2))
    assert cycles() == 0
    each = executor.cycleCount()
    executor(*batch(2))
    executor(*batch(2))
    assert cycles() == 2 * each > 0
