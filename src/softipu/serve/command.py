"""`softipu serve`: a Triton server with the `poplar` backend, watched until it is told to stop."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ..errors import ModelControlFailed, NothingServed, RepositoryInvalid
from ..tools import cli
from . import left_out, selftest
from .ports import Ports
from .repository import Poller, folders, lacks_ipus, snapshot
from .server import Server, Settings

MODES = ("none", "poll", "explicit")
#: What the command decides itself; the server would take the last one given.
_OURS = {
    "--model-repository": "--model-repository",
    "--model-store": "--model-repository",
    "--model-control-mode": "--model-control-mode",
    "--repository-poll-secs": "--poll-seconds",
    "--load-model": "--load-model",
    "--http-port": "--http-port",
    "--grpc-port": "--grpc-port",
    "--metrics-port": "--metrics-port",
    "--http-address": "--host",
    "--grpc-address": "--host",
    "--metrics-address": "--host",
    "--exit-timeout-secs": "--exit-timeout",
    "--backend-directory": None,
    "--allow-http": None,
    "--exit-on-error": None,
}
EPILOG = """\
modes:
  none:      all models are loaded at the start; clients can't load or unload any (the default)
  poll:      entries of the repository that appear, change or go are loaded and unloaded
  explicit:  clients load and unload models; at the start only those of --load-model

