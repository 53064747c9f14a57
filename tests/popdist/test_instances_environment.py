"""Which instance a process is: by the variables of poprun, torchrun and mpirun."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances_support import variables

from softipu import instances
from softipu.errors import InstanceEnvironment, InvalidSetting
from softipu.instances import Instance


def test_a_process_without_variables_stands_alone() -> None:
    assert instances.read({}) == Instance()
    assert not instances.is_launched({})


def test_popruns_variables_say_all_about_an_instance() -> None:
    environ = variables(2, 4, replicas=3, ipus=2, port=1234)
    assert instances.is_launched(environ)
    assert instances.read(environ) == Instance(
        index=2,
        count=4,
        local_index=2,
        local_count=4,
        total_replicas=12,
        local_replicas=3,
        replica_offset=6,
        ipus_per_replica=2,
        uniform=True,
        address="127.0.0.1",
        port=1234,
    )


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_replicas_of_all_instances_follow_one_another(
    count: int, replicas: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, count - 1))
    found = instances.read(variables(index, count, replicas=replicas))
    assert found.replica_offset == index * replicas
    assert found.total_replicas == count * replicas


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_popdists_variables_alone_are_enough(
    count: int, replicas: int, data: st.DataObject
) -> None:
    """As in the command that poprun gives to mpirun: no RANK, no WORLD_SIZE."""
    index = data.draw(st.integers(0, count - 1))
    everything = variables(index, count, replicas=replicas)
    environ = {name: text for name, text in everything.items() if name.startswith("POPDIST_")}
    found = instances.read(environ)
    assert (found.index, found.count) == (index, count)


def test_torchrun_alone_makes_instances_with_one_replica() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    found = instances.read(environ)
    assert (found.index, found.count, found.local_index, found.local_count) == (3, 8, 1, 2)
    assert (found.total_replicas, found.local_replicas, found.replica_offset) == (8, 1, 3)
    assert not instances.is_launched(environ)


def test_mpirun_alone_does_too() -> None:
    environ = {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    }
    found = instances.read(environ)
    assert (found.index, found.count, found.local_index, found.local_count) == (1, 2, 0, 1)
    assert (found.address, found.port) == (None, None)


def test_instances_may_have_different_numbers_of_replicas() -> None:
    environ = variables(1, 2) | {
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "0",
        "POPDIST_NUM_TOTAL_REPLICAS": "3",
        "POPDIST_NUM_LOCAL_REPLICAS": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": "2",
    }
    found = instances.read(environ)
    assert (found.uniform, found.total_replicas, found.replica_offset) == (False, 3, 2)


def test_a_launcher_that_listens_itself_is_known() -> None:
    environ = variables(0, 2) | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert instances.read(environ).launcher_listens


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"RANK": "1"}, "RANK=1, OMPI_COMM_WORLD_RANK=0"),
        ({"WORLD_SIZE": "3"}, "WORLD_SIZE=3, OMPI_COMM_WORLD_SIZE=4"),
        ({"LOCAL_RANK": "2"}, "POPDIST_LOCAL_INSTANCE_INDEX=0, LOCAL_RANK=2"),
        ({"POPDIST_NUM_LOCAL_REPLICAS": "5"}, "4 instances with 5 replicas|replicas 0 to 4"),
        ({"POPDIST_REPLICA_INDEX_OFFSET": "1"}, "begins at replica 0, not at 1"),
        ({"POPDIST_NUM_TOTAL_REPLICAS": "2"}, "2 replicas for 4 instances"),
        ({"POPDIST_NUM_TOTAL_REPLICAS": ""}, "POPDIST_NUM_TOTAL_REPLICAS is not"),
        ({"POPDIST_NUM_TOTAL_REPLICAS": "many"}, "'many': expected a whole number from 1"),
        ({"POPDIST_NUM_LOCAL_REPLICAS": "0"}, "'0': expected a whole number from 1"),
        ({"POPDIST_NUM_IPUS_PER_REPLICA": "-1"}, "'-1': expected a whole number from 1"),
        ({"RANK": "4", "OMPI_COMM_WORLD_RANK": "4"}, "instance 4 of 4"),
        ({"LOCAL_WORLD_SIZE": "5"}, "0 of 5 on this host"),
        ({"RANK": "²", "OMPI_COMM_WORLD_RANK": ""}, "expected a whole number"),
    ],
)
def test_variables_that_contradict_each_other_are_refused(
    changed: dict[str, str], complaint: str
) -> None:
    with pytest.raises(InstanceEnvironment, match=complaint):
        instances.read(variables(0, 4) | changed)


def test_replicas_that_do_not_divide_are_refused() -> None:
    environ = {"POPDIST_NUM_TOTAL_REPLICAS": "5", "WORLD_SIZE": "2", "RANK": "0"}
    with pytest.raises(InstanceEnvironment, match="5 replicas don't divide into 2"):
        instances.read(environ)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="MASTER_PORT"):
        instances.read(variables(0, 2) | {"MASTER_PORT": "no port"})


def test_knowing_who_one_is_imports_no_framework() -> None:
    program = (
        "import sys; from softipu import instances; from softipu.instances import group; "
        "instances.read(); "
        "sys.exit(bool({'torch', 'tensorflow', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
