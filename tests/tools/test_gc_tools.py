"""gc-info, gc-inventory, gc-reset and gcipuinfo: what scripts list, grep and import."""

from __future__ import annotations

import importlib
import json
import re

import pytest

import gcipuinfo
from softipu import devices
from softipu.devices import usage
from softipu.devices.home import Home
from softipu.tools import cli, gc_info, gc_inventory, gc_reset


def output(capsys, tool, *arguments: str) -> str:
    assert cli.guarded(tool.main, list(arguments)) == 0
    return capsys.readouterr().out


def test_list_shows_single_ipus_then_groups_with_dnc_ids(monkeypatch, capsys):
    monkeypatch.setenv("SOFTIPU_SYSTEM", "m2000")
    lines = output(capsys, gc_info, "-l").splitlines()
    assert lines[:3] == [
        "Graphcore device listing:",
        "Partition: ipuof [active]",
        "-+- Id: [0], target: [Fabric], IPU-M host: [198.18.1.1], IPU#: [3]",
    ]
    start = lines.index("-+- Id: [5], target: [Multi IPU]")
    assert lines[start + 1 : start + 3] == [
        " |--- Id: [2], DNC Id: [0], IPU-M host: [198.18.1.1], IPU#: [1]",
        " |--- Id: [3], DNC Id: [1], IPU-M host: [198.18.1.1], IPU#: [0]",
    ]
    assert lines[-5] == "-+- Id: [6], target: [Multi IPU]"


def test_a_pcie_card_is_listed_by_its_pci_domain(monkeypatch, capsys):
    monkeypatch.setenv("SOFTIPU_SYSTEM", "c600")
    assert "-+- Id: [0], target: [PCIe], PCI Domain: [0000:" in output(capsys, gc_info, "-l")


def test_device_info_lists_attributes_in_the_order_scripts_know(capsys):
    lines = output(capsys, gc_info, "-d", "0", "-i").splitlines()
    assert lines[:3] == ["Device Info:", "  id: 0", "  target: Fabric"]
    keys = [line.strip().split(":")[0] for line in lines[3:]]
    assert keys == sorted(keys)
    assert "  clock: 1850MHz" in lines
    assert "  remote buffers supported: 1" in lines


def test_device_info_of_a_held_ipu_names_the_process(capsys):
    with devices.attach(1) as lease:
        text = output(capsys, gc_info, "-d", "0", "-i")
    assert f"user process id: {lease.record.pid}" in text
    assert re.search(r"process start time: \d{8}T\d{6}Z", text)


def test_a_group_reports_its_size(capsys):
    text = output(capsys, gc_info, "-d", "30", "-i")
    assert "target: Multi IPU" in text
    assert "number of ipus: 16" in text
    assert output(capsys, gc_info, "-d", "30", "--ipu-count") == "16\n"


def test_short_questions_have_short_answers(capsys):
    assert output(capsys, gc_info, "-d", "0", "--ipu-arch") == "ipu2\n"
    assert output(capsys, gc_info, "-d", "0", "--tile-clock-speed") == "1850MHz\n"


@pytest.mark.parametrize(
    "arguments",
    [["--tile-overview"], ["--tile-status", "0"], ["--dump-mem", "0", "0", "4"], ["--xb-status"],
     ["--gsp-status"], ["--pci-status"]],
)  # fmt: skip
def test_options_that_read_hardware_say_not_on_a_software_ipu(capsys, arguments):
    assert cli.guarded(gc_info.main, ["-d", "0", *arguments]) == 1
    error = capsys.readouterr().err
    assert "SIPU-1501" in error
    assert "not on a software IPU" in error


def test_an_unknown_device_exits_with_1(capsys):
    assert cli.guarded(gc_info.main, ["-d", "99", "-i"]) == 1
    assert "SIPU-1201" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["-i"], ["-d", "x", "-i"], ["--nonsense"]])
def test_wrong_usage_exits_with_2(arguments):
    with pytest.raises(SystemExit) as caught:
        gc_info.main(arguments)
    assert caught.value.code == 2


def test_inventory_can_be_grepped(capsys):
    text = output(capsys, gc_inventory)
    assert len(re.findall(r"ipu utilisation:", text)) == 16
    assert len(re.findall(r"^  id: ", text, re.M)) == 16


@pytest.mark.parametrize("flag", ["-j", "-2", "--json"])
def test_inventory_json_has_a_list_of_devices(capsys, flag):
    body = json.loads(output(capsys, gc_inventory, flag))
    assert len(body["devices"]) == 16
    assert body["devices"][0]["remote buffers"] == "1"
    assert int(body["devices"][0]["hexoatt total size (bytes)"]) > 0


def test_reset_is_refused_while_somebody_holds_the_device(hold, capsys):
    holder = hold(2)
    assert cli.guarded(gc_reset.main, ["-d", "1"]) == 1
    assert f"pid {holder.pid}" in capsys.readouterr().err
    assert cli.guarded(gc_reset.main, []) == 1
    assert cli.guarded(gc_reset.main, ["-d", "2"]) == 0


def test_reset_removes_what_a_killed_holder_left(hold):
    holder = hold(1)
    holder.kill()
    holder.wait()
    record = usage.record_path(Home(), devices.active_partition().ipus[0])
    assert record.exists()
    assert gc_reset.main(["-d", "0"]) == 0
    assert not record.exists()


# --- gcipuinfo ----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fresh_module():
    importlib.reload(gcipuinfo)


def test_gcipuinfo_answers_the_questions_of_monitoring_scripts():
    with devices.attach(1) as lease:
        inventory = gcipuinfo.gcipuinfo()
        found = [dict(device) for device in inventory.getDevices()]
        assert len(found) == 16
        assert int(found[0]["clock"][:-3]) == 1850
        assert found[0][gcipuinfo.UserProcessId] == str(lease.record.pid)
        assert inventory.getNamedAttributeForDevice(0, gcipuinfo.IpuPower) == "N/A"
        assert inventory.getNamedAttributeForAll("ipu utilisation") == ["0.00%"] * 16
        assert json.loads(inventory.getDevicesAsJSON()) == found


def test_gcipuinfo_shows_the_moment_of_construction_unless_told_to_update():
    inventory = gcipuinfo.gcipuinfo()
    with devices.attach(1):
        assert inventory.getNamedAttributeForDevice(0, "user process id") == "N/A"
        assert inventory.updateData()
        assert inventory.getNamedAttributeForDevice(0, "user process id") != "N/A"
    inventory.setUpdateMode(True)
    assert inventory.getNamedAttributeForDevice(0, "user process id") == "N/A"


def test_gcipuinfo_power_of_a_monitored_process_carries_its_unit(monkeypatch):
    monkeypatch.setenv("GCDA_MONITOR", "1")
    with devices.attach(1):
        power = gcipuinfo.gcipuinfo().getNamedAttributeForDevice(0, gcipuinfo.IpuPower)
        assert float(power.removesuffix(" W")) > 0


def test_gcipuinfo_has_one_discovery_mode_per_process():
    gcipuinfo.gcipuinfo(gcipuinfo.DiscoverAllPartitionIPUs)
    with pytest.raises(RuntimeError, match="one mode per process"):
        gcipuinfo.gcipuinfo()


def test_gcipuinfo_refuses_an_unknown_device():
    with pytest.raises(IndexError, match="0 to 15"):
        gcipuinfo.gcipuinfo().getNamedAttributeForDevice(16, "clock")
