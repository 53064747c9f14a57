"""Programs and a V-IPU server: which partition they get, and what happens when the two disagree."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from vipu_helpers import RunningServer, fake_server, http, vipu

from softipu import devices, errors
from softipu.devices.controller import PartitionRequest
from softipu.tools import cli, gc_monitor


@pytest.fixture
def use_server(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> RunningServer:
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "127.0.0.1")
    monkeypatch.setenv("IPUOF_VIPU_API_PORT", str(server.port))
    return server


def create(server: RunningServer, name: str, size: int = 4, **options) -> None:
    server.client().create_partition(
        PartitionRequest(name, size, **({"reconfigurable": True} | options))
    )


def test_a_program_uses_the_servers_partition(use_server, monkeypatch):
    create(use_server, "p1")
    create(use_server, "p2", 8)
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p2")
    with devices.attach(8) as lease:
        assert lease.partition.name == "p2"
        assert lease.partition.origin == use_server.address
    assert [one.name for one in devices.partitions()] == ["p2", "p1"]


def test_the_only_partition_needs_no_name(use_server):
    create(use_server, "only")
    assert devices.active_partition().name == "only"


@pytest.mark.parametrize("names", [(), ("a", "b")])
def test_no_or_several_partitions_must_be_chosen_from(use_server, names):
    for name in names:
        create(use_server, name)
    with pytest.raises(errors.AmbiguousPartition, match=", ".join(names) or "no partition"):
        devices.active_partition()


def test_an_unknown_partition_is_an_error(use_server, monkeypatch):
    create(use_server, "p1")
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "p9")
    with pytest.raises(errors.UnknownPartition, match="p9"):
        devices.active_partition()


def test_a_gcd_is_a_part_of_its_partition(use_server, monkeypatch, capsys):
    create(use_server, "p", 8, num_gcds=2)
    monkeypatch.setenv("IPUOF_VIPU_API_GCD_ID", "1")
    whole = [ipu[:2] for ipu in use_server.client().partition_info("p").ipus]
    assert [(i.host, i.device_id) for i in devices.active_partition().ipus] == whole[4:]
    gc_monitor.main([])
    assert "Partition: p (gcd:1) [active] has 4 reconfigurable IPUs" in capsys.readouterr().out


def test_the_file_that_vipu_prints_is_one_that_programs_use(server, tmp_path, monkeypatch):
    create(server, "P")
    text = vipu("get", "partition", "P", "-H", server.address, "--gcd", "0", "--ipu-configs").stdout
    folder = Path.home() / ".ipuof.conf.d"
    folder.mkdir()
    (folder / "P.conf").write_text(text)
    assert devices.active_partition().name == "P"
    with devices.attach(4) as lease:
        assert len(lease.ids) == 4


def test_a_partition_made_with_vipu_is_found_without_more_ado(server):
    answer = vipu("create", "partition", "P", "--size", "4", "-H", server.address)
    assert answer.stdout == "create partition (P): success.\n"
    assert devices.active_partition().name == "P"
    assert vipu("remove", "partition", "P", "-H", server.address).returncode == 0
    assert devices.active_partition().name == "ipuof"


def stale_file(server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    create(server, "P")
    path = tmp_path / "P.conf"
    path.write_text(json.dumps(server.client().ipuof_config("P")))
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    assert devices.active_partition().name == "P"
    server.client().remove_partition("P")
    return path


def test_a_file_whose_partition_is_gone_is_refused(server, tmp_path, monkeypatch):
    stale_file(server, tmp_path, monkeypatch)
    with pytest.raises(errors.IpuofDisagrees, match="no such partition"):
        devices.active_partition()


def test_a_file_whose_partition_now_has_other_ipus_is_refused(server, tmp_path, monkeypatch):
    stale_file(server, tmp_path, monkeypatch)
    create(server, "first", 4)
    create(server, "P", 4)
    with pytest.raises(errors.IpuofDisagrees, match="different IPUs"):
        devices.active_partition()


def test_a_file_outlives_its_server_with_a_warning(server, tmp_path, monkeypatch, capsys):
    path = stale_file(server, tmp_path, monkeypatch)
    server.kill()
    assert devices.active_partition().name == "P"
    assert f"{path} was used unchecked" in capsys.readouterr().err


def test_a_file_and_a_server_variable_that_disagree_are_refused(use_server, tmp_path, monkeypatch):
    create(use_server, "P")
    create(use_server, "Q")
    path = tmp_path / "P.conf"
    path.write_text(json.dumps(use_server.client().ipuof_config("P")))
    monkeypatch.setenv("IPUOF_CONFIG_PATH", str(path))
    assert devices.active_partition().name == "P"
    monkeypatch.setenv("IPUOF_VIPU_API_PARTITION_ID", "Q")
    with pytest.raises(errors.IpuofDisagrees):
        devices.active_partition()


def test_a_server_that_is_down_is_an_error_with_the_way_out(monkeypatch, capsys):
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "127.0.0.1")
    monkeypatch.setenv("IPUOF_VIPU_API_PORT", "9")
    assert cli.guarded(gc_monitor.main, []) == 1
    text = capsys.readouterr().err
    assert "SIPU-1404" in text
    assert "vipu-server" in text


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda connection: time.sleep(5), errors.ServerTimeout),
        (lambda connection: connection.sendall(http(b"<html>")), errors.ServerNonsense),
        (lambda connection: connection.sendall(http(b"{}")), errors.ServerNonsense),
        (lambda connection: connection.sendall(b"\x00\xff" * 99), errors.ServerNonsense),
        (lambda connection: connection.close(), errors.ServerUnreachable),
    ],
)
def test_a_slow_or_confused_server_is_an_error(monkeypatch, answer, kind):
    with fake_server(answer) as fake:
        monkeypatch.setenv("IPUOF_VIPU_API_HOST", "127.0.0.1")
        monkeypatch.setenv("IPUOF_VIPU_API_PORT", str(fake.port))
        monkeypatch.setenv("IPUOF_VIPU_API_TIMEOUT", "0.5")
        with pytest.raises(kind):
            devices.active_partition()


def test_a_server_with_a_key_needs_it_from_programs_too(state, tmp_path, monkeypatch):
    key = tmp_path / "key"
    key.write_text("s3cret-key\n")
    key.chmod(0o600)
    server = RunningServer("--access-key-file", str(key))
    try:
        server.client(access_key="s3cret-key").create_partition(PartitionRequest("p", 4))
        monkeypatch.setenv("IPUOF_VIPU_API_HOST", server.address)
        with pytest.raises(errors.AccessDenied):
            devices.active_partition()
        monkeypatch.setenv("SOFTIPU_VIPU_ACCESS_KEY", "s3cret-key")
        assert devices.active_partition().name == "p"
    finally:
        server.close()


def test_a_partition_in_use_is_not_removed_without_force(use_server, hold):
    create(use_server, "p")
    holder = hold(4)
    answer = vipu("remove", "partition", "p", "-H", use_server.address)
    assert answer.returncode == 1
    assert "SIPU-1403" in answer.stderr
    assert f"pid {holder.pid}" in answer.stderr
    forced = vipu("remove", "partition", "p", "--force", "-H", use_server.address)
    assert forced.returncode == 0
