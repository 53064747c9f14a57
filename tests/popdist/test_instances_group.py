"""Real processes that compute together, and what they say when one of them goes away."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import instances_support as support
import pytest

from softipu.poprun import network

PROGRAMS = Path(__file__).parent / "programs"
WAITING = PROGRAMS / "waiting.py"
#: How long anything may take to notice a loss; the machine may be busy, so much more than it needs.
SOON = 60.0


def test_three_instances_reduce_broadcast_and_gather() -> None:
    ended = support.run(PROGRAMS / "collectives.py", 3, environ={"PYTHONHASHSEED": "1"})
    expected = [
        [6.0] * 3,
        [1.0] * 3,
        [3.0] * 3,
        [6.0] * 3,
        ["torch.float16", [4.5] * 5],
        [1, 7],
        [[0], [10], [20]],
        [[], [[0.0, 1.0]], [[0.0, 1.0], [2.0, 3.0]]],
        [[3, 3], [3, 3]],
        [[3, 3], [3, 3]],
        "from 1",
        "",
        ["", "x", "xx"],
        ["InstancesDisagree", "Instances 0 and 1 have different indexes."],
        True,
    ]
    for one in ended:
        assert one.said[: len(expected)] == expected
        assert one.said[-1] == "NoGroup"
    sums = {one.said[len(expected)] for one in ended}
    assert len(sums) == 1, "the same sum must have the same bits in all instances"


def _all_waiting(count: int, *arguments: str, environ: dict[str, str] | None = None):  # type: ignore[no-untyped-def]
    return support.launched(WAITING, count, arguments, environ=environ)


def test_an_instance_that_is_killed_is_named_by_all_others() -> None:
    with _all_waiting(4) as running:
        for index in range(4):
            running.said(index, "together")
        running.signal(2, signal.SIGKILL)
        ended = running.wait(SOON)
    assert ended[2].code == -signal.SIGKILL
    for index in (0, 1, 3):
        assert ended[index].code == 1
        assert "SIPU-7203: Instance 2 " in ended[index].errors, ended[index].errors


def test_instance_0_is_named_when_it_is_killed() -> None:
    """It holds the store in which the others would look for what happened."""
    with _all_waiting(3) as running:
        for index in range(3):
            running.said(index, "together")
        running.signal(0, signal.SIGKILL)
        ended = running.wait(SOON)
    for index in (1, 2):
        assert ended[index].code == 1
        assert "SIPU-7203: Instance 0 " in ended[index].errors, ended[index].errors


def test_an_instance_that_hangs_is_named_and_nobody_hangs_at_exit() -> None:
    with _all_waiting(3, environ={"SOFTIPU_INSTANCES_SILENCE": "8"}) as running:
        for index in range(3):
            running.said(index, "together")
        running.signal(1, signal.SIGSTOP)
        for index in (0, 2):
            process = running.processes[index]
            _, errors = process.communicate(timeout=SOON)
            assert process.returncode == 1
            assert "SIPU-7203: Instance 1 has given no sign of life" in errors, errors


def test_instance_0_is_named_when_it_hangs_with_the_store_that_all_others_ask() -> None:
    with _all_waiting(3, environ={"SOFTIPU_INSTANCES_SILENCE": "4"}) as running:
        for index in range(3):
            running.said(index, "together")
        running.signal(0, signal.SIGSTOP)
        for index in (1, 2):
            process = running.processes[index]
            _, errors = process.communicate(timeout=SOON)
            assert process.returncode == 1, errors
            assert "SIPU-7203: Instance 0 can't be reached" in errors, errors


def test_a_program_ends_though_instance_0_hangs_with_the_store() -> None:
    script = (
        "import time\n"
        "from softipu.instances import group\n"
        "together = group.current()\n"
        "together.barrier()\n"
        "print('together', flush=True)\n"
        "time.sleep(3 if together.index else 600)\n"
    )
    with support.launched("-c", 2, [script]) as running:
        for index in range(2):
            running.said(index, "together")
        running.signal(0, signal.SIGSTOP)
        process = running.processes[1]
        _, errors = process.communicate(timeout=SOON)
        assert process.returncode == 0, errors


@pytest.mark.parametrize("what", ["end", "raise"])
def test_an_instance_that_ends_early_is_named(what: str) -> None:
    with _all_waiting(3, what) as running:
        ended = running.wait(support.PATIENCE)
    for index in (0, 1):
        assert "SIPU-7203: Instance 2 has ended" in ended[index].errors, ended[index].errors


def test_an_instance_that_never_comes_is_an_error_though_it_lives() -> None:
    with _all_waiting(3, "sleep", environ={"SOFTIPU_INSTANCES_TIMEOUT": "8"}) as running:
        for index in (0, 1):
            process = running.processes[index]
            _, errors = process.communicate(timeout=support.PATIENCE)
            assert process.returncode == 1
            assert "SIPU-7204" in errors or "SIPU-7203" in errors, errors
        assert running.processes[2].poll() is None


def test_a_wait_that_ends_while_nobody_looks_is_as_late() -> None:
    """The library under the collectives has a clock of its own, which may be the first to end."""
    environ = {"SOFTIPU_INSTANCES_TIMEOUT": "8", "SLICE_SECONDS": "60"}
    with _all_waiting(3, "sleep", environ=environ) as running:
        for index in (0, 1):
            _, errors = running.processes[index].communicate(timeout=support.PATIENCE)
            assert "SIPU-7204" in errors or "SIPU-7203" in errors, errors


def test_ctrl_c_ends_an_instance_that_waits() -> None:
    with _all_waiting(3, "sleep") as running:
        for index in range(3):
            running.said(index, "together")
        time.sleep(0.5)
        running.signal(0, signal.SIGINT)
        process = running.processes[0]
        _, errors = process.communicate(timeout=SOON)
        assert "KeyboardInterrupt" in errors


def _alone(environ: dict[str, str], index: int = 0) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, **support.variables(index, 2), **environ}
    return subprocess.run(
        [sys.executable, str(WAITING)],
        env={name: value for name, value in own.items() if value},
        text=True,
        capture_output=True,
        timeout=support.PATIENCE,
        check=False,
    )


def test_instances_that_do_not_come_to_the_meeting_are_named() -> None:
    ended = _alone({"MASTER_PORT": str(support.free_port()), "SOFTIPU_INSTANCES_START": "2"})
    assert ended.returncode == 1
    assert "SIPU-7202: Instance 0 of 2 waited 2 s in vain for instance 1." in ended.stderr


def test_a_meeting_place_that_does_not_answer_is_an_error_in_time() -> None:
    ended = _alone(
        {"MASTER_PORT": str(support.free_port()), "SOFTIPU_INSTANCES_START": "2"}, index=1
    )
    assert ended.returncode == 1
    assert "SIPU-7202: Nothing answers at 127.0.0.1:" in ended.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        ended = _alone({"MASTER_PORT": str(port), "SOFTIPU_INSTANCES_START": "5"})
    assert ended.returncode == 1
    assert f"can't listen on 127.0.0.1:{port}: another program uses the port" in ended.stderr


def test_a_program_that_holds_the_port_and_says_nothing_is_not_waited_for_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ended = _alone({"MASTER_PORT": str(port), "SOFTIPU_INSTANCES_START": "2"}, index=1)
    assert ended.returncode == 1, ended.stderr
    assert f"SIPU-7202: What listens at 127.0.0.1:{port} gives instance 1 no" in ended.stderr


def test_no_meeting_place_is_an_error_at_once() -> None:
    ended = _alone({"MASTER_ADDR": ""})
    assert ended.returncode == 1
    assert "SIPU-7201" in ended.stderr


def test_instance_0_may_end_long_before_the_others_without_noise() -> None:
    script = (
        "import time\n"
        "from softipu import instances\n"
        "from softipu.instances import group\n"
        "together = group.current()\n"
        "together.barrier()\n"
        "time.sleep(0 if together.index == 0 else 4)\n"
        "print('done')\n"
    )
    with support.launched("-c", 3, [script]) as running:
        ended = running.wait()
    for one in ended:
        assert (one.code, one.output, one.errors) == (0, "done\n", "")


def test_asking_for_instance_0_after_it_ended_names_it() -> None:
    script = (
        "import time\n"
        "from softipu.instances import group\n"
        "together = group.current()\n"
        "together.barrier()\n"
        "if together.index:\n"
        "    time.sleep(4)\n"
        "    together.barrier()\n"
    )
    with support.launched("-c", 2, [script]) as running:
        ended = running.wait()
    assert ended[0].code == 0
    assert "SIPU-7203: Instance 0 has ended" in ended[1].errors


@pytest.mark.parametrize(("how", "code"), [("end", 0), ("finalize", 0), ("exit", 3), ("raise", 1)])
def test_a_program_ends_with_its_own_code_while_its_signs_of_life_are_on_their_way(
    how: str, code: int
) -> None:
    """A thread that comes back from C++ to an interpreter that has ended aborts the process."""
    with support.launched(PROGRAMS / "leaving.py", 2, [how]) as running:
        ended = running.wait()
    assert [one.code for one in ended] == [code, code], [one.errors for one in ended]


CONNECTIONS = PROGRAMS / "connections.py"


@pytest.mark.parametrize("name", [one.name for one in network.interfaces()])
def test_instances_are_connected_over_the_interface_that_is_named(name: str) -> None:
    address = next(one.address for one in network.interfaces() if one.name == name)
    ended = support.run(CONNECTIONS, 2, environ={"GLOO_SOCKET_IFNAME": name})
    assert [one.said for one in ended] == [[[address]]] * 2


def test_an_interface_that_is_not_there_is_named() -> None:
    with support.launched(CONNECTIONS, 2, environ={"GLOO_SOCKET_IFNAME": "missing0"}) as running:
        ended = running.wait()
    for one in ended:
        assert one.code == 1
        assert "can't use GLOO_SOCKET_IFNAME=missing0" in one.errors, one.errors


def test_an_interface_that_only_one_instance_is_told_is_enough_for_all() -> None:
    ended = support.run(CONNECTIONS, 2, environ={"INTERFACE_FOR_INSTANCE_1": "lo"})
    assert [one.said for one in ended] == [[["127.0.0.1"]]] * 2


def test_an_instance_that_cannot_connect_is_named_by_the_others() -> None:
    with support.launched(
        CONNECTIONS, 2, environ={"INTERFACE_FOR_INSTANCE_1": "missing0"}
    ) as running:
        ended = running.wait()
    assert [one.code for one in ended] == [1, 1]
    assert "SIPU-7202: Instance 1 could not connect to the others" in ended[0].errors
    assert "can't use GLOO_SOCKET_IFNAME=missing0" in ended[1].errors, ended[1].errors


def test_a_child_made_by_fork_ends_beside_its_instance() -> None:
    script = (
        "import os, sys\n"
        "from softipu.instances import group\n"
        "together = group.current()\n"
        "together.barrier()\n"
        "if (child := os.fork()) == 0:\n"
        "    import signal\n"
        "    signal.alarm(30)\n"  # one that hangs ends by it
        "    sys.exit(5)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "together.barrier()\n"
    )
    with support.launched("-c", 2, [script]) as running:
        ended = running.wait()
    assert [(one.code, one.output) for one in ended] == [(0, "5\n")] * 2, ended


def test_instance_0_is_not_reached_by_loopback_where_others_come_from_other_hosts() -> None:
    """Its own name often means a loopback address on its own host."""
    outer = [one.address for one in network.interfaces() if not one.address.startswith("127.")]
    if not outer:
        pytest.skip("this host has no address but loopback")
    ended = support.run(
        CONNECTIONS, 2, environ={"MASTER_ADDR": outer[0], "ADDRESS_FOR_INSTANCE_0": "127.0.0.1"}
    )
    assert [one.said for one in ended] == [[[outer[0]]]] * 2
