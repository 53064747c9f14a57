"""gc-monitor: the familiar tables, to the character, from 4 to 256 IPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from softipu import devices
from softipu.devices import usage
from softipu.devices.home import Home
from softipu.tools import cli, gc_monitor
from softipu.tools.table import centred, cut_left

WIDTH = 98


def output(capsys, *arguments: str) -> list[str]:
    assert gc_monitor.main(list(arguments)) == 0
    return capsys.readouterr().out.rstrip("\n").split("\n")


def real_config(path: Path) -> Path:
    """Four IPUs behind an address that is too long for its column."""
    entries = [
        {"ip": "10.131.100.130", "device_id": 3 - n, "serial": f"0134.000{2 - n // 2}.8210321"}
        for n in range(4)
    ]
    path.write_text(json.dumps({"devices": entries, "attributes": {"IPU version": "ipu2"}}))
    return path


def test_the_device_table_is_that_of_the_real_tool(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(real_config(tmp_path / "ipuof.conf")))
    lines = output(capsys)
    rule = "+-------------+--------------------+--------+--------------+----------+------+----+------+-------+"
    assert lines[:3] == [
        "+---------------+--------------------------------------------------------------------------------+",
        "|  gc-monitor   |              Partition: ipuof [active] has 4 reconfigurable IPUs               |",
        rule,
    ]
    assert lines[3] == (
        "|    IPU-M    |       Serial       |IPU-M SW|Server version|  ICU FW  | Type | ID | IPU# |Routing|"
    )
    assert lines[4] == rule
    assert lines[5].startswith("|...31.100.130| 0134.0002.8210321  |        |")
    assert lines[5].endswith("|M2000 | 0  |  3   |  DNC  |")
    assert lines[9] == rule


def test_with_nothing_attached_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(real_config(tmp_path / "ipuof.conf")))
    assert output(capsys)[-3:] == [
        "+--------------------------------------------------------------------------------------------------+",
        "|                             No attached processes in partition ipuof                             |",
        "+--------------------------------------------------------------------------------------------------+",
    ]


@pytest.mark.parametrize(
    ("system", "ipus"),
    [("m2000", 4), ("pod16", 16), ("pod64", 64), ("pod128", 128), ("pod256", 256)],
)
def test_widths_hold_from_4_to_256_ipus(monkeypatch, capsys, system, ipus):
    monkeypatch.setenv("SOFTIPU_SYSTEM", system)
    lines = output(capsys)[:-3]
    assert {len(line) for line in lines} == {WIDTH}
    assert sum(line.startswith("| 198.") or "|198." in line for line in lines) == ipus
    assert sum(line.startswith("+") for line in lines) == 3 + ipus // 4


def test_a_wider_board_name_widens_its_column_and_nothing_else(monkeypatch, capsys):
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod16")
    lines = output(capsys)[:-3]
    assert {len(line) for line in lines} == {WIDTH + 2}
    assert "|Bow-2000| 0  |" in lines[5]


def test_attached_processes_have_a_row_for_each_ipu(capsys):
    with devices.attach(2, command="python3") as lease:
        lines = output(capsys, "--no-card-info")
    assert lines[0].count("+") == 4
    assert len(set(map(len, lines))) == 1
    assert len(lines[0]) == 117
    assert "Attached processes in partition ipuof" in lines[1]
    heads = [cell.strip() for cell in lines[3].strip("|").split("|")]
    assert heads == ["PID", "Command", "Time", "User", "ID", "Clock", "Temp", "Temp", "Power"]
    first, second = ([c.strip() for c in line.strip("|").split("|")] for line in lines[5:7])
    assert first[0] == second[0] == str(lease.record.pid)
    assert first[1] == "python3"
    assert first[2] == "0s"
    assert first[3] == lease.record.user
    assert (first[4], second[4]) == ("0", "1")
    assert first[5] == "1850MHz"
    assert first[6:] == ["N/A", "N/A", "N/A"]
    assert second[6:] == ["N/A", "", ""]


def test_a_monitored_process_shows_modelled_sensors_and_says_so(monkeypatch, capsys):
    monkeypatch.setenv("GCDA_MONITOR", "1")
    with devices.attach(1):
        lines = output(capsys, "--no-card-info")
    cells = [cell.strip() for cell in lines[5].strip("|").split("|")]
    assert cells[6].endswith(" C")
    assert cells[8].endswith(" W")
    assert "modelled" in lines[-1]


def test_each_board_has_its_own_group_of_rows(capsys):
    with devices.attach(8):
        lines = output(capsys, "--no-card-info")
    assert sum(line.startswith("+") for line in lines) == 3 + 4


@pytest.mark.parametrize("columns", [20, 80, 117, 200])
def test_the_command_column_fills_the_terminal(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with devices.attach(1, command="x" * 300):
        lines = output(capsys, "--no-card-info")
    assert {len(line) for line in lines} == {max(columns, WIDTH)}
    assert "..." in lines[5]


def test_an_unreadable_record_is_shown_as_such(capsys):
    with devices.attach(1) as lease:
        usage.record_path(Home(), lease.device.ipus[0]).write_text("rubbish")
        lines = output(capsys, "--no-card-info")
    assert "no readable record" in lines[5]
    assert len(set(map(len, lines))) == 1


def test_ipus_attached_from_another_namespace_have_their_own_table(capsys):
    with devices.attach(1) as lease:
        path = usage.record_path(Home(), lease.device.ipus[0])
        body = json.loads(path.read_text()) | {"host": "gc-poplar-02", "boot_id": "x"}
        path.write_text(json.dumps(body))
        lines = output(capsys, "--no-card-info")
    assert "attached from other namespaces" in lines[1]
    assert {len(line) for line in lines} == {88}
    assert "gc-poplar-02" in lines[5]


def test_all_partitions_shows_the_others_without_the_active_mark(capsys, tmp_path):
    folder = Path.home() / ".ipuof.conf.d"
    folder.mkdir()
    real_config(folder / "a.conf")
    other = json.loads((folder / "a.conf").read_text())
    for entry in other["devices"]:
        entry["ip"] = "10.1.5.11"
    (folder / "b.conf").write_text(json.dumps(other))
    assert sum("Partition: " in line for line in output(capsys)) == 1
    titles = [line for line in output(capsys, "--all-partitions") if "Partition: " in line]
    assert "Partition: a [active] has 4" in titles[0]
    assert "Partition: b has 4" in titles[1]


def test_json_has_cards_with_ipus_and_texts_only(capsys):
    with devices.attach(2) as lease:
        body = json.loads("\n".join(output(capsys, "-j")))
    assert len(body["cards"]) == 4
    card = body["cards"][0]
    assert {"IPU-M", "Type", "ipus"} <= card.keys()
    used, free = card["ipus"][1], card["ipus"][2]
    assert used["PID"] == str(lease.record.pid)
    assert "PID" not in free
    assert {"ID", "PCIe ID", "Serial"} <= free.keys()
    assert all(isinstance(v, str) for ipu in card["ipus"] for v in ipu.values())


def test_a_partition_that_is_not_reconfigurable_is_not_called_so(monkeypatch, capsys, tmp_path):
    path = real_config(tmp_path / "p.conf")
    body = json.loads(path.read_text())
    body["attributes"] |= {"Fabric Reconfigurable": "false", "GCD Id": "1"}
    path.write_text(json.dumps(body))
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    assert "Partition: p (gcd:1) [active] has 4 IPUs" in output(capsys)[1]


def test_version_prints_the_sdk_level(capsys):
    assert output(capsys, "version")[0].startswith("Poplar version: 3.3.0")


def test_a_misspelt_option_is_a_usage_error_with_a_guess(capsys):
    with pytest.raises(SystemExit) as caught:
        gc_monitor.main(["--jsno"])
    assert caught.value.code == 2
    assert "Did you mean --json?" in capsys.readouterr().err


def test_an_error_exits_with_1_and_says_the_way_out(monkeypatch, capsys):
    monkeypatch.setenv("IPUOF_CONFIG_PATH", "/nonexistent.conf")
    assert cli.guarded(gc_monitor.main, []) == 1
    text = capsys.readouterr().err
    assert "SIPU-1102" in text
    assert "Way out:" in text


def test_cells_are_centred_with_odd_space_to_the_right():
    assert centred("M2000", 6) == "M2000 "
    assert centred("0", 4) == " 0  "
    assert cut_left("10.131.100.130", 13) == "...31.100.130"
