"""From devices, engine and arguments to the command: what is passed, left out and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from softipu.containers import command
from softipu.containers.command import Host
from softipu.containers.passing import Passing
from softipu.containers.run_arguments import parse
from softipu.errors import ContainerConflict, PathNotMountable

USER = Host(uid=1001, gid=1002, engine="docker", state_uid=1001)
ROOTLESS = replace(USER, engine="podman", memory_lock_unlimited=False)
SHARE = Passing(Path("/home/me/state"), (("SOFTIPU_SYSTEM", "pod16"),))
STATE = ["-v", "/home/me/state:/var/lib/softipu", "-e", "SOFTIPU_HOME=/var/lib/softipu"]
USUAL = ["--ulimit=memlock=-1:-1", "--net=host", "--ipc=host", "--cap-add=IPC_LOCK"]


def line(words: str, share: Passing = SHARE, host: Host = USER, user: str | None = "") -> list[str]:
    return command.run_command("docker", share, parse(words.split()), host, user)


def test_the_whole_command_is_known_in_advance():
    assert line("-it --rm image ls -l") == [
        "docker", "run", *USUAL, *STATE, "-e", "SOFTIPU_SYSTEM=pod16",
        "-it", "--rm", "image", "ls", "-l",
    ]  # fmt: skip


def test_files_are_mounted_for_reading_and_secrets_stay_out_of_the_list_of_processes():
    share = Passing(
        Path("/home/me/state"),
        (("IPUOF_CONFIG_PATH", "/etc/x.conf"), ("SOFTIPU_VIPU_ACCESS_KEY", None)),
        ((Path("/home/me/p.conf"), "/etc/x.conf"),),
    )
    words = line("image", share)
    assert words[words.index("-e") - 2 : -1] == [
        "-v", "/home/me/p.conf:/etc/x.conf:ro",
        "-e", "SOFTIPU_HOME=/var/lib/softipu",
        "-e", "IPUOF_CONFIG_PATH=/etc/x.conf",
        "-e", "SOFTIPU_VIPU_ACCESS_KEY",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("--network mine", "--net=host"),
        ("--net=bridge", "--net=host"),
        ("--pod p", "--net=host"),
        ("--ipc private", "--ipc=host"),
        ("--shm-size 1g", "--ipc=host"),
        ("--ulimit memlock=1000", "--ulimit=memlock=-1:-1"),
        ("--cap-drop cap_ipc_lock", "--cap-add=IPC_LOCK"),
    ],
)
def test_where_the_user_says_otherwise_his_word_counts(words, missing):
    found = line(f"{words} image")
    assert missing not in found
    assert set(USUAL) - {missing, "--ipc=host"} <= set(found)


@pytest.mark.parametrize(
    "words", ["--ulimit nofile=1000", "--cap-drop ALL", "--privileged", "-p 1:2"]
)
def test_other_options_take_nothing_away(words):
    assert set(USUAL) <= set(line(f"{words} image"))


def test_podman_without_root_does_not_ask_for_a_limit_that_it_cannot_set():
    assert "--ulimit=memlock=-1:-1" not in line("image", host=ROOTLESS)
    unlimited = replace(ROOTLESS, memory_lock_unlimited=True)
    assert "--ulimit=memlock=-1:-1" in line("image", host=unlimited)
    assert "--ulimit=memlock=-1:-1" in line("image", host=replace(ROOTLESS, uid=0))


# --- whose container it is -----------------------------------------------------------------------


@pytest.mark.parametrize("image_user", ["", "root", "0", "0:0", "root:root", None])
def test_an_image_of_roots_is_left_as_it_is(image_user):
    assert not [word for word in line("image", user=image_user) if word.startswith("--user")]


def test_an_image_with_a_user_of_its_own_runs_as_the_caller():
    """That user could not write the caller's state directory."""
    assert "--user=1001:1002" in line("image", user="ipu")
    found = line("image", host=ROOTLESS, user="ipu:ipu")
    assert {"--userns=keep-id", "--user=1001:1002"} <= set(found)


