"""The rules of the controller, one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from vipu_helpers import assert_sound, pod_order

from softipu import errors
from softipu.devices import ipuof
from softipu.devices.controller import Controller, PartitionRequest
from softipu.devices.model import Ipu


def create(controller: Controller, name: str, size: int, **rest: object):
    return controller.create_partition(PartitionRequest(name, size, **rest))  # type: ignore


def test_a_new_file_has_an_agent_for_each_machine_and_one_cluster_with_all(controller):
    assert [agent.id for agent in controller.agents()] == ["ag0", "ag1", "ag2", "ag3"]
    assert controller.agent("ag1").host == "198.19.16.2"
    (cluster,) = controller.clusters()
    assert (cluster.id, cluster.agents) == ("c16", ("ag0", "ag1", "ag2", "ag3"))
    assert controller.partitions() == ()


@pytest.mark.parametrize(
    ("system", "agents", "ipus"), [("m2000", 1, 4), ("c600", 1, 1), ("bow-pod256", 64, 256)]
)
def test_every_system_can_be_partitioned_whole(tmp_path: Path, system, agents, ipus):
    controller = Controller(tmp_path / "x.sqlite", system=system)
    assert len(controller.agents()) == agents
    assert len(create(controller, "all", ipus).ipus) == ipus
    controller.close()


def test_a_partition_is_an_aligned_run_of_the_cluster_in_ipu_order(controller):
    info = create(controller, "p1", 2)
    assert info.ipus == (("198.19.16.1", 3, "bow-pod16"), ("198.19.16.1", 2, "bow-pod16"))
    assert (info.state, info.reconfigurable, info.sync_type) == (
        "ACTIVE", False, "pod-native-default",
    )  # fmt: skip
    big = create(controller, "p2", 8)
    assert big.ipus[0][:2] == ("198.19.16.3", 3), "8 IPUs begin at a multiple of 8"
    small = create(controller, "p3", 2)
    assert small.ipus[0][:2] == ("198.19.16.1", 1), "the gap before it is used"
    assert_sound(controller.partitions(), pod_order())
    assert controller.partition_info("p2") == big


def test_reconfigurable_partitions_have_the_c2_compatible_sync_type(controller):
    assert create(controller, "a", 1, reconfigurable=True).sync_type == "c2-compatible"
    with pytest.raises(errors.InvalidRequest, match="c2-compatible"):
        create(controller, "b", 1, reconfigurable=True, sync_type="ST_POD_NATIVE_DEFAULT")
    fixed = create(
        controller, "c", 1, reconfigurable=True, sync_type="ST_POD_NATIVE_DEFAULT", index=5
    )
    assert fixed.sync_type == "pod-native-default"
    assert fixed.ipus == (("198.19.16.2", 2, "bow-pod16"),)


@pytest.mark.parametrize(
    "name", ["", ".hidden", "a/b", "a b", "x" * 65, "ä", "-x", "a\n", "..", "\x00"]
)
def test_names_that_could_not_be_file_names_are_refused(controller, name):
    with pytest.raises(errors.InvalidRequest):
        create(controller, name, 1)
    with pytest.raises(errors.InvalidRequest):
        controller.create_cluster(name, ["ag0"])
    with pytest.raises(errors.InvalidRequest):
        controller.add_agent(name, "10.0.0.1")


@pytest.mark.parametrize("size", [0, -1, 3, 12, 17])
def test_sizes_are_powers_of_two(controller, size):
    with pytest.raises(errors.InvalidIpuCount):
        create(controller, "p", size)


def test_more_ipus_than_the_cluster_has(controller):
    with pytest.raises(errors.NotEnoughIpus, match="c16 has 16"):
        create(controller, "p", 32)


def test_taken_ipus_are_reported_with_their_partitions(controller):
    create(controller, "first", 8)
    create(controller, "second", 1)
    with pytest.raises(
        errors.NoFreeIpus, match=r"7 of 16 free; taken by first \(8\), second \(1\)"
    ):
        create(controller, "third", 8)
    with pytest.raises(errors.NoFreeIpus, match=r"at index 0; taken by first \(4\)"):
        create(controller, "third", 4, index=0)
    assert len(controller.partitions()) == 2


def test_an_index_names_the_place(controller):
    assert create(controller, "p", 4, index=2).ipus[0][0] == "198.19.16.3"
    with pytest.raises(errors.InvalidRequest, match="0 to 3"):
        create(controller, "q", 4, index=4)
    with pytest.raises(errors.InvalidRequest):
        create(controller, "q", 4, index=-1)


@pytest.mark.parametrize("field", ["num_gcds", "gcd_sync_replicas"])
@pytest.mark.parametrize("value", [0, 3, 8, -2])
def test_gcds_and_replicas_are_powers_of_two_within_the_size(controller, field, value):
    with pytest.raises(errors.InvalidRequest):
        create(controller, "p", 4, **{field: value})


def test_unknown_sync_types_are_refused(controller):
    with pytest.raises(errors.InvalidRequest, match="c2-compatible"):
        create(controller, "p", 4, sync_type="telepathy")


def test_each_gcd_sees_its_own_ipus_numbered_from_zero(controller):
    create(controller, "p", 8, num_gcds=2, gcd_sync_replicas=2)
    second = controller.partition("p", 1, origin="here")
    assert [ipu.id for ipu in second.ipus] == [0, 1, 2, 3]
    assert {ipu.host for ipu in second.ipus} == {"198.19.16.2"}
    assert (second.gcd, second.origin, second.num_replicas) == (1, "here", 2)
    assert len(controller.partition("p").ipus) == 8
    for gcd in (2, -1):
        with pytest.raises(errors.InvalidRequest, match="2 GCDs"):
            controller.partition("p", gcd)


def test_the_ipuof_configuration_reads_back_as_the_same_partition(controller):
    create(controller, "p", 4, reconfigurable=True)
    config = controller.ipuof_config("p", 0, server="here:8090")
    parsed, attributes = ipuof.parse(config, where="test", name="x", origin="embedded")
    assert [ipu.key for ipu in parsed.ipus] == [ipu.key for ipu in controller.partition("p").ipus]
    assert parsed.name == "p"
    assert parsed.reconfigurable
    assert attributes[ipuof.ATTRIBUTE_SERVER] == "here:8090"


def test_names_are_taken_once_and_free_after_removal(controller):
    create(controller, "p", 16)
    with pytest.raises(errors.AlreadyExists):
        create(controller, "p", 1)
    assert controller.remove_partition("p").size == 16
    create(controller, "p", 16)
    for call in (
        controller.partition_info,
        controller.remove_partition,
        controller.reset_partition,
    ):
        with pytest.raises(errors.UnknownPartition, match="there are: p"):
            call("q")


def test_a_partition_in_use_is_removed_or_reset_only_by_force(controller):
    create(controller, "p", 2)
    asked: list[tuple[Ipu, ...]] = []

    def holders(ipus: tuple[Ipu, ...]) -> list[str]:
        asked.append(ipus)
        return ["pid 7 (train.py)"]

    for change in (controller.remove_partition, controller.reset_partition):
        with pytest.raises(errors.InUse, match=r"p is in use by pid 7 \(train.py\)"):
            change("p", holders=holders)
    assert [ipu.key for ipu in asked[0]] == ["198.19.16.1-3", "198.19.16.1-2"]
    assert controller.reset_partition("p", force=True, holders=holders).state == "ACTIVE"
    controller.remove_partition("p", force=True, holders=holders)
    assert controller.partitions() == ()


def test_agents_and_clusters_in_use_cannot_be_removed(controller):
    create(controller, "p", 1)
    with pytest.raises(errors.InUse, match="cluster c16"):
        controller.remove_agent("ag0")
    with pytest.raises(errors.InUse, match="partition p"):
        controller.remove_cluster("c16")
    controller.remove_partition("p")
    controller.remove_cluster("c16")
    controller.remove_agent("ag0")
    assert [agent.id for agent in controller.agents()] == ["ag1", "ag2", "ag3"]
    with pytest.raises(errors.UnknownEntity):
        create(controller, "p", 1)


def test_clusters_may_overlap_but_their_partitions_do_not(controller):
    controller.create_cluster("half", ["ag1", "ag0"])
    with pytest.raises(errors.InvalidRequest, match="c16, half"):
        create(controller, "p", 1)
    assert create(controller, "p", 4, cluster="half").ipus[0][0] == "198.19.16.2"
    create(controller, "q", 8, cluster="c16")
    with pytest.raises(errors.NoFreeIpus, match="p"):
        create(controller, "r", 8, cluster="half")
    assert len({ipu for info in controller.partitions() for ipu in info.ipus}) == 12


def test_new_agents_bring_new_ipus(controller):
    agent = controller.add_agent("extra", "10.1.5.10", 8081)
    assert (agent.system, agent.ipus, agent.port) == ("bow-pod16", 4, 8081)
    controller.create_cluster("big", ["ag0", "extra"])
    info = create(controller, "p", 8, cluster="big")
    assert info.ipus[4] == ("10.1.5.10", 3, "bow-pod16")
    assert controller.partition("p").ipus[7].serial.startswith("0010.")


def test_agents_of_one_host_or_of_unlike_systems_do_not_mix(controller):
    with pytest.raises(errors.AlreadyExists, match="ag0"):
        controller.add_agent("twin", "198.19.16.1")
    with pytest.raises(errors.AlreadyExists):
        controller.add_agent("ag0", "10.0.0.1")
    with pytest.raises(errors.UnknownSystem):
        controller.add_agent("odd", "10.0.0.1", system="pod5")
    controller.add_agent("old", "10.0.0.1", system="pod16")
    with pytest.raises(errors.InvalidRequest, match="different systems"):
        controller.create_cluster("mixed", ["ag0", "old"])


@pytest.mark.parametrize("agents", [[], ["ag0", "ag0"], ["nope"]])
def test_clusters_need_known_agents_once_each(controller, agents):
    with pytest.raises((errors.InvalidRequest, errors.UnknownEntity)):
        controller.create_cluster("c", agents)


@pytest.mark.parametrize(
    ("host", "port"), [("", 1), ("a b", 1), ("../x", 1), ("h", 0), ("h", 65536)]
)
def test_agents_need_a_host_and_a_port(controller, host, port):
    with pytest.raises(errors.InvalidRequest):
        controller.add_agent("a", host, port)


def test_a_file_stays_with_its_system(controller, tmp_path: Path):
    with pytest.raises(errors.InvalidRequest, match="belongs to a bow-pod16"):
        Controller(controller.path, system="pod64")
    again = Controller(controller.path)
    assert again.system == "bow-pod16"
    again.close()
    with pytest.raises(errors.UnknownSystem):
        Controller(tmp_path / "new.sqlite", system="pod5")
    with pytest.raises(errors.InvalidRequest, match="does not exist"):
        Controller(tmp_path / "new.sqlite")
    assert not (tmp_path / "new.sqlite").exists()
