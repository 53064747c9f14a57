"""Programs of several instances under PopDistStrategy, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
#: For processes that share two cores with a whole test run.
PATIENCE = 240.0
#: How long the others may live on after one instance died.
BOUND = 30.0

pytestmark = pytest.mark.timeout(600)


@dataclass
class Ended:
    codes: list[int]
    results: list[dict | None]
    outputs: list[str]
    #: Seconds from `cause` (see Job.wait) to the end of the last instance.
    seconds: float = 0.0


class Job:
    def __init__(self, nursery, folder):
        self._nursery, self.folder = nursery, folder
        self.pids = nursery.answer()["pids"]

    def wait(self):
        codes = self._nursery.answer()["codes"]
        outputs = [(self.folder / f"{i}.txt").read_text() for i in range(len(codes))]
        files = [self.folder / f"{i}.json" for i in range(len(codes))]
        results = [json.loads(file.read_text()) if file.exists() else None for file in files]
        return Ended(codes, results, outputs)


class Nursery:
    def __init__(self, folder):
        self.home = folder / "home"
        self._folder, self._jobs = folder, 0
        with (folder / "nursery.txt").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", HERE / "popdist_nursery.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "SOFTIPU_HOME": str(self.home), "TF_USE_LEGACY_KERAS": "1"},
                text=True,
            )
        self.answer()

    def answer(self):
        line = self._process.stdout.readline()
        assert line, (self._folder / "nursery.txt").read_text()
        return json.loads(line)

    def start(self, instances, replicas, program, *arguments, **variables):
        self._jobs += 1
        folder = self._folder / str(self._jobs)
        folder.mkdir()
        if arguments == ("folder",):
            arguments = (str(folder),)
        job = {
            "instances": instances, "replicas": replicas, "program": program,
            "arguments": arguments, "variables": variables,
            "folder": str(folder), "home": str(self.home),
        }  # fmt: skip
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Job(self, folder)

    def run(self, *job, **variables):
        ended = self.start(*job, **variables).wait()
        assert ended.codes == [0] * len(ended.codes), "\n".join(ended.outputs)
        return ended.results

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    made = Nursery(tmp_path_factory.mktemp("popdist"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def programs():
    sys.path.insert(0, str(HERE))
    yield pytest.importorskip("popdist_programs")
    sys.path.remove(str(HERE))


def plain_keras(programs, batches_per_step):
    """The same training without IPUs: one batch holds what all replicas take in a step."""
    x, y = programs.data()
    size = programs.BATCH * batches_per_step
    plain = programs.model()
    plain.set_weights(programs.weights())
    history = plain.fit(x, y, batch_size=size, epochs=3, shuffle=False, verbose=0).history
    return {
        "history": history,
        "evaluation": plain.evaluate(x, y, batch_size=size, verbose=0),
        "prediction": plain.predict(x, batch_size=size, verbose=0).ravel(),
        "weights": [w.ravel() for w in plain.get_weights()],
    }


def assert_same_training(found, expected):
    for name, curve in expected["history"].items():
        np.testing.assert_allclose(found["history"][name], curve, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["evaluation"], expected["evaluation"], rtol=1e-4)
    for mine, theirs in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


def in_order(programs, results, replicas):
    """The predictions of all instances in the order of the data."""
    steps = programs.BATCHES // (len(results) * replicas)
    parts = [np.reshape(r["prediction"], [steps, replicas, programs.BATCH]) for r in results]
    return np.stack(parts, 1).ravel()


@pytest.mark.parametrize("instances", [1, 2, 4])
def test_keras_trains_in_several_processes_as_in_one(nursery, programs, instances):
    total = 2 * instances
    found = nursery.run(instances, 2, "training")
    expected = plain_keras(programs, total)
    for result in found:
        assert result["in_sync"] == result["estimated"] == total
        assert_same_training(result, expected)
        assert result["weights"] == found[0]["weights"]
        assert result["history"] == found[0]["history"]
    np.testing.assert_allclose(
        in_order(programs, found, 2), expected["prediction"], rtol=1e-3, atol=1e-5
    )
    if instances == 2:
        (alone,) = nursery.run(1, total, "training")
        assert_same_training(found[0], alone)


def test_accumulated_gradients_are_means_over_all_instances(nursery, programs):
    found = nursery.run(2, 2, "training", 2)
    expected = plain_keras(programs, 8)
    for mine, theirs in zip(found[1]["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def two(nursery):
    """What two instances with two replicas each found out."""
    return nursery.run(2, 2, "of_all_kinds")


def test_variables_begin_with_the_values_of_instance_0(two):
    first, second = (result["initial"] for result in two)
    assert first == second
    assert first["scalar"] == 1.0
    assert first["device"].endswith("/device:IPU:0")
    assert np.ptp(first["kernel"]) > 0


def test_collectives_on_ipus_are_those_of_all_replicas(two):
    mine = np.array([[i + 1.0, 10 * (i + 1.0)] for i in range(4)])
    for instance, result in enumerate(two):
        found = result["on_ipu"]
        here = [2 * instance, 2 * instance + 1]
        assert found["index"] == here
        for i, replica in enumerate(here):
            np.testing.assert_array_equal(found["sum"][i], 4 * mine.sum(0))
            np.testing.assert_allclose(found["mean"][i], mine.mean(0))
            pair = mine[replica // 2 * 2 : replica // 2 * 2 + 2]
            np.testing.assert_array_equal(found["pairs"][i], pair.sum(0))
            np.testing.assert_array_equal(found["gathered"][i], mine)
            np.testing.assert_array_equal(found["swapped"][i], mine[:, 0])
            np.testing.assert_array_equal(found["part"][i], [mine[:, 0].sum()])
            np.testing.assert_array_equal(found["largest"][i], [4.0])


def test_a_loop_of_training_steps_inside_a_program_updates_all_replicas_alike(two):
    w, curve = 0.0, []
    for step in range(4):
        x = np.array([1 + step * 4 + g for g in range(4)]) / 10
        curve.append((w * x - 3 * x) ** 2 / 4)
        w -= 0.1 * np.sum(2 * x * (w * x - 3 * x) / 4)
    for instance, result in enumerate(two):
        found = result["loop"]
        assert found["w"] == pytest.approx(w, rel=1e-5)
        own = np.array(curve)[:, 2 * instance : 2 * instance + 2]
        np.testing.assert_allclose(found["losses"], own, rtol=1e-4)
        firsts = curve[3][0] + curve[3][2]  # each instance returns what its first replica did
        assert found["reduced"] == pytest.approx(firsts, rel=1e-4)


def test_collectives_on_hosts_are_those_of_numpy(two):
    for result in two:
        assert result["on_host"] == {
            "gathered": [[0, 0], [1, 10]],
            "sum": [1, 10],
            "mean": 1,  # of 0 and 3, cut off
            "broadcast": [1, 10],
            "flags": [[True, True], [False, True]],
        }


def test_collectives_in_graphs_meet_by_name_whatever_the_order(two):
    for result in two:
        assert result["in_graph"] == [2.0 * i + 1 for i in range(12)]


def test_variables_that_are_reduced_when_read_are_reduced_over_the_instances(two):
    for instance, result in enumerate(two):
        # mean of mean(2, 0) and mean(4, 0); mean of var(2, 0) and var(4, 0)
        assert result["norm"] == [1.5, 2.5]
        assert result["reads"] == [instance + 1.0, 3.0]


def test_large_tensors_are_reduced_to_the_same_bits_everywhere(two):
    assert all(result["large"]["close"] for result in two)
    assert all(result["large"]["mine_is_there"] for result in two)
    assert two[0]["large"]["digest"] == two[1]["large"]["digest"]


def test_horovod_functions_are_those_of_numpy(two):
    mine = np.array([[0.0, 1, 2], [2, 3, 4]])
    for instance, result in enumerate(two):
        found = result["horovod"]
        assert found["places"] == [instance, 2, instance, 2]
        assert found["average"] == mine.mean(0).tolist()
        assert found["sum"] == found["old"] == mine.sum(0).tolist()
        assert found["min"] == mine.min(0).tolist()
        assert found["max"] == mine.max(0).tolist()
        assert found["product"] == mine.prod(0).tolist()
        assert found["scaled"] == (mine.sum(0) / 2).tolist()
        assert found["grouped"] == [mine.mean(0).tolist(), (mine + 1).mean(0).tolist()]
        assert found["gathered"] == [[0, 0], [1, 1], [1, 1]]
        assert found["scalars"] == [0, 1]
        assert found["broadcast"] == mine[1].tolist()
        assert found["variable"] == [1.0]
        assert found["object"] == {"from": 1}
        assert found["objects"] == ["x", "xx"]
        assert found["graph"] == [mine.sum(0).tolist(), [0, 2, 3], mine[1].tolist()]
        assert found["gradient"] == [1.5]


# Failures


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("instances", "victim"), [(2, 0), (4, 2)])
def test_killing_one_instance_ends_the_others_soon_and_they_name_it(nursery, instances, victim):
    job = nursery.start(instances, 1, "endless_training", "folder")
    marks = [job.folder / f"trains.{index}" for index in range(instances)]
    wait_for(lambda: all(mark.exists() for mark in marks), PATIENCE, "they never trained")
    os.kill(job.pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    ended = job.wait()
    assert time.monotonic() - killed < BOUND
    for index, (code, output) in enumerate(zip(ended.codes, ended.outputs, strict=True)):
        if index == victim:
            assert code == -signal.SIGKILL
            continue
        assert code == 1
        assert f"Instance {victim} " in output, output
    assert not any(alive(pid) for pid in job.pids)
    assert not leases(nursery.home), "IPUs are still held"


def leases(home):
    """Which IPUs are held, as gc-monitor would say it."""
    from softipu import devices
    from softipu.devices import usage
    from softipu.devices.home import Home

    partition = devices.active_partition()
    return usage.holders(Home(home), partition.ipus)


@pytest.mark.parametrize(
    ("program", "texts"),
    [
        ("failing_callback", [r"Instance 1 ", "no more disk"]),
        ("ends_early", [None, "Instance 0 "]),
        ("goes_another_way", ["The instances do different things", "SIPU-7301"]),
        ("wrong_configuration", ["SIPU-7302", "process 0 of 3"]),
    ],
)
def test_an_instance_that_fails_or_takes_another_way_is_an_error_not_a_hang(
    nursery, program, texts
):
    started = time.monotonic()
    ended = nursery.start(2, 1, program).wait()
    assert time.monotonic() - started < PATIENCE
    for code, output, text in zip(ended.codes, ended.outputs, texts, strict=True):
        assert code == (0 if text is None else 1), output
        assert text is None or text in output, output


def test_an_instance_that_is_slow_is_waited_for(nursery):
    assert nursery.run(2, 1, "sleeps_before_the_others", 3) == [2.0, 2.0]
