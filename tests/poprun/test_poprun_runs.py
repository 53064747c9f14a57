"""Programs run by poprun: what they see, what is printed, how the run ends."""

from __future__ import annotations

import ast
import os
import socket
import sys
from pathlib import Path

import pytest
from poprun_helpers import poprun

from softipu.vipu.local import LocalController

SHOW = "import os; print({k: os.environ[k] for k in sorted(os.environ)})"


def test_each_instance_runs_with_its_own_variables():
    ran = poprun("--num-instances=2", "--num-replicas=4", sys.executable, "-c", SHOW)
    assert ran.returncode == 0, ran.stderr
    seen = sorted(
        (ast.literal_eval(line) for line in ran.stdout.splitlines()), key=lambda e: e["RANK"]
    )
    assert [one["RANK"] for one in seen] == ["0", "1"]
    assert [one["POPDIST_REPLICA_INDEX_OFFSET"] for one in seen] == ["0", "2"]
    assert {one["MASTER_ADDR"] for one in seen} == {"127.0.0.1"}
    assert len({one["MASTER_PORT"] for one in seen}) == 1
    assert {one["GLOO_SOCKET_IFNAME"] for one in seen} == {"lo"}
    assert all(int(one["OMP_NUM_THREADS"]) >= 1 for one in seen)
    assert all("TORCHELASTIC_SIGNALS_TO_HANDLE" not in one for one in seen)


REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
print("sum", value.item())
dist.destroy_process_group()
"""


def test_instances_reduce_together_with_plain_torch(tmp_path):
    script = tmp_path / "reduce.py"
    script.write_text(REDUCE)
    ran = poprun("--num-instances=3", "--num-replicas=3", "--tag-output", "python3", script)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [f"[1,{n}]<stdout>:sum 6.0" for n in range(3)]


def test_lines_of_instances_never_mix():
    code = (
        "import os, sys\n"
        "letter = 'ab'[int(os.environ['RANK'])]\n"
        "for n in range(400):\n"
        "    sys.stdout.write(letter * 50); sys.stdout.flush()\n"
        "    sys.stdout.write(letter * 50 + '\\n'); sys.stdout.flush()\n"
        "sys.stderr.write('last words')\n"
    )
    ran = poprun(
        "--num-instances=2", "--num-replicas=2", "--tag-output", sys.executable, "-c", code
    )
    assert ran.returncode == 0
    lines = ran.stdout.splitlines()
    assert sorted(lines) == [f"[1,{n}]<stdout>:{'ab'[n] * 100}" for n in (0, 1) for _ in range(400)]
    assert sorted(ran.stderr.splitlines()) == [f"[1,{n}]<stderr>:last words" for n in (0, 1)]


def test_much_output_arrives_whole():
    code = "import sys; sys.stdout.write(''.join(f'{n}\\n' for n in range(300000)))"
    ran = poprun("--num-instances=2", "--num-replicas=2", sys.executable, "-c", code)
    assert ran.returncode == 0
    numbers = sorted(map(int, ran.stdout.split()))
    assert numbers == sorted([*range(300000), *range(300000)])


def test_only_one_instance_is_heard_but_a_failure_shows_its_last_lines():
    code = (
        "import os, sys\n"
        "rank = os.environ['RANK']\n"
        "print('this is', rank)\n"
        "sys.exit('the reason' if rank == '1' else 0)"
    )
    ran = poprun(
        "--num-instances=2", "--num-replicas=2", "--only-output-from-instance=0",
        sys.executable, "-c", code,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "this is 1" not in ran.stdout
    assert "The last lines of instance 1:\nthis is 1\nthe reason" in ran.stderr
    assert "SIPU-7108" in ran.stderr


def test_the_exit_code_is_that_of_the_first_failure():
    code = "import os, sys, time; sys.exit(7) if os.environ['RANK'] == '2' else time.sleep(600)"
    ran = poprun("--num-instances=4", "--num-replicas=4", sys.executable, "-c", code)
    assert ran.returncode == 7
    assert "Instance 2 on host localhost (pid " in ran.stderr
    assert "ended with exit code 7; the other 3 were ended" in ran.stderr


def test_an_instance_that_ignores_sigterm_is_killed_after_the_grace():
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "time.sleep(3 if os.environ['RANK'] == '0' else 600)\n"
        "sys.exit(3)"
    )
    ran = poprun(
        "--num-instances=2", "--num-replicas=2", "--stop-grace=1", sys.executable, "-c", code
    )
    assert ran.returncode == 3


def test_a_program_that_is_not_there_is_an_error_that_names_the_host():
    ran = poprun("no-such-program-anywhere")
    assert ran.returncode == 1
    assert "Host localhost: There is no program 'no-such-program-anywhere'" in ran.stderr
    assert "SIPU-7110" in ran.stderr


def test_a_script_without_its_interpreter_gets_a_hint(tmp_path):
    (tmp_path / "train.py").write_text("print('hello')")
    ran = poprun(f"--mpi-global-args=--wdir {tmp_path}", "train.py")
    assert ran.returncode == 1
    assert "poprun [options] python3 train.py" in ran.stderr


def test_scripts_run_in_the_working_directory_or_the_one_that_is_named(tmp_path):
    script = tmp_path / "where.sh"
    script.write_text("#!/bin/sh\necho I am in $(pwd) with $1 and read $(wc -c)\n")
    script.chmod(0o755)
    ran = poprun(f"--mpi-global-args=--wdir {tmp_path}", "./where.sh", "an argument")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"I am in {tmp_path} with an argument and read 0\n"
    missing = poprun(f"--mpi-global-args=--wdir {tmp_path}/none", "true")
    assert missing.returncode == 1
    assert f"The working directory {tmp_path}/none cannot be entered" in missing.stderr


def test_variables_reach_the_instances_they_are_meant_for():
    ran = poprun(
        "--num-instances=2", "--num-replicas=2", "--tag-output", "--mpi-local-args=-x A='for all'",
        "--instance-mpi-local-args=1:-x B=one", "sh", "-c", "echo $A/$B/$HIDDEN",
        HIDDEN="inherited",
    )  # fmt: skip
    assert sorted(ran.stdout.splitlines()) == [
        "[1,0]<stdout>:for all//inherited", "[1,1]<stdout>:for all/one/inherited",
    ]  # fmt: skip


def test_what_is_for_the_whole_run_may_stand_among_the_local_arguments():
    """As in the commands that public examples give."""
    ran = poprun(
        "-v", "--num-instances=2", "--num-replicas=2", "--mpi-local-args=--tag-output --allow-run-as-root",
        "sh", "-c", "echo here",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["[1,0]<stdout>:here", "[1,1]<stdout>:here"]
    assert "Ignored: --allow-run-as-root" in ran.stderr


def test_output_goes_to_files_too(tmp_path):
    ran = poprun(
        "--num-instances=2", "--num-replicas=2", f"--mpi-global-args=--output-filename {tmp_path}/out",
        "sh", "-c", "echo out $RANK; echo err $RANK >&2",
    )  # fmt: skip
    assert ran.returncode == 0
    for rank in (0, 1):
        folder = tmp_path / "out" / "1" / f"rank.{rank}"
        assert (folder / "stdout").read_text() == f"out {rank}\n"
        assert (folder / "stderr").read_text() == f"err {rank}\n"


def test_a_run_that_takes_too_long_is_ended():
    ran = poprun("--mpi-global-args=--timeout 8", "sleep", "600")
    assert ran.returncode == 124
    assert "SIPU-7112" in ran.stderr


def test_a_port_in_use_is_chosen_again():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = poprun(f"--master-port={port}", "sh", "-c", "echo $MASTER_PORT")
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) != port
    assert f"POPRUN [W] localhost: Port {port} is taken" in ran.stderr
    free = poprun(f"--master-port={port}", "sh", "-c", "echo $MASTER_PORT")
    assert int(free.stdout) == port


def test_instances_are_bound_when_asked():
    ran = poprun(
        "--numa-aware=yes", "-v", sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"
    )
    assert ran.returncode == 0
    assert ast.literal_eval(ran.stdout) <= os.sched_getaffinity(0)
    if len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) == 1:
        assert "has one NUMA node" in ran.stderr


def test_a_partition_is_created_for_the_run_and_removed_after_it():
    code = (
        "from softipu import devices\n"
        "with devices.attach(2) as lease:\n"
        "    print(lease.device.ipus[0].host, lease.device.ipus[0].device_id,\n"
        "          devices.active_partition().name, devices.active_partition().gcd)"
    )
    words = ["--num-instances=2", "--num-replicas=4", "--vipu-partition=mine", "-vv"]
    ran = poprun(*words, sys.executable, "-c", code)
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if " mine " in line]
    assert len(lines) == 2
    assert len({tuple(line.split()[:2]) for line in lines}) == 2  # no IPU twice
    assert sorted(line.split()[-1] for line in lines) == ["0", "1"]
    assert "Created partition mine of 4 IPUs" in ran.stderr
    assert "Removed partition mine" in ran.stderr
    assert LocalController().partitions() == ()
    kept = poprun(*words, "--remove-partition=no", "false")
    assert kept.returncode == 1
    assert [info.id for info in LocalController().partitions()] == ["mine"]


def test_each_instance_has_a_device_of_its_own_in_a_partition_and_without():
    show = "import popdist; print(popdist.getLocalInstanceIndex(), popdist.getDeviceId(2))"
    run = ["--num-instances=2", "--num-replicas=4", "--ipus-per-replica=2"]
    for more, devices in (["--vipu-partition=mine"], ["6", "6"]), ([], ["24", "25"]):
        ran = poprun(*run, *more, sys.executable, "-c", show)
        assert ran.returncode == 0, ran.stderr
        # In the partition each has a GCD of its own, in which ids count from 0.
        assert sorted(ran.stdout.splitlines()) == [
            f"{n} {device}" for n, device in enumerate(devices)
        ]


def test_offline_programs_hold_no_ipu():
    ran = poprun(
        "--offline-mode=yes", "--num-replicas=1000", "sh", "-c", "echo $POPTORCH_IPU_MODEL"
    )
    assert (ran.returncode, ran.stdout) == (0, "1\n")


def test_offline_programs_look_for_no_partition(tmp_path):
    show = "from softipu import devices; print(devices.active_partition().name)"
    elsewhere = {"IPUOF_VIPU_API_HOST": "nowhere.invalid", "IPUOF_VIPU_API_PARTITION_ID": "gone"}
    for environ in ({"IPUOF_CONFIG_PATH": str(tmp_path / "missing")}, elsewhere):
        ran = poprun("--offline-mode", sys.executable, "-c", show, **environ)
        assert (ran.returncode, ran.stdout) == (0, "ipuof\n"), ran.stderr


def test_a_dry_run_starts_and_creates_nothing(tmp_path):
    ran = poprun(
        "--dry-run", "--vipu-partition=new", "--num-instances=2", "--num-replicas=4",
        "--export-config", tmp_path / "run.conf", "touch", tmp_path / "touched",
    )  # fmt: skip
    assert ran.returncode == 0
    assert "|    poprun topology    |" in ran.stdout or "poprun topology" in ran.stdout
    assert "partition: create partition new (4 IPUs" in ran.stdout
    assert "instance 1 on localhost: env " in ran.stdout
    assert not (tmp_path / "touched").exists()
    assert LocalController().partitions() == ()
    again = poprun("--import-config", tmp_path / "run.conf", "--dry-run=yes", "true")
    assert "create partition new (4 IPUs" in again.stdout


def test_wrong_numbers_end_at_once_with_a_way_out():
    ran = poprun("--num-instances=3", "--num-replicas=4", "true")
    assert ran.returncode == 1
    assert "4 replicas cannot be divided evenly among 3 instances" in ran.stderr
    assert "Way out:" in ran.stderr


def test_log_lines_have_the_known_form():
    ran = poprun("-vv", "--num-replicas=4", "true")
    lines = [line for line in ran.stderr.splitlines() if "POPRUN" in line]
    import re

    for line in lines:
        assert re.match(r"\d\d:\d\d:\d\d\.\d{3} \d+ POPRUN \[[IDW]\] \S", line), line
    assert "Target options from environment: {}" in ran.stderr
    assert " ===========================\n|      poprun topology      |" in ran.stdout
    silent = poprun("true")
    assert (silent.stdout, silent.stderr) == ("", "")


@pytest.mark.parametrize("word", ["--host=192.0.2.1", "--host=no-such-host.invalid"])
def test_a_host_that_cannot_be_reached_is_named_in_bounded_time(word):
    name = word.partition("=")[2]
    ran = poprun(word, "--start-timeout=5", "true")
    assert ran.returncode == 1
    assert name in ran.stderr
    assert "SIPU-7106" in ran.stderr


def test_a_command_in_place_of_ssh_reaches_the_host(tmp_path):
    fake = tmp_path / "srun"
    fake.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    ran = poprun(
        "--host=node1,node2", "--num-replicas=2", "--tag-output",
        f"--mpi-global-args=--mca plm_rsh_agent {fake} --mca btl_tcp_if_include lo",
        "sh", "-c", "echo $RANK of $WORLD_SIZE at $MASTER_ADDR, local $LOCAL_RANK",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [
        "[1,0]<stdout>:0 of 2 at 127.0.0.1, local 0",
        "[1,1]<stdout>:1 of 2 at 127.0.0.1, local 0",
    ]  # fmt: skip


def test_a_login_that_greets_in_the_middle_is_an_error_and_not_a_hang(tmp_path):
    fake = tmp_path / "srun"
    fake.write_text("#!/bin/sh\necho Welcome to this host\nsleep 60\n")
    fake.chmod(0o755)
    ran = poprun("--host=node1", f"--mpi-global-args=--mca plm_rsh_agent {fake}", "true")
    assert ran.returncode == 1
    assert "Welcome to this host" in ran.stderr
    assert "node1" in ran.stderr