@pytest.mark.parametrize("words", ["--user ipu", "-u 0", "--userns=auto"])
def test_a_user_that_is_named_stays(words):
    assert "--user=1001:1002" not in line(f"{words} image", user="ipu")


def test_in_a_shared_state_directory_every_user_is_welcome():
    shared = replace(USER, state_is_shared=True)
    assert "--user=1001:1002" not in line("image", host=shared, user="ipu")
    command.check(parse(["-u", "77", "image"]), set(), False, shared)


# --- what cannot work ----------------------------------------------------------------------------


def check(words: str, some_devices: bool = False, variables: set[str] | None = None) -> None:
    arguments = parse([*words.split(), "image"])
    own = command.own_variables(arguments, [dict.fromkeys(variables or (), "")])
    command.check(arguments, own, some_devices, USER)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("-e SOFTIPU_HOME=/x", "always passed"),
        ("-e SOFTIPU_HOME", "always passed"),
        ("-v /x:/var/lib/softipu", "where the state directory belongs"),
        ("--mount type=bind,src=/x,dst=/var/lib/softipu/", "where the state directory belongs"),
        ("--ip 10.0.0.7", "--ip needs a network"),
        ("--link db", "--link needs a network"),
        ("--mac-address 0:1", "--mac-address needs a network"),
        ("-u 4711", "User 4711 in the container could not use the state directory"),
        ("--user 4711:0", "User 4711"),
    ],
)
def test_contradictions_are_refused_with_the_reason(words, reason):
    with pytest.raises(ContainerConflict, match=reason):
        check(words)


@pytest.mark.parametrize(
    "words",
    [
        "--ip 10.0.0.7 --network mine", "-u 0", "-u 1001", "-u name", "-e PATH", "-v /x:/y",
        "-e IPUOF_CONFIG_PATH=/x.conf -v /x.conf:/x.conf", "-v /x:/etc/ipuof.conf.d/",
    ],
)  # fmt: skip
def test_what_can_work_is_let_through(words):
    check(words)


@pytest.mark.parametrize(
    "words",
    [
        "-e IPUOF_CONFIG_PATH=/x", "-e IPUOF_VIPU_API_HOST", "-e SOFTIPU_SYSTEM=pod4",
        "-v /conf:/etc/ipuof.conf.d/", "-v /a.conf:/etc/ipuof.conf.d/a.conf:ro",
    ],
)  # fmt: skip
def test_devices_cannot_be_chosen_twice(words):
    assert command.chooses_ipus(
        parse([*words.split(), "image"]),
        command.own_variables(parse([*words.split(), "image"]), []),
    )
    check(words)
    with pytest.raises(ContainerConflict, match="--device-id"):
        check(words, some_devices=True)


def test_variables_of_a_file_count_as_the_users_own():
    with pytest.raises(ContainerConflict, match="--device-id"):
        check("--env-file x", some_devices=True, variables={"IPUOF_CONFIG_PATH"})


@pytest.mark.parametrize(
    ("server", "words", "good"),
    [
        ("localhost", "", True),
        ("localhost", "--network host", True),
        ("localhost", "--network bridge", False),
        ("127.0.0.1", "--net mine", False),
        ("[::1]", "--net mine", False),
        ("10.1.2.3", "--net mine", True),
        ("10.1.2.3", "--net none", False),
        (None, "--net none", True),
    ],
)
def test_a_server_must_be_in_reach(server, words, good):
    share = Passing(Path("/state"), server=server)
    arguments = parse([*words.split(), "image"])
    if good:
        command.check_network(arguments, share)
    else:
        with pytest.raises(ContainerConflict, match="cannot be reached"):
            command.check_network(arguments, share)


def test_a_path_with_a_colon_cannot_be_mounted():
    with pytest.raises(PathNotMountable, match="/a:b"):
        line("image", Passing(Path("/a:b")))