What follows -- goes to tritonserver as it is, for example -- --log-verbose=1.
`softipu serve export` makes repository entries."""
_WATCH_SECONDS = 0.5


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu serve",
        usage="softipu serve --model-repository DIR [OPTIONS] [-- TRITON OPTIONS]\n"
        "       softipu serve export --model NAME --output DIR [OPTIONS]",
        description="Serve exported models on a Triton server.",
        epilog=EPILOG,
    )
    add = result.add_argument
    repository = "directory of models; may be given several times"
    add("--model-repository", required=True, action="append", metavar="DIR", help=repository)
    add("--model-control-mode", choices=MODES, default="none", help="see below")
    loaded = "with explicit: a model to load at the start; may be given several times"
    add("--load-model", action="append", default=[], metavar="NAME", help=loaded)
    poll = "with poll: seconds between two looks at the repository (default: 15)"
    add("--poll-seconds", type=_seconds, default=15.0, metavar="S", help=poll)
    add("--host", default="127.0.0.1", metavar="H", help="address to listen on (127.0.0.1)")
    for kind, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
        text = f"default: {port}; 0 takes any free one"
        add(f"--{kind}-port", type=cli.port_or_any, default=port, metavar="P", help=text)
    add("--log-file", type=Path, metavar="FILE", help="keep the server's lines in a file")
    limit = "seconds until the server must be ready (default: 600)"
    add("--startup-timeout", type=_seconds, default=600.0, metavar="S", help=limit)
    rest = "seconds that requests under way may take when it is stopped (default: 30)"
    add("--exit-timeout", type=_seconds, default=30.0, metavar="S", help=rest)
    add("--no-self-test", action="store_true", help="don't compare values first (saves seconds)")
    return result


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["export"]:
        from . import export_command

        return export_command.main(words[1:])
    at = words.index("--") if "--" in words else len(words)
    arguments = parser()
    options = arguments.parse_args(words[:at])
    extra = words[at + 1 :]
    _check_extra(arguments, extra)
    if options.load_model and options.model_control_mode != "explicit":
        arguments.error("--load-model belongs to --model-control-mode explicit")
    repositories = tuple(_repository(name) for name in options.model_repository)
    settings = Settings(
        repositories,
        Ports(options.http_port, options.grpc_port, options.metrics_port),
        options.host,
        models=tuple(options.load_model) if options.model_control_mode == "explicit" else None,
        open_control=options.model_control_mode == "explicit",
        extra=tuple(extra),
        log_file=options.log_file,
        startup_timeout=options.startup_timeout,
        exit_timeout=options.exit_timeout,
    )
    poll = options.poll_seconds if options.model_control_mode == "poll" else None
    if options.model_control_mode == "none":
        _check_for_models(repositories)
    return _serve(settings, poll=poll, self_test=not options.no_self_test)


def _check_extra(arguments: cli.Parser, extra: Sequence[str]) -> None:
    for word in extra:
        name = word.partition("=")[0]
        if name in _OURS:
            ours = _OURS[name]
            instead = f"use {ours} before the --" if ours else "softipu serve sets it itself"
            arguments.error(f"{name} behind -- is not for the server: {instead}")


def _repository(name: str) -> Path:
    path = Path(name).absolute()
    if not path.is_dir():
        raise RepositoryInvalid(f"{name} is not a directory.")
    return path


def _check_for_models(repositories: Sequence[Path]) -> None:
    """An empty repository needs no server to be told of."""
    if not any(folders(path) for path in repositories):
        raise NothingServed(
            f"{', '.join(map(str, repositories))} has no models.",
            cause="There is no directory in it, and --model-control-mode none looks only once.",
            remedy="Make an entry with `softipu serve export`, or use another mode.",
        )


def _serve(settings: Settings, *, poll: float | None, self_test: bool) -> int:
    stopping = threading.Event()
    # From before the server looked: what comes while it starts is loaded twice rather than never.
    known = snapshot(settings.repositories) if poll else {}
    # The server ends before the pool does, and with it what the pool's thread asks of it.
    with _signals_set(stopping), ThreadPoolExecutor(1) as pool, Server(settings) as server:
        test = selftest.start() if self_test else None
        try:
            server.wait_until_ready(stopping)
            if test is not None and not stopping.is_set():
                selftest.finish(test, stopping)
        finally:
            if test is not None:
                selftest.abandon(test)
        waiting: set[str] = set()
        if not stopping.is_set():
            waiting = _announce(server, settings, poll)
        known = {name: files for name, files in known.items() if name not in waiting}
        poller = Poller(settings.repositories, server.control, poll, known) if poll else None
        tending = pool.submit(_tend, server, poller, stopping)
        try:
            while not stopping.wait(_WATCH_SECONDS):
                server.check()
                if tending.done():
                    tending.result()
        finally:
            stopping.set()
        _say("Stopping: requests under way are finished first.")
    _say("Stopped.")
    return 0


def _announce(server: Server, settings: Settings, poll: float | None) -> set[str]:
    """Says what is served and what is not; returns the models that others leave no IPUs."""
    models = server.control.models()
    refused = {model.name: model.reason for model in models if not model.ready and model.reason}
    ready = sorted({model.name for model in models if model.ready})
    passed_over = left_out.left_out(
        settings.repositories, settings.models, [*ready, *refused], left_out.reasons(server.log())
    )
    for name, reason in [*refused.items(), *passed_over]:
        if reason != "unloaded":
            print(f"Model {name} is not served: {reason}", file=sys.stderr, flush=True)
    if not ready and not settings.open_control and poll is None:
        found = [path.name for one in settings.repositories for path in folders(one)]
        raise NothingServed(f"None of {', '.join(found)} could be loaded.")
    ports = server.ports
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    _say(
        f"Ready: {', '.join(ready) or 'no models yet'} at http://{host}:{ports.http}, gRPC "
        f"{host}:{ports.grpc}, metrics http://{host}:{ports.metrics}/metrics"
    )
    return {name for name, reason in refused.items() if lacks_ipus(reason)}


def _tend(server: Server, poller: Poller | None, stopping: threading.Event) -> None:
    """Loads and unloads what has to be, which may take long: in a thread of its own."""
    while not stopping.wait(_WATCH_SECONDS):
        try:
            restarts, returning = server.restarts, server.is_returning
            names = server.revive()
            if server.restarts > restarts:
                _say("The server crashed; it is started again.")
            elif returning and not server.is_returning:
                _say(f"The server is back with {', '.join(names) or 'no models'}.")
            else:
                for name in names:
                    _say(f"A backend process of {name} was killed; the model was loaded again.")
            if poller is not None and not server.is_returning:
                for line in poller.look():
                    _say(line)
        except ModelControlFailed as error:
            if not stopping.is_set():
                print(error, file=sys.stderr, flush=True)


def _say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def _signals_set(event: threading.Event) -> Iterator[None]:
    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # Under nohup it outlives its terminal.
        wanted.append(signal.SIGHUP)
    before = [signal.signal(one, lambda *_: event.set()) for one in wanted]
    try:
        yield
    finally:
        for one, handler in zip(wanted, before, strict=True):
            signal.signal(one, handler)


entry = cli.run(main)
