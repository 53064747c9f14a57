"""`vipu` as operators and their scripts use it, embedded and with a server."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from vipu_helpers import RunningServer, environment, fake_server, http, vipu

from softipu import __version__, devices, errors
from softipu.devices import ipuof
from softipu.tools.cli import guarded
from softipu.vipu import cli, connect, options


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The command in this process; usage errors end it with 2, as they end the program."""
    try:
        status = guarded(cli.main, arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    output = capsys.readouterr()
    return status, output.out, output.err


@pytest.fixture
def run(capsys):
    return lambda *arguments: call(capsys, *arguments)


def fails(result: tuple[int, str, str], kind: type[errors.SoftIPUError], status: int = 1) -> str:
    assert result[0] == status, result
    assert result[1] == "", "nothing may be written when a command fails"
    assert f"SIPU-{kind.code}:" in result[2], result[2]
    return result[2]


# --- embedded --------------------------------------------------------------------------------


def test_looking_at_a_fresh_system_creates_nothing(run, state: Path):
    status, out, err = run("list", "partitions")
    assert status == 0
    assert out.splitlines() == [
        " Partition   | Cluster  | ILDs | GW Routing | ILD Routing | Size | GCDs | State",
        "-" * 80,
    ]
    assert "whole system (16 IPUs) as partition ipuof" in err
    for arguments in (
        ["get", "partition", "ipuof"], ["list", "agents"], ["list", "ipu-attrs"],
        ["list", "clusters"], ["get", "agent", "ag0"], ["--server-version"],
        ["reset", "partition", "ipuof"],
    ):  # fmt: skip
        assert run(*arguments)[0] == 0
    assert not state.exists()


def test_the_life_of_an_embedded_partition(run):
    assert run("create", "partition", "p1", "--size", "4") == (
        0, "create partition (p1): success.\n", "",
    )  # fmt: skip
    assert run("list", "partition")[1] == (
        " Partition   | Cluster  | ILDs | GW Routing | ILD Routing | Size | GCDs | State\n"
        "---------------------------------------------------------------------------------\n"
        " p1          | c16      | 1    | DEFAULT    | DNC         | 4    | 1    | ACTIVE\n"
        "---------------------------------------------------------------------------------\n"
    )
    assert devices.active_partition().name == "p1"
    assert "ipuof" in fails(run("get", "partition", "ipuof"), errors.UnknownPartition)
    assert run("reset", "partition", "p1")[1] == "reset partition (p1): success.\n"
    assert run("delete", "partition", "p1")[1] == "remove partition (p1): success.\n"
    assert devices.active_partition().name == "ipuof"
    assert not (Path.home() / ".ipuof.conf.d").exists(), "programs need no file for these"


def test_the_table_of_a_large_fixed_partition_is_the_documented_one(run, monkeypatch):
    monkeypatch.setenv("SOFTIPU_SYSTEM", "pod64")
    assert run("create", "partition", "p64", "--size", "64")[0] == 0
    line = run("list", "partitions")[1].splitlines()[2]
    assert (
        line == " p64         | c64      | 1    | DEFAULT    | RINGSWNC    | 64   | 1    | ACTIVE"
    )


def test_long_names_widen_the_table_and_scripts_still_cut_it():
    name = "a-partition-with-a-rather-long-name"
    assert vipu("create", "partition", name, "--size", "2").returncode == 0
    script = f"{options.sys.executable} -m softipu.vipu.cli list partitions | grep ACTIVE | cut -d'|' -f1"
    done = subprocess.run(
        script, shell=True, capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.strip() == name
    rows = vipu("list", "partitions").stdout.splitlines()
    assert len({row.index("|") for row in rows if "|" in row}) == 1


def test_the_configuration_written_by_a_redirection_is_what_programs_use(run, monkeypatch):
    run("create", "partition", "p1", "--size", "8", "--num-gcds", "2", "--reconfigurable")
    status, text, err = run("get", "partition", "p1", "--gcd", "1", "--ipu-configs")
    assert (status, err) == (0, "")
    assert text.startswith('{\n    "devices":  [\n')
    folder = Path.home() / ".ipuof.conf.d"
    folder.mkdir()
    (folder / "p1.conf").write_text(text)
    partition = devices.active_partition()
    assert (partition.name, partition.gcd, len(partition.ipus)) == ("p1", 1, 4)
    assert partition.ipus[0].host == "198.19.16.2"
    assert run("get", "partition", "p1", "--ipuof-configs")[1].count('"ip"') == 4, (
        "GCD 0 is default"
    )
    fails(run("get", "partition", "p1", "--gcd", "2"), errors.InvalidRequest)
    fails(run("get", "partition", "p1", "--gcd", "2", "--ipuof-configs"), errors.InvalidRequest)


def test_the_whole_system_can_be_written_to_a_file_too(run):
    config = json.loads(run("get", "partition", "ipuof", "--ipuof-configs")[1])
    assert len(config["devices"]) == 16
    fails(
        run("get", "partition", "ipuof", "--gcd", "1", "--ipuof-configs"), errors.UnknownPartition
    )


def test_get_partition_lists_its_ipus(run):
    run("create", "partition", "p1", "--size", "4", "--gcds", "2", "--gcd-sync-replicas", "2")
    text = run("get", "partition", "p1", "--gcd", "1")[1]
    assert " GCDs              | 2\n" in text
    assert " Sync type         | pod-native-default\n" in text
    assert text.splitlines()[-3:-1] == [
        " 1   | 0  | 198.19.16.1 | 1",
        " 1   | 1  | 198.19.16.1 | 0",
    ]


def test_attributes_name_agent_and_ipu_once(run):
    lines = run("list", "ipu-attrs")[1].splitlines()
    assert lines[0] == " Agent      | IPU | Attribute                         | Value"
    assert lines[2] == " ag0        | 0   | board ipu index                   | 0"
    assert lines[3] == "            |     | board serial number               | 0001.0001.9004880"
    assert lines[8].startswith("            | 1   | board ipu index")
    assert sum(line.startswith(" ag") for line in lines) == 4


def test_allocations_are_the_clusters(run):
    assert run("list", "allocations")[1] == (
        "---------------------------------\n"
        " Allocation ID | Agents\n"
        "---------------------------------\n"
        " c16           | ag0 ag1 ag2 ag3\n"
        "---------------------------------\n"
    )
    run("create", "cluster", "low", "--agents", "ag0,ag1")
    assert run("create", "partition", "p", "--size", "1", "--allocation", "low")[0] == 0
    assert " Allocation ID | low\n" in run("get", "allocation", "low")[1]
    assert " Cluster ID | low\n" in run("get", "cluster", "low")[1]


def test_agents_and_clusters_come_and_go(run):
    made = run("create", "agent", "ag9", "--host", "10.1.5.10", "--port", "8081")
    assert made[1] == "create agent (ag9): success.\n"
    assert " Port                | 8081\n" in run("get", "agent", "ag9")[1]
    assert run("create", "cluster", "c", "--agents", "ag9")[1] == "create cluster (c): success.\n"
    fails(run("remove", "agent", "ag9"), errors.InUse)
    assert run("remove", "cluster", "c")[1] == "remove cluster (c): success.\n"
    assert run("remove", "agent", "ag9")[1] == "remove agent (ag9): success.\n"
    fails(run("get", "agent", "ag9"), errors.UnknownEntity)


def test_json_is_json(run):
    info = json.loads(run("create", "partition", "p1", "--size", "2", "--json")[1])
    assert json.loads(run("--json", "list", "partitions")[1]) == [info]
    assert json.loads(run("get", "partition", "p1", "--json")[1]) == info
    assert json.loads(run("list", "agents", "--json")[1])[0]["id"] == "ag0"
    assert json.loads(run("list", "ipu-attrs", "--json")[1])[0]["attributes"]["tiles"] == "1472"
    old = json.loads(run("--showjson", "list", "partition")[1])
    assert old[0]["partition"]["spec"] == {"ipus": [3, 2], "num_gcds": 1, "num_replicas": 1}
    domains = json.loads(run("--showjson", "list", "cluster")[1])[0]["spec"]["ipu_link_domains"]
    assert len(domains[0]["ipus"]) == 16
    assert json.loads(run("remove", "partition", "p1", "--json")[1])["id"] == "p1"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["create", "partition", "p", "--size", "3"], errors.InvalidIpuCount),
        (["create", "partition", "p", "--size", "32"], errors.NotEnoughIpus),
        (["create", "partition", "a/b", "--size", "1"], errors.InvalidRequest),
        (["create", "partition", "p", "--size", "1", "--cluster", "x"], errors.UnknownEntity),
        (["create", "partition", "p", "--size", "1", "--sync-type", "x"], errors.InvalidRequest),
        (["get", "partition", "nope"], errors.UnknownPartition),
        (["remove", "partition", "nope"], errors.UnknownPartition),
        (["remove", "partition", "ipuof"], errors.UnknownPartition),
        (["reset", "partition", "nope"], errors.UnknownPartition),
        (["create", "user", "alice", "--allocations", "c16"], errors.NotOnSoftwareIpu),
        (["discover", "agent"], errors.NotOnSoftwareIpu),
    ],
)
def test_wrong_requests_are_explained(run, state, arguments, kind):
    fails(run(*arguments), kind)


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["frobnicate"], ["list"], ["list", "users"], ["create", "partition", "p"],
        ["create", "partition", "p", "--size", "four"], ["list", "partitions", "--colour"],
        ["--api-port", "0", "list", "agents"], ["list", "agents", "--timeout", "-1"],
        ["create", "partition", "p", "--size", "1", "--cluster", "a", "--allocation", "b"],
    ],
)  # fmt: skip
def test_wrong_usage_is_status_2(run, arguments):
    fails(run(*arguments), errors.UsageError, status=2)


