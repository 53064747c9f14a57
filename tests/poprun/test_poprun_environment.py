"""What each instance is told: who it is, where its IPUs are, what the user hands on."""

from __future__ import annotations

import json

import pytest

from softipu.errors import InvalidSetting, MpiArgumentRefused, NetworkNotFound
from softipu.poprun import agent, config_file, environment, job, network, numa, options, partition
from softipu.poprun.log import Log
from softipu.poprun.partition import Use

SERVER = Use("p1", ("10.1.3.101", 8090), size=16, gcds=4)


def built(*words: str, use: Use = SERVER, environ: dict[str, str] | None = None) -> job.Job:
    chosen = options.parse([*words, "prog", "arg"])
    topology = job.topology(chosen)
    log = Log(chosen.verbosity)
    given = job.arguments(chosen, topology, log)
    return job.build(chosen, topology, given, use, log, environ or {"PATH": "/bin"})


def test_each_instance_is_told_exactly_who_it_is():
    found = built("--num-instances=4", "--num-replicas=8", "--ipus-per-replica=2")
    assert found.environments[3] == {
        "POPLAR_TARGET_OPTIONS": '{"ipuLinkDomainSize":"16","ipuLinkConfiguration":"default",'
        '"ipuLinkTopology":"mesh","gatewayMode":"true","instanceSize":"4"}',
        "IPUOF_VIPU_API_HOST": "10.1.3.101",
        "IPUOF_VIPU_API_PORT": "8090",
        "IPUOF_VIPU_API_PARTITION_ID": "p1",
        "IPUOF_VIPU_API_TIMEOUT": "120",
        "IPUOF_VIPU_API_GCD_ID": "3",
        "IPUOF_LOG_LEVEL": "WARN",
        "POPDIST_NUM_TOTAL_REPLICAS": "8",
        "POPDIST_NUM_IPUS_PER_REPLICA": "2",
        "POPDIST_NUM_LOCAL_REPLICAS": "2",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": "6",
        "POPDIST_LOCAL_INSTANCE_INDEX": "3",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "3",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    }


def test_where_instances_meet_is_a_store_that_the_agent_keeps():
    assert environment.meeting("10.0.0.1", 4711) == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4711",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def test_local_numbers_count_on_each_host():
    found = built("--host=localhost,192.0.2.7", "--num-instances=4", "--num-replicas=4")
    assert found.local == [True, False]
    assert [found.environments[n]["LOCAL_RANK"] for n in range(4)] == ["0", "1", "0", "1"]
    assert found.environments[2]["LOCAL_WORLD_SIZE"] == "2"


def test_other_hosts_get_path_and_settings_but_not_the_state_directory():
    environ = {
        "PATH": "/p", "PYTHONPATH": "/q", "SECRET": "s", "SOFTIPU_SYSTEM": "bow-pod64",
        "SOFTIPU_HOME": "/h", "NAMED": "n",
    }  # fmt: skip
    found = built(
        "--host=localhost,192.0.2.7", "--num-replicas=2", "--mpi-local-args=-x NAMED",
        environ=environ,
    )  # fmt: skip
    here, there = found.environments[0], found.environments[1]
    wanted = {"PATH": "/p", "PYTHONPATH": "/q", "SOFTIPU_SYSTEM": "bow-pod64", "NAMED": "n"}
    assert {name: there.get(name) for name in environ} == wanted | {
        "SECRET": None, "SOFTIPU_HOME": None,
    }  # fmt: skip
    assert "PATH" not in here  # it inherits all of it


def test_what_the_user_hands_on_wins_over_poprun_but_not_over_who_is_who():
    found = built(
        "--mpi-global-args=-x A=run -x B=run", "--mpi-local-args=-x B=each -x IPUOF_VIPU_API_TIMEOUT=600",
        "--instance-mpi-local-args=1:-x B=one", "--num-instances=2", "--num-replicas=2",
        use=Use("p1", ("h", 1), 2, 2),
    )  # fmt: skip
    assert [found.environments[n]["B"] for n in (0, 1)] == ["each", "one"]
    assert found.environments[0]["A"] == "run"
    assert found.environments[0]["IPUOF_VIPU_API_TIMEOUT"] == "600"
    with pytest.raises(MpiArgumentRefused, match="who each instance is"):
        built("--mpi-local-args=-x RANK=7")


def test_local_arguments_for_the_whole_run_win_over_the_global_ones():
    found = built(
        "--mpi-global-args=--wdir /one --bind-to none --timeout 5",
        "--mpi-local-args=--wdir /two --bind-to numa",
    )
    assert (found.directory, found.numa, found.timeout) == ("/two", True, 5.0)


def test_a_variable_that_is_not_set_is_a_warning(capsys):
    built("--mpi-local-args=-x NOT_THERE")
    assert "POPRUN [W] -x NOT_THERE: the variable is not set here" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1:-x A", "0:-x A\n"])
