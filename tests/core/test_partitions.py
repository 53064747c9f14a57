"""Partitions, devices and their numbering; and where a program's partition comes from."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softipu import arch, devices
from softipu.devices import ipuof
from softipu.devices.controller import Controller, PartitionRequest
from softipu.devices.embedded import machines, whole_system
from softipu.devices.home import Home
from softipu.errors import (
    InvalidSetting,
    IpuofFileMalformed,
    IpuofFileMissing,
    NotReconfigurable,
    UnknownPartition,
    UnknownSystem,
)

SYSTEMS = arch.system_names()


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_has_all_its_ipus_under_distinct_identities(name):
    partition = whole_system(name)
    assert len({ipu.key for ipu in partition.ipus}) == arch.system(name).ipus
    assert [ipu.id for ipu in partition.ipus] == list(range(len(partition.ipus)))


def test_no_two_systems_share_an_ipu():
    keys = [ipu.key for name in SYSTEMS for ipu in whole_system(name).ipus]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("name", "last"), [("m2000", 6), ("pod16", 30), ("pod64", 126), ("c600", 0)]
)
def test_device_ids_number_ipus_then_pairs_then_quads_up_to_the_whole(name, last):
    found = whole_system(name).devices
    assert [device.id for device in found] == list(range(last + 1))
    assert len(found[-1].ipus) == arch.system(name).ipus


def test_within_a_machine_ipu_numbers_count_down_and_pairs_share_a_serial():
    first = whole_system("bow-pod16").ipus[:4]
    assert [ipu.device_id for ipu in first] == [3, 2, 1, 0]
    assert first[0].serial == first[1].serial != first[2].serial == first[3].serial
    assert ".0002." in first[0].serial


@given(st.sampled_from(SYSTEMS), st.data())
def test_groups_of_a_size_are_disjoint_and_cover_the_partition(name, data):
    partition = whole_system(name)
    size = 2 ** data.draw(st.integers(0, len(partition.ipus).bit_length() - 1))
    covered = [ipu.id for device in partition.groups(size) for ipu in device.ipus]
    assert covered == list(range(len(partition.ipus)))


def test_the_default_is_the_whole_bow_pod16():
    partition = devices.active_partition()
    assert (partition.name, partition.system, len(partition.ipus)) == ("ipuof", "bow-pod16", 16)


def test_softipu_system_chooses_the_system(monkeypatch):
    monkeypatch.setenv("SOFTIPU_SYSTEM", "pod64")
    assert len(devices.active_partition().ipus) == 64
    assert devices.active_partition().ipus[0].chip == "mk2"


def test_an_unknown_system_is_an_error_with_a_guess(monkeypatch):
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod-16")
    with pytest.raises(UnknownSystem, match="bow-pod16"):
        devices.active_partition()


@pytest.mark.parametrize("port", ["0", "x", "99999", "-1"])
def test_a_bad_port_names_the_variable(monkeypatch, port):
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "127.0.0.1")
    monkeypatch.setenv("IPUOF_VIPU_API_PORT", port)
    with pytest.raises(InvalidSetting, match="IPUOF_VIPU_API_PORT"):
        devices.active_partition()


# --- partitions made on the embedded system ---------------------------------------------------


@pytest.fixture
def controller() -> Iterator[Controller]:
    """The one that `vipu` uses on the embedded system."""
    home = Home()
    home.prepare()
    path = home.controllers / "bow-pod16.sqlite"
    with contextlib.closing(Controller(path, system="bow-pod16")) as opened:
        yield opened


def test_partitions_made_with_vipu_replace_the_whole_system(controller):
    controller.create_partition(PartitionRequest("b", size=4, reconfigurable=True))
    controller.create_partition(PartitionRequest("a", size=8, reconfigurable=True))
    assert [one.name for one in devices.partitions()] == ["a", "b"]
    with devices.attach(8) as lease:
        assert lease.partition.name == "a"


def test_the_partition_variable_chooses_one(controller, monkeypatch):
    controller.create_partition(PartitionRequest("a", size=4, reconfigurable=True))
    controller.create_partition(PartitionRequest("b", size=4, reconfigurable=True))
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "b")
    assert [one.name for one in devices.partitions()] == ["b", "a"]


def test_an_unknown_partition_is_an_error_that_lists_the_others(controller, monkeypatch):
    controller.create_partition(PartitionRequest("a", size=4))
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "nope")
    with pytest.raises(UnknownPartition, match="'nope'.*has: a"):
        devices.active_partition()


def test_a_partition_that_is_not_reconfigurable_is_one_device(controller):
    controller.create_partition(PartitionRequest("a", size=4))
    with pytest.raises(NotReconfigurable, match="1 of the 4"):
        devices.attach(1)
    with pytest.raises(NotReconfigurable):
        devices.attach(device=0)
    with devices.attach(4) as lease:
        assert lease.ids == (0, 1, 2, 3)


def test_partitions_share_leases_with_other_views_of_the_same_ipus(controller):
    controller.create_partition(PartitionRequest("a", size=4, reconfigurable=True))
    with devices.attach(4):
        held = [s.ipu.key for s in devices.status(whole_system("bow-pod16")) if s.held]
        assert held == [ipu.key for ipu in devices.active_partition().ipus]


# --- IPUoF files --------------------------------------------------------------------------------


def write(path: Path, config: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    return path


def foreign_config(ipus: int = 4) -> dict:
    """As a real controller writes it: no attribute of ours."""
    return {
        "devices": [
            {"ip": f"10.5.21.{9 + n // 4}", "server_port": 50052 + n % 4, "rdma_port": 7471 + n % 4,
             "device_id": 3 - n % 4, "ipulink_segment_id": 0, "routing_id": n, "ipu_arch_id": 2,
             "ipu_id": 3 - n % 4, "chip_id": "TAWY30", "gwsw_version": "2.3.1"}
            for n in range(ipus)
        ],
        "attributes": {"Fabric Reconfigurable": "true", "IPU version": "ipu2", "Num Replicas": "1",
                       "Routing Type": "DNC", "Sync Type": "c2-compatible"},
    }  # fmt: skip


def test_a_file_of_a_real_system_describes_the_partition(tmp_path, monkeypatch):
    path = write(tmp_path / "p64_ipuof.conf", foreign_config(8))
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    partition = devices.active_partition()
    assert partition.name == "p64_ipuof"
    assert [ipu.host for ipu in partition.ipus] == ["10.5.21.9"] * 4 + ["10.5.21.10"] * 4
    assert partition.ipus[0].board_type == "M2000"
    with devices.attach(8) as lease:
        assert lease.device.id == 14


def test_the_users_configuration_directory_is_used_in_name_order(tmp_path, monkeypatch):
    folder = Path.home() / ".ipuof.conf.d"
    write(folder / "b.conf", foreign_config(8))
    write(folder / "a.conf", foreign_config(4))
    assert [one.name for one in devices.partitions()] == ["a", "b"]


def test_a_configuration_file_wins_over_everything_else(tmp_path, monkeypatch):
    path = write(tmp_path / "mine.conf", foreign_config(4))
    monkeypatch.setenv("SOFTIPU_SYSTEM", "pod64")
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    assert devices.active_partition().name == "mine"


def test_softipu_system_wins_over_files_that_lie_around(monkeypatch):
    write(Path.home() / ".ipuof.conf.d" / "a.conf", foreign_config(4))
    monkeypatch.setenv("SOFTIPU_SYSTEM", "pod64")
    assert devices.active_partition().system == "pod64"


def test_a_missing_file_says_which(tmp_path, monkeypatch):
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(tmp_path / "gone.conf"))
    with pytest.raises(IpuofFileMissing, match=r"gone\.conf"):
        devices.active_partition()


def test_a_directory_in_place_of_a_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(tmp_path))
    with pytest.raises(IpuofFileMissing, match="cannot be read"):
        devices.active_partition()


def broken(**changes: object) -> dict:
    config = foreign_config(2)
    config["devices"][1].update(changes)
    return config


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("text", "expected an object"),
        ({"devices": {}}, "expected an object"),
        ({"devices": []}, "empty"),
        ({"devices": [1]}, "device 0 is not an object"),
        ({"devices": [{"device_id": 0}]}, '"ip" is None'),
        (broken(ip="../../etc/passwd"), "no address"),
        (broken(ip=""), "no address"),
        (broken(device_id="3"), '"device_id"'),
        (broken(device_id=True), '"device_id"'),
        (broken(device_id=-1), '"device_id"'),
        (broken(device_id=3), "listed twice"),
        (broken(server_port=1.5), '"server_port"'),
        (broken(gwsw_version=1), '"gwsw_version"'),
        (foreign_config() | {"attributes": []}, "attributes"),
        (foreign_config() | {"attributes": {"GCD Id": "x"}}, "GCD Id"),
        (foreign_config() | {"attributes": {"IPU version": "ipu9"}}, "ipu9"),
        (foreign_config() | {"attributes": {"Num Replicas": 1}}, "object of short texts"),
    ],
)
def test_a_malformed_file_says_where_it_is_wrong(tmp_path, monkeypatch, config, complaint):
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(write(tmp_path / "bad.conf", config)))
    with pytest.raises(IpuofFileMalformed, match=complaint) as caught:
        devices.active_partition()
    assert "bad.conf" in caught.value.what


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe\x00", b"[" * 100000])
def test_a_file_that_is_no_json_is_refused(tmp_path, monkeypatch, text):
    path = tmp_path / "bad.conf"
    path.write_bytes(text)
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    with pytest.raises(IpuofFileMalformed, match="not JSON"):
        devices.active_partition()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["devices", "attributes", "ip", "device_id", "x"]), inner)
    ),
    max_leaves=12,
)


@given(json_values)
def test_no_json_whatever_makes_the_reader_stumble(config):
    try:
        partition, _ = ipuof.parse(config, where="x", name="n", origin="o")
    except (IpuofFileMalformed, UnknownSystem):
        return
    assert partition.ipus


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_written_configuration_reads_back_as_the_same_ipus(name):
    before = whole_system(name)
    config = json.loads(ipuof.dumps(ipuof.build(before)))
    after, attributes = ipuof.parse(config, where="x", name="n", origin="embedded")
    assert after.ipus == before.ipus
    assert after.system == name
    assert attributes["IPU version"] == arch.system(name).chip.architecture


def test_the_text_has_the_real_tools_spacing():
    text = ipuof.dumps(ipuof.build(whole_system("m2000")))
    assert text.startswith('{\n    "devices":  [\n        {\n            "ip":  "198.18.1.1",')


def test_machines_lists_one_for_each_four_ipus():
    assert len(machines("bow-pod256")) == 64