def test_an_unknown_system_is_said_so(run, monkeypatch):
    monkeypatch.setenv("SOFTIPU_SYSTEM", "pod5")
    fails(run("list", "partitions"), errors.UnknownSystem)


def test_a_foreign_state_directory_is_left_alone(run, state: Path):
    state.mkdir()
    (state / "thesis.tex").write_text("precious")
    for arguments in (["list", "partitions"], ["create", "partition", "p", "--size", "1"]):
        fails(run(*arguments), errors.StateForeign)
    assert [path.name for path in state.iterdir()] == ["thesis.tex"]


def test_a_damaged_database_is_left_alone(run, state: Path):
    run("create", "partition", "p", "--size", "1")
    database = state / "vipu" / "bow-pod16.sqlite"
    database.write_bytes(b"garbage" * 999)
    for arguments in (["list", "partitions"], ["create", "partition", "q", "--size", "1"]):
        assert str(database) in fails(run(*arguments), errors.DatabaseDamaged)
    assert database.read_bytes() == b"garbage" * 999


def test_a_partition_that_a_program_holds_is_kept_and_the_holder_named(run, hold):
    run("create", "partition", "p", "--size", "4")
    holder = hold(4)
    for verb in ("remove", "reset"):
        assert f"pid {holder.pid}" in fails(run(verb, "partition", "p"), errors.InUse)
    assert run("remove", "partition", "p", "--force")[0] == 0