def test_arguments_for_an_instance_need_the_instance(text):
    if text.startswith("1"):
        with pytest.raises(MpiArgumentRefused, match="no instance 1"):
            built(f"--instance-mpi-local-args={text}")
    else:
        built(f"--instance-mpi-local-args={text}")


def test_the_timeout_of_the_server_is_handed_on():
    assert built("--vipu-server-timeout=33").environments[0]["IPUOF_VIPU_API_TIMEOUT"] == "33"
    environ = {"IPUOF_VIPU_API_TIMEOUT": "44"}
    found = built(environ=environ).environments[0]
    assert found["IPUOF_VIPU_API_TIMEOUT"] == "44"


def test_the_timeout_of_a_file_of_options_is_handed_on(tmp_path):
    path = tmp_path / "run.conf"
    path.write_text("vipu-server-timeout=7\n")
    environ = {"IPUOF_VIPU_API_TIMEOUT": "44"}
    found = built(f"--import-config={path}", environ=environ).environments[0]
    assert found["IPUOF_VIPU_API_TIMEOUT"] == "7"


def test_a_configuration_that_names_no_timeout_leaves_it_to_the_environment(tmp_path):
    path = str(tmp_path / "run.conf")
    config_file.write(path, options.parse(["prog"]), overwrite=False)
    environ = {"IPUOF_VIPU_API_TIMEOUT": "44"}
    found = built(f"--import-config={path}", environ=environ).environments[0]
    assert found["IPUOF_VIPU_API_TIMEOUT"] == "44"


def test_target_options_of_the_user_win():
    environ = {"POPLAR_TARGET_OPTIONS": '{"gatewayMode": "false"}'}
    found = json.loads(built(environ=environ).environments[0]["POPLAR_TARGET_OPTIONS"])
    assert found["gatewayMode"] == "false"
    assert found["ipuLinkTopology"] == "mesh"
    with pytest.raises(InvalidSetting, match="POPLAR_TARGET_OPTIONS"):
        built(environ={"POPLAR_TARGET_OPTIONS": "mesh"})


def test_large_fixed_partitions_are_rings():
    use = Use("p64", ("h", 8090), 64, 1, reconfigurable=False, rings=True)
    found = built("--num-replicas=16", "--ipus-per-replica=4", use=use)
    assert found.environments[0]["POPLAR_TARGET_OPTIONS"] == (
        '{"ipuLinkDomainSize":"64","ipuLinkConfiguration":"slidingWindow",'
        '"ipuLinkTopology":"torus","gatewayMode":"true","instanceSize":"64"}'
    )


def test_offline_programs_run_on_the_model_of_each_framework():
    found = built(
        "--offline-mode=yes", use=Use(), environ={"TF_POPLAR_FLAGS": "--show_progress_bar=false"}
    ).environments[0]
    assert found["POPTORCH_IPU_MODEL"] == found["POPLAR_IPUMODEL"] == "1"
    assert found["TF_POPLAR_FLAGS"] == "--show_progress_bar=false --use_ipu_model"
    assert not [name for name in found if name.startswith("IPUOF_VIPU")]


def test_the_executable_cache_is_for_all_frameworks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = built("--executable-cache-path=cache").environments[0]
    path = str(tmp_path / "cache")
    assert found["POPDIST_EXECUTABLE_CACHE_PATH"] == found["POPTORCH_CACHE_DIR"] == path
    assert found["TF_POPLAR_FLAGS"] == f"--executable_cache_path={path}"
    mine = built(
        "--executable-cache-path=cache",
        environ={"POPTORCH_CACHE_DIR": "/mine", "TF_POPLAR_FLAGS": "--executable_cache_path=/m"},
    ).environments[0]
    assert "POPTORCH_CACHE_DIR" not in mine
    assert "TF_POPLAR_FLAGS" not in mine


def test_offline_and_cache_share_the_flags_of_tensorflow(tmp_path):
    found = built(
        "--offline-mode", f"--executable-cache-path={tmp_path}", use=Use(),
        environ={"TF_POPLAR_FLAGS": "--null_data_feed"},
    ).environments[0]  # fmt: skip
    assert found["TF_POPLAR_FLAGS"].split() == [
        "--null_data_feed", f"--executable_cache_path={tmp_path}", "--use_ipu_model",
    ]  # fmt: skip


