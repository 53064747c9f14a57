"""PopTorch over several processes trains exactly as one process with as many replicas does."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import instances_support as support
import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "programs"
TRAINING = PROGRAMS / "training.py"

WHOLE = {"accumulation": 2, "iterations": 2, "dropout": True, "norm": True}
QUESTIONS: dict[str, dict[str, Any]] = {
    "everything with momentum": WHOLE,
    "everything with Adam": {"optimizer": "adam", **WHOLE},
    "momentum": {},
    "sums instead of means": {"sum": True, "accumulation": 2},
    "clipped by the norm of all gradients": {"optimizer": "clipped", "dropout": True},
    "norms of layers": {"optimizer": "lamb", "accumulation": 2},
    "running statistics": {"norm": True},
}
LARGE = ("everything with momentum", "everything with Adam")


@pytest.fixture(autouse=True, scope="module")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTIPU_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@functools.cache
def alone() -> dict[tuple[str, int], dict[str, Any]]:
    """What one process with all the replicas finds, by question and number of replicas."""
    keys = [(name, 4) for name in QUESTIONS] + [(name, n) for name in LARGE for n in (2, 8)]
    asks = [{**QUESTIONS[name], "replicas": replicas} for name, replicas in keys]
    ended = subprocess.run(
        [sys.executable, str(TRAINING), json.dumps(asks)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        capture_output=True,
        timeout=support.PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    return dict(zip(keys, found, strict=True))


@functools.cache
def in_instances(count: int, replicas: int = 2) -> dict[str, list[dict[str, Any]]]:
    """What so many instances find, by question; the processes answer all of them in turn."""
    names = list(QUESTIONS) if count == 2 else LARGE
    asks = json.dumps([QUESTIONS[name] for name in names])
    ended = support.run(TRAINING, count, [asks], replicas=replicas)
    return {name: [one.said[turn] for one in ended] for turn, name in enumerate(names)}  # type: ignore[misc]


def check_same(together: list[dict[str, Any]], single: dict[str, Any]) -> None:
    losses = np.concatenate([one["losses"] for one in together], axis=2)
    np.testing.assert_allclose(losses, single["losses"], rtol=2e-5, atol=2e-6)
    first = together[0]["weights"]
    for name, value in single["weights"].items():
        np.testing.assert_allclose(first[name], value, rtol=1e-4, atol=2e-6, err_msg=name)
    for one in together[1:]:
        for name, value in one["weights"].items():
            if "running" not in name:
                # Not nearly: a difference would grow from one update to the next.
                np.testing.assert_array_equal(value, first[name], err_msg=name)


@pytest.mark.parametrize("question", LARGE)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_processes_with_two_replicas_each_train_as_one_process(question: str, count: int) -> None:
    check_same(in_instances(count)[question], alone()[question, 2 * count])


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name not in LARGE])
def test_other_ways_to_reduce_and_update_do_too(question: str) -> None:
    check_same(in_instances(2)[question], alone()[question, 4])


def test_four_processes_with_one_replica_each_do_too() -> None:
    for question in LARGE:
        check_same(in_instances(4, replicas=1)[question], alone()[question, 4])


def test_replicas_draw_different_random_numbers() -> None:
    """Or the tests above could not see whether random numbers continue over processes."""
    first, second = in_instances(2)["clipped by the norm of all gradients"]
    assert first["rng"] != second["rng"]


def test_unequal_weights_become_those_of_instance_0_with_a_warning() -> None:
    ended = support.run(TRAINING, 2, [json.dumps([{"unequal": True}])], replicas=2)
    check_same([one.said[0] for one in ended], alone()["momentum", 4])  # type: ignore[misc]
    assert "instances 0 and 1 differ at the beginning" in ended[1].errors


def test_all_instances_share_a_cache_with_a_process_alone(tmp_path: Path) -> None:
    ask = {**QUESTIONS["running statistics"], "cache": str(tmp_path)}
    again = support.run(
        TRAINING, 2, [json.dumps([ask, ask])], replicas=2, environ={"POPTORCH_LOG_LEVEL": "INFO"}
    )
    for turn in (0, 1):
        found: Any = [one.said[turn] for one in again]
        check_same(found, alone()["running statistics", 4])
    for one in again:
        assert "Executable found in the cache" in one.errors


def test_an_instance_that_is_killed_while_training_is_named_by_all_others() -> None:
    endless = PROGRAMS / "endless_training.py"
    with support.launched(endless, 4, replicas=2) as running:
        for index in range(4):
            running.said(index, "training")
        running.signal(3, signal.SIGKILL)
        ended = running.wait(60)
    for index in range(3):
        assert ended[index].code == 1
        assert "poptorch" in ended[index].errors
        assert "Instance 3 " in ended[index].errors, ended[index].errors
        assert "(SIPU-7203)" in ended[index].errors


def test_a_different_program_in_one_instance_is_refused_in_all() -> None:
    with support.launched(PROGRAMS / "endless_training.py", 2, ["odd"]) as running:
        ended = running.wait()
    for one in ended:
        assert one.code == 1
        assert "Instances 0 and 1 have different programs" in one.errors, one.errors


def test_options_that_contradict_poprun_are_refused() -> None:
    with support.launched(PROGRAMS / "endless_training.py", 2, ["wrong-id"]) as running:
        ended = running.wait()
    for index, one in enumerate(ended):
        assert (
            f"process {1 - index} of 2, but it was started as instance {index} of 2" in one.errors
        )


def test_each_process_loads_its_own_share_of_the_data() -> None:
    ended = support.run(PROGRAMS / "loading.py", 2, replicas=2)
    shares = [sorted(one.said) for one in ended]  # type: ignore[type-var]
    assert not set(shares[0]) & set(shares[1])  # type: ignore[arg-type]
    assert sorted(shares[0] + shares[1]) == list(range(32))


CHANGING = PROGRAMS / "changing.py"


@pytest.mark.parametrize(("change", "other"), [("first", 0.3), ("rate", 0.05)])
def test_different_attributes_of_the_optimizer_are_refused_in_all(
    change: str, other: float
) -> None:
    """At the beginning, and after setOptimizer in one instance only."""
    with support.launched(CHANGING, 2, [change, "[1]"]) as running:
        ended = running.wait()
    for one in ended:
        assert one.code == 1
        assert f"differ: lr of parameter group 1 is 0.2 and {other}." in one.errors, one.errors
        assert "(SIPU-7205)" in one.errors


def test_the_same_change_in_all_instances_keeps_them_together() -> None:
    for change in ("rate", "weights"):
        ended = support.run(CHANGING, 2, [change, "[0, 1]"])
        assert ended[0].said == ended[1].said
        assert "differ" not in ended[0].errors


@pytest.mark.parametrize("change", ["weights", "state"])
def test_what_one_instance_writes_in_the_middle_does_not_part_it_from_the_others(
    change: str,
) -> None:
    ended = support.run(CHANGING, 2, [change, "[1]"])
    assert ended[0].said == ended[1].said
    assert "instances 0 and 1 differ since one of them wrote during" in ended[1].errors
    if change == "weights":
        assert ended[0].said == support.run(CHANGING, 2, ["nothing", "[]"])[0].said