# --- which controller ------------------------------------------------------------------------


def chosen(*arguments: str) -> str:
    return connect.connect(options.make_parser().parse_args(arguments)).address


def test_the_controller_comes_from_flag_variable_file_or_is_embedded(monkeypatch, tmp_path):
    assert chosen() == "embedded"
    config = tmp_path / "vipu-cli.hcl"
    config.write_text('# site\napi-host="from-file"\napi-port = 1111\napi-user-id="alice"\n')
    monkeypatch.setattr(connect, "SYSTEM_CONFIG", config)
    assert chosen() == "from-file:1111"
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "from-ipuof")
    assert chosen() == "from-ipuof:1111"
    monkeypatch.setenv("IPUOF_VIPU_API_PORT", "2222")
    assert chosen() == "from-ipuof:2222"
    monkeypatch.setenv("VIPU_CLI_API_HOST", "from-vipu")
    monkeypatch.setenv("VIPU_CLI_API_PORT", "3333")
    assert chosen() == "from-vipu:3333"
    assert chosen("-H", "flag") == "flag:3333"
    assert chosen("-H", "flag:4444") == "flag:4444"
    assert chosen("--api-host", "http://[::1]:5", "list", "agents") == "[::1]:5"
    assert chosen("list", "agents", "-H", "flag", "--api-port", "6") == "flag:6"
    assert chosen("list", "--api-port", "7", "agents", "-H", "flag") == "flag:7"
    assert chosen("-H", "embedded") == "embedded"
    other = tmp_path / "alice.vipu-cli.hcl"
    other.write_text('api-host = "alices"\n')
    for name in (
        "VIPU_CLI_API_HOST",
        "VIPU_CLI_API_PORT",
        "IPUOF_VIPU_API_HOST",
        "IPUOF_VIPU_API_PORT",
    ):
        monkeypatch.delenv(name)
    assert chosen("--config", str(other)) == "alices:8090"
    assert chosen("--config", str(other), "--api-port", "9") == "alices:9"