def test_instances_do_not_inherit_who_somebody_else_was():
    environ = {
        "RANK": "3", "POPDIST_NUM_TOTAL_REPLICAS": "9", "TORCHELASTIC_RUN_ID": "x",
        "IPUOF_CONFIG_PATH": "/f", "HOME": "/h",
    }  # fmt: skip
    assert sorted(built(environ=environ).unset) == [
        "IPUOF_CONFIG_PATH", "POPDIST_NUM_TOTAL_REPLICAS", "RANK", "TORCHELASTIC_RUN_ID",
    ]  # fmt: skip
    kept = built(use=Use("f", from_file=True, size=4), environ=environ)
    assert "IPUOF_CONFIG_PATH" not in kept.unset
    assert not [name for name in kept.environments[0] if name.startswith("IPUOF")]


def test_an_order_for_this_host_never_expires_and_one_for_another_does():
    found = built("--host=localhost,192.0.2.7", "--num-replicas=2", "--host-timeout=7")
    assert found.order(0)["silence"] > 1e6
    assert found.order(1)["silence"] == 7.0
    assert [entry["index"] for entry in found.order(1)["instances"]] == [1]
    json.dumps(found.order(1))


def test_the_remote_shell_is_quoted_and_cannot_ask_questions():
    found = built("--host=192.0.2.7", "--mpi-global-args=--prefix '/opt/my env'")
    words = found.shell.command("192.0.2.7")
    assert words[0] == "ssh"
    assert "-oBatchMode=yes" in words
    assert "-oConnectTimeout=120" in words
    assert words[-2:] == ["192.0.2.7", "'/opt/my env/bin/python3' -m softipu.poprun.agent"]


def test_srun_in_place_of_ssh_gets_plain_words():
    found = built("--host=192.0.2.7", "--mpi-global-args=--mca plm_rsh_agent 'srun --overlap -w'")
    words = found.shell.command("n1")
    assert words[:4] == ["srun", "--overlap", "-w", "n1"]
    assert words[-2:] == ["-m", "softipu.poprun.agent"]


def test_a_dry_run_shows_words_that_a_shell_can_read():
    import shlex

    line = job.shown(built("--mpi-local-args=-x 'A=two words'"))[0]
    words = shlex.split(line)
    assert "A=two words" in words
    assert words[-2:] == ["prog", "arg"]


# --- the network between hosts ----------------------------------------------------------------

KNOWN = [
    network.Interface("lo", "127.0.0.1"),
    network.Interface("eno1", "10.5.3.2"),
    network.Interface("ib0", "192.168.1.2"),
]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [(["eno1"], "eno1"), (["10.5.0.0/16"], "eno1"), (["nope", "ib0"], "ib0"),
     (["192.168.1.0/24"], "ib0"), (["192.168.1.2"], "ib0")],
)  # fmt: skip
def test_a_network_or_a_name_means_an_interface(wanted, name):
    assert network.choose(wanted, KNOWN).name == name


def test_a_network_that_no_interface_has_is_an_error_that_lists_them():
    with pytest.raises(NetworkNotFound, match="eno1 10.5.3.2"):
        network.choose(["172.16.0.0/12"], KNOWN)
    with pytest.raises(NetworkNotFound, match="not a network"):
        built("--host=192.0.2.7", "--host-subnet=10.5.0/99")


def test_the_address_that_ssh_came_to_counts_on_its_own_host_only():
    """srun hands on the variable of the shell that it was called from, on every host."""
    own = [one.address for one in network.interfaces() if not network.is_loopback(one.address)]
    for address in own:
        assert agent._reached_at({"SSH_CONNECTION": f"192.0.2.9 50000 {address} 22"}) == address
    for address in ("192.0.2.1", "127.0.0.1", "nonsense:", ""):
        assert agent._reached_at({"SSH_CONNECTION": f"192.0.2.9 50000 {address} 22"}) == ""
    assert agent._reached_at({}) == ""


def test_this_host_has_a_loopback_interface():
    assert network.with_address("127.0.0.1", network.interfaces()).name == "lo"
    assert network.towards("127.0.0.1") == "127.0.0.1"
    assert network.towards("no-such-host.invalid") is None


# --- NUMA -------------------------------------------------------------------------------------


def test_instances_are_bound_to_nodes_round_robin(tmp_path):
    for name, cpus in (("node0", "0-3\n"), ("node1", "4-5,7\n"), ("node2", "\n"), ("nodex", "9")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(cpus)
    known = numa.nodes(tmp_path, set(range(16)))
    assert known == [(0, 1, 2, 3), (4, 5, 7)]
    assert numa.binding(3, known) == [(0, 1, 2, 3), (4, 5, 7), (0, 1, 2, 3)]
    assert numa.threads(4, known, bound=True) == 1
    assert numa.threads(2, known, bound=False) == 3
    assert numa.nodes(tmp_path, {5}) == [(5,)]
    assert numa.nodes(tmp_path / "none", {1, 0}) == [(0, 1)]


def test_a_partition_with_one_gcd_is_shared_by_all_instances():
    assert partition.Use("p", gcds=1).gcd_of(3) == 0
    assert partition.Use("p", gcds=4).gcd_of(3) == 3
