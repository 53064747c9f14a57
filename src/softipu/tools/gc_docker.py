"""gc-docker and gc-podman: `docker run` (or `podman run`) with the IPUs passed to the container.

They become the engine's process (exec): same terminal, same signals, same exit code. Refusals have
exit code 125, as docker's own have, so that a program's code is never taken for one.
"""

from __future__ import annotations

import os
import resource
import shlex
import stat
import sys
from collections.abc import Mapping, Sequence

from .. import devices, settings
from ..containers import command, engine, passing, run_arguments
from ..errors import (
    EngineDown,
    EngineMissing,
    EngineSilent,
    ImageUnknown,
    SoftIPUError,
    UsageError,
)
from . import cli

REFUSED = 125
EPILOG = """\
What follows -- is given to `{engine} run` as it is, behind the options for the IPUs:

  {program} -- -it --rm softipu gc-monitor
  {program} --device-id 0 --device-id 1 -- --rm -v "$PWD":/work -w /work softipu python train.py
  {program} --echo -- softipu           # print the command instead of running it"""


def parser(engine_name: str = "docker") -> cli.Parser:
    program = f"gc-{engine_name}"
    result = cli.Parser(
        prog=program,
        version=True,
        usage=f"{program} [--echo] [--device-id N ...] -- [OPTIONS of {engine_name} run] IMAGE ...",
        description=f"Run a container with IPUs, by {engine_name}.",
        epilog=EPILOG.format(engine=engine_name, program=program),
    )
    add = result.add_argument
    add("--echo", action="store_true", help="print the command, do not run it")
    add(
        "-d",
        "--device-id",
        type=cli.whole_number,
        action="append",
        default=[],
        metavar="N",
        help="pass this device only, one IPU or a group; may be repeated (default: all)",
    )
    add(
        "--pull-timeout",
        type=cli.whole_number,
        default=600,
        metavar="S",
        help="seconds to get an image that is not here (default: 600)",
    )
    return result


def podman_parser() -> cli.Parser:
    return parser("podman")


def split(words: Sequence[str], program: str) -> tuple[list[str], list[str] | None]:
    """Our words and those of `docker run`."""
    if "--" in words:
        at = list(words).index("--")
        return list(words[:at]), list(words[at + 1 :])
    if any(word in ("-h", "--help", "--version") for word in words):
        return list(words), None
    raise UsageError(
        f"{program} needs -- between its own options and those of the container.",
        remedy=f"For example: {program} -- -it --rm IMAGE. See `{program} --help`.",
    )


def main(engine_name: str, argv: Sequence[str] | None = None) -> int:
    try:
        return _start(engine_name, sys.argv[1:] if argv is None else argv)
    except SoftIPUError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except SystemExit as ending:  # of argparse: help, version or wrong usage
        return 0 if ending.code == 0 else REFUSED


def _start(engine_name: str, words: Sequence[str]) -> int:
    program = f"gc-{engine_name}"
    ours, theirs = split(words, program)
    options = parser(engine_name).parse_args(ours)
    assert theirs is not None  # --help and --version have ended by now
    if theirs[:1] == ["run"]:
        raise UsageError(
            f"{program} -- run: `run` is already said.", remedy=f"{program} -- OPTIONS IMAGE"
        )
    arguments = run_arguments.parse(theirs)
    home = devices.Home()
    home.prepare()
    host = _host(engine_name, home)
    own = command.own_variables(arguments, map(_env_file, arguments.values("env-file")))
    command.check(arguments, own, bool(options.device_id), host)
    share = _share(home, options.device_id, command.chooses_ipus(arguments, own))
    command.check_network(arguments, share)
    if options.echo:
        found, image_user = _ask_for_echo(engine_name, arguments)
    else:
        found, image_user = _ask_engine(engine_name, arguments, options.pull_timeout)
    line = command.run_command(found, share, arguments, host, image_user)
    if options.echo:
        print(shlex.join(line))
        return 0
    sys.stdout.flush()
    try:
        os.execv(found, line)
    except OSError as error:
        raise EngineDown(f"{found} cannot be run: {error.strerror}.") from error


def _host(engine_name: str, home: devices.Home) -> command.Host:
    state = home.path.stat()
    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
    return command.Host(
        uid=os.getuid(),
        gid=os.getgid(),
        engine=engine_name,
        state_uid=state.st_uid,
        state_is_shared=bool(state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)),
        memory_lock_unlimited=unlimited,
    )


def _share(home: devices.Home, device_ids: Sequence[int], chosen: bool) -> passing.Passing:
    if chosen:
        return passing.without_configuration(home)
    partition = devices.active_partition(home)
    if device_ids:
        return passing.of_devices(partition, device_ids, home)
    return passing.of_partition(partition, home, os.environ)


def _env_file(path: str) -> Mapping[str, str]:
    """The variables of a file as docker reads it; one that cannot be read is docker's to report."""
    try:
        with open(path, errors="replace") as stream:
            lines = [line.strip() for line in stream]
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def _ask_engine(
    name: str, arguments: run_arguments.RunArguments, pull_timeout: float
) -> tuple[str, str | None]:
    """The engine's program and the image's user; an image that is not here is fetched first."""
    found = engine.find(name, settings.get("SOFTIPU_ENGINE_TIMEOUT"))
    if arguments.has("rootfs"):  # a directory, not an image: podman starts it as root
        return found.program, None
    user = found.image_user(arguments.image)
    policy = arguments.last("pull")
    if user is None and policy == "never":
        raise ImageUnknown(
            f"There is no image {arguments.image} here.",
            remedy="Build it or load it first, or leave out --pull=never.",
        )
    if user is None or policy == "always":
        found.pull(arguments.image, pull_timeout)
        user = found.image_user(arguments.image)
    return found.program, user


def _ask_for_echo(name: str, arguments: run_arguments.RunArguments) -> tuple[str, str | None]:
    """The same as far as it can be known: a command can be shown without an engine."""
    try:
        found = engine.find(name, settings.get("SOFTIPU_ENGINE_TIMEOUT"))
        user = found.image_user(arguments.image)
    except (EngineMissing, EngineDown, EngineSilent) as error:
        why, user = error.what, None
    else:
        why = f"The image {arguments.image} is not here."
    if user is None:
        print(f"gc-{name}: {why} Its user is taken to be root.", file=sys.stderr)
    return name, user


def docker(argv: Sequence[str] | None = None) -> int:
    return main("docker", argv)


def podman(argv: Sequence[str] | None = None) -> int:
    return main("podman", argv)


docker_entry = cli.run(docker)
podman_entry = cli.run(podman)