def test_a_port_alone_means_a_server_here():
    assert chosen("--api-port", "9") == "localhost:9"


@pytest.mark.parametrize(
    "content",
    ["api-host", 'api-host="a', "api-host=", "{", 'api-host="a b"', "api-port=http\napi-host=h"],
)
def test_a_configuration_file_that_cannot_be_understood_is_an_error(run, tmp_path, content):
    path = tmp_path / "x.hcl"
    path.write_text(content)
    fails(run("--config", str(path), "list", "partitions"), errors.InvalidSetting)
    fails(run("--config", str(tmp_path / "none"), "list", "partitions"), errors.InvalidSetting)


def test_contradicting_ports_are_refused(run):
    fails(run("-H", "h:1", "--api-port", "2", "list", "agents"), errors.InvalidSetting)


# --- with a server ---------------------------------------------------------------------------


def test_the_life_of_a_partition_on_a_server(server: RunningServer, run, monkeypatch):
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "127.0.0.1")
    monkeypatch.setenv("IPUOF_VIPU_API_PORT", str(server.port))
    status, out, err = run("create", "partition", "p1", "--size", "4", "--reconfigurable")
    assert (status, out) == (0, "create partition (p1): success.\n")
    path = Path.home() / ".ipuof.conf.d" / "p1.conf"
    assert str(path) in err
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_text() == run("get", "partition", "p1", "--ipuof-configs")[1]
    assert "ACTIVE" in run("list", "partitions")[1]
    assert run("--server-version")[1] == f"version: {__version__}\nhost: 127.0.0.1:{server.port}\n"
    monkeypatch.delenv("IPUOF_VIPU_API_HOST")
    assert devices.active_partition().name == "p1", "programs use the file without any variable"
    assert str(path) in run("remove", "partition", "p1", "-H", server.address)[2]
    assert not path.exists()


def test_files_of_others_are_never_touched(server: RunningServer, run):
    folder = Path.home() / ".ipuof.conf.d"
    folder.mkdir()
    path = folder / "p1.conf"
    path.write_text("mine")
    status, _, err = run("-H", server.address, "create", "partition", "p1", "--size", "1")
    assert (status, path.read_text()) == (0, "mine")
    assert "left alone" in err
    assert run("-H", server.address, "remove", "partition", "p1")[0] == 0
    assert path.read_text() == "mine"
    run("-H", server.address, "create", "partition", "p2", "--size", "1", "--no-ipuof-config")
    assert os.listdir(folder) == ["p1.conf"]


def test_a_file_for_another_server_survives_the_removal(server: RunningServer, run):
    run("-H", server.address, "create", "partition", "p1", "--size", "1")
    path = Path.home() / ".ipuof.conf.d" / "p1.conf"
    config = json.loads(path.read_text())
    config["attributes"][ipuof.ATTRIBUTE_SERVER] = "elsewhere:8090"
    path.write_text(json.dumps(config))
    assert run("-H", server.address, "remove", "partition", "p1")[0] == 0
    assert path.exists()


def test_a_home_that_cannot_be_written_does_not_undo_the_partition(server: RunningServer, run):
    (Path.home() / ".ipuof.conf.d").write_text("a file where the directory should be")
    status, out, err = run("-H", server.address, "create", "partition", "p1", "--size", "1")
    assert (status, out) == (0, "create partition (p1): success.\n")
    assert "could not be written" in err


