"""popdist's functions and options, by the variables that poprun sets; no second process needed."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from instances_support import variables

import popdist
import popdist.collectives
import popdist.poptorch
import poptorch
from softipu.errors import PopartNotThere, PopdistMisuse


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTIPU_HOME", str(tmp_path / "state"))
    for name in variables(0, 1):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As instance 1 of 4 with 2 replicas of 2 IPUs each."""
    for name, text in variables(1, 4, replicas=2, ipus=2).items():
        monkeypatch.setenv(name, text)


def test_without_poprun_there_is_one_instance_with_one_replica() -> None:
    assert not popdist.isPopdistEnvSet()
    assert (popdist.getInstanceIndex(), popdist.getNumInstances()) == (0, 1)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (1, 1)
    assert (popdist.getNumIpusPerReplica(), popdist.getLocalInstanceIndex()) == (1, 0)
    assert popdist.getReplicaIndexOffset() == 0
    popdist.init()
    assert popdist.isBackendInitialized()
    popdist.synchronize()
    popdist.finalizeBackend()
    assert not popdist.isBackendInitialized()


@pytest.mark.usefixtures("started")
def test_poprun_says_which_instance_this_is() -> None:
    assert popdist.isPopdistEnvSet()
    assert (popdist.getInstanceIndex(), popdist.getNumInstances()) == (1, 4)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas()) == (8, 2)
    assert (popdist.getNumIpusPerReplica(), popdist.getLocalInstanceIndex()) == (2, 1)
    assert popdist.getReplicaIndexOffset() == 2
    assert popdist.checkNumIpusPerReplica(2)
    assert not popdist.checkNumIpusPerReplica(4)


@pytest.mark.usefixtures("started")
def test_the_device_has_the_ipus_of_all_local_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod16")
    from softipu import devices

    chosen = devices.active_partition().device(popdist.getDeviceId(2))
    assert [ipu.id for ipu in chosen.ipus] == [4, 5, 6, 7]
    with pytest.raises(PopdistMisuse, match="needs 4 IPUs per replica, but poprun was told 2"):
        popdist.getDeviceId(4)


@pytest.mark.usefixtures("started")
def test_an_instance_on_another_host_takes_another_device_of_a_shared_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod16")
    here = popdist.getDeviceId()
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("POPDIST_REPLICA_INDEX_OFFSET", "6")
    assert popdist.getDeviceId() == here + 2


def test_without_poprun_the_device_has_the_ipus_that_are_asked_for() -> None:
    from softipu import devices

    for count in (1, 2, 4):
        chosen = devices.active_partition().device(popdist.getDeviceId(count))
        assert [ipu.id for ipu in chosen.ipus] == list(range(count))


@pytest.mark.usefixtures("started")
def test_a_function_runs_in_the_chosen_instances_only() -> None:
    assert popdist.execute_on_instances({1, 3}, max, 3, 4) == 4
    assert popdist.execute_on_instances({0}, max, 3, 4) is None
    with pytest.raises(PopdistMisuse, match=r"none with number \[4\]"):
        popdist.execute_on_instances({4}, max, 3, 4)


@pytest.mark.usefixtures("started")
def test_indexes_need_the_same_number_of_replicas_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "0")
    with pytest.raises(PopdistMisuse, match="different numbers of replicas"):
        popdist.getInstanceIndex()


@pytest.mark.usefixtures("started")
def test_options_have_what_poprun_decided_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPDIST_EXECUTABLE_CACHE_PATH", "/some/cache")
    options = popdist.poptorch.Options(ipus_per_replica=2)
    assert isinstance(options, poptorch.Options)
    assert options.replication_factor == 2
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (1, 4)
    assert options._Popart.options["cachePath"] == "/some/cache"


@pytest.mark.usefixtures("started")
def test_options_let_nobody_else_decide() -> None:
    for options in (popdist.poptorch.Options(), popdist.poptorch.Options().clone()):
        for decide in (
            lambda o: o.replicationFactor(2),
            lambda o: o.useIpuId(1),
            lambda o: o.Distributed.disable(),
            lambda o: o.Distributed.configureProcessId(0, 1),
            lambda o: o.Distributed.setEnvVarNames("A", "B"),
        ):
            with pytest.raises(RuntimeError, match="poprun decides"):
                decide(options)


@pytest.mark.usefixtures("started")
def test_options_are_copied_whole() -> None:
    options = copy.deepcopy(popdist.poptorch.Options().deviceIterations(3))
    assert (options.device_iterations, options.replication_factor) == (3, 2)
    assert options.Distributed.processId == 1


@pytest.mark.usefixtures("started")
def test_options_for_other_ipus_than_poprun_has_are_refused() -> None:
    with pytest.raises(PopdistMisuse, match="poprun --ipus-per-replica 4"):
        popdist.poptorch.Options(ipus_per_replica=4)


def test_options_without_poprun_are_those_of_one_instance() -> None:
    options = popdist.poptorch.Options(ipus_per_replica=2)
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)
    assert options.replication_factor == 1
    with pytest.raises(RuntimeError, match="Cannot call `replicationFactor` with"):
        options.replicationFactor(1)


def test_collectives_of_one_instance_change_nothing() -> None:
    import numpy as np
    import torch

    array = np.arange(3.0)
    assert popdist.collectives.allReduceSum(array).tolist() == [0.0, 1.0, 2.0]
    assert popdist.collectives.broadcast(torch.tensor([5])).tolist() == [5]
    assert popdist.collectives.allGather(array).shape == (1, 3)


def test_popart_sessions_are_an_error_that_says_so() -> None:
    import popdist.popart

    with pytest.raises(PopartNotThere, match="configureSessionOptions"):
        popdist.popart.configureSessionOptions(object())
    with pytest.raises(PopartNotThere, match="getDevice"):
        popdist.popart.getDevice(ipus_per_replica=2)