def test_errors_of_the_server_read_as_the_embedded_ones(server: RunningServer, run):
    run("-H", server.address, "create", "partition", "p1", "--size", "8")
    assert "p1 (8)" in fails(
        run("-H", server.address, "create", "partition", "p2", "--size", "16"), errors.NoFreeIpus
    )
    fails(run("-H", server.address, "get", "partition", "p2"), errors.UnknownPartition)
    fails(
        run("-H", server.address, "create", "partition", "p2", "--size", "3"),
        errors.InvalidIpuCount,
    )
    fails(
        run("-H", server.address, "create", "partition", "p2", "--size", "1048576"),
        errors.InvalidRequest,
    )


def test_a_server_that_sees_the_leases_keeps_held_partitions(server: RunningServer, run, hold):
    run("-H", server.address, "create", "partition", "p1", "--size", "4", "--reconfigurable")
    holder = hold(2)
    message = fails(run("-H", server.address, "remove", "partition", "p1"), errors.InUse)
    assert f"pid {holder.pid}" in message
    assert (Path.home() / ".ipuof.conf.d" / "p1.conf").exists()
    assert run("-H", server.address, "remove", "partition", "p1", "--force")[0] == 0


def test_a_key_is_taken_from_flag_variable_or_file(run, monkeypatch, tmp_path):
    running = RunningServer(SOFTIPU_VIPU_ACCESS_KEY="s3cret-key")
    try:
        where = ("-H", running.address)
        fails(run(*where, "list", "partitions"), errors.AccessDenied)
        fails(run(*where, "--api-access-key", "x", "list", "partitions"), errors.AccessDenied)
        assert run(*where, "list", "partitions", "--api-access-key", "s3cret-key")[0] == 0
        config = tmp_path / "x.hcl"
        config.write_text(f'api-host = "{running.address}"\napi-access-key = "s3cret-key"\n')
        assert run("--config", str(config), "list", "partitions")[0] == 0
        monkeypatch.setenv("SOFTIPU_VIPU_ACCESS_KEY", "s3cret-key")
        assert run(*where, "list", "partitions")[0] == 0
    finally:
        running.close()


@pytest.mark.parametrize(
    "command", ["get partition p --ipuof-configs", "create partition p --size 1"]
)
def test_a_server_that_fails_leaves_nothing_half_written(run, command):
    answers = {
        b"": errors.ServerUnreachable,
        http(b'{"devices": [{"ip": "1', length=900): errors.ServerNonsense,
        http(b"<html>"): errors.ServerNonsense,
        http(b'{"devices": [], "attributes": {}}'): errors.ServerNonsense,
    }
    for raw, kind in answers.items():
        with fake_server(lambda connection, raw=raw: connection.sendall(raw)) as client:
            fails(run("-H", client.address, *command.split()), kind)
    assert not (Path.home() / ".ipuof.conf.d").exists()


def test_a_server_that_dies_after_the_creation_is_reported_with_the_success(run, controller):
    from softipu.devices.controller import PartitionRequest

    info = json.dumps(controller.create_partition(PartitionRequest("p", 1)).to_json()).encode()
    replies = [http(info, "201 Created"), b""]
    with fake_server(lambda connection: connection.sendall(replies.pop(0))) as client:
        status, out, err = run("-H", client.address, "create", "partition", "p", "--size", "1")
    assert (status, out) == (0, "create partition (p): success.\n")
    assert "no IPUoF file was written" in err


def test_a_closed_pipe_is_no_traceback():
    done = subprocess.run(
        f"{options.sys.executable} -m softipu.vipu.cli list ipu-attrs | head -1",
        shell=True, capture_output=True, text=True, env=environment(SOFTIPU_SYSTEM="bow-pod256"),
        check=True,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


def test_help_lists_the_commands():
    done = vipu("--help")
    assert done.returncode == 0
    for word in ("create", "get", "list", "remove", "reset", "--api-host", "--server-version"):
        assert word in done.stdout
    assert vipu("--version").stdout == f"vipu (softipu) {__version__}\n"
