"""How a server starts, or says why it does not."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from serve_support import ANY_PORTS, COMMAND, Running, environment, eventually, serving

from softipu.errors import ServingSelfTestFailed
from softipu.serve import installation, selftest
from softipu.serve.repository import Poller


def run(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], env=environment(home), capture_output=True, text=True, timeout=120
    )


def test_the_self_test_compares_values_before_it_is_ready(small: Path, tmp_path: Path) -> None:
    running = Running(small, tmp_path / "home")
    assert running.models == ["layer"]
    assert running.stop() == 0


def test_the_self_test_sees_a_wrong_value(monkeypatch, tmp_path: Path) -> None:
    right = {"output_0": [0.5, 1.0], "output_1": [3.0]}
    monkeypatch.setattr(selftest, "_export", lambda folder: right)
    monkeypatch.setattr(selftest, "_served", lambda folder: dict(right))
    selftest.run()
    monkeypatch.setattr(selftest, "_served", lambda folder: right | {"output_0": [0.0, 1.0]})
    with pytest.raises(ServingSelfTestFailed, match="output_0"):
        selftest.run()


def test_a_self_test_that_cannot_run_stops_the_start(small: Path, tmp_path: Path) -> None:
    """SOFTIPU_BACKEND names a device that is not there, so nothing can be compiled."""
    answer = subprocess.run(
        [*COMMAND, "--model-repository", str(small), *ANY_PORTS],
        env=environment(tmp_path / "home", SOFTIPU_BACKEND="cuda", CUDA_VISIBLE_DEVICES=""),
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert answer.returncode == 1
    assert "Ready" not in answer.stdout
    assert "SIPU-" in answer.stderr
    assert "Traceback" not in answer.stderr.replace("Its process said: Traceback", "")


def test_a_port_in_use_is_told_before_anything_starts(small: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for option in ("--http-port", "--grpc-port", "--metrics-port"):
            words = [*ANY_PORTS, option, str(port)]
            answer = run("--model-repository", str(small), *words, home=tmp_path)
            assert answer.returncode == 1
            assert f"SIPU-1502: Port {port} of 127.0.0.1 is taken ({option})" in answer.stderr


def test_a_repository_that_is_none_is_an_error(tmp_path: Path) -> None:
    answer = run("--model-repository", str(tmp_path / "none"), home=tmp_path)
    assert answer.returncode == 1
    assert "SIPU-6104" in answer.stderr


def test_a_repository_without_models_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = ["--model-repository", str(tmp_path / "empty"), "--no-self-test", *ANY_PORTS]
    answer = run(*words, home=tmp_path)
    assert answer.returncode == 1
    assert "SIPU-6109" in answer.stderr
    assert "has no models" in answer.stderr
    assert "softipu serve export" in answer.stderr


def test_a_repository_whose_only_entry_lacks_a_file_is_an_error_that_names_it(
    small: Path, tmp_path: Path
) -> None:
    shutil.copytree(small / "layer", tmp_path / "models" / "layer")
    (tmp_path / "models" / "layer" / "config.pbtxt").unlink()
    words = ["--model-repository", str(tmp_path / "models"), "--no-self-test", *ANY_PORTS]
    answer = run(*words, home=tmp_path)
    assert answer.returncode == 1
    assert "SIPU-6109: None of layer could be loaded." in answer.stderr
    assert "SIPU-6105: " in answer.stderr
    assert "layer has no config.pbtxt." in answer.stderr


def test_a_model_to_load_that_no_repository_has_is_named(small: Path, tmp_path: Path) -> None:
    words = ["--model-control-mode", "explicit", "--load-model", "nobody"]
    with serving(small, tmp_path, *words) as running:
        [said] = [line for line in running.lines if line.startswith("Model ")]
    assert said.startswith(
        "Model nobody is not served: SIPU-6104: No repository has an entry nobody."
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--model-repository"),
        (["--model-repository", ".", "--http-prot", "1"], "--http-port"),
        (["--model-repository", ".", "--http-port", "x"], "--http-port"),
        (["--model-repository", ".", "--", "--http-port=1"], "use --http-port before the --"),
        (["--model-repository", ".", "--", "--allow-http=false"], "sets it itself"),
        (["--model-repository", ".", "--load-model", "a"], "explicit"),
        (["--model-repository", ".", "--startup-timeout", "0"], "--startup-timeout"),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, words: list[str], says: str) -> None:
    answer = run(*words, home=tmp_path)
    assert answer.returncode == 2
    assert says in answer.stderr


def test_what_follows_two_dashes_goes_to_the_server(small: Path, tmp_path: Path) -> None:
    """It refuses what it does not know, and we show what it said."""
    words = ["--model-repository", str(small), "--no-self-test", *ANY_PORTS, "--", "--nonsense=1"]
    answer = run(*words, home=tmp_path)
    assert answer.returncode == 1
    assert "SIPU-6101" in answer.stderr
    assert "nonsense" in answer.stderr


def test_the_backend_reads_files_as_utf_8_in_whatever_locale(tmp_path: Path) -> None:
    """The server's Python is embedded: nobody chose its locale before our file runs."""
    backends = installation.assemble(installation.find(), tmp_path / "backends", tmp_path)
    code = f"exec(open({str(backends / 'poplar/model.py')!r}).read()); print(open(0).encoding)"
    answer = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code],
        env=environment(tmp_path, LC_ALL="C", PYTHONCOERCECLOCALE="0"),
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert answer.stdout == "UTF-8\n", answer.stderr


def test_without_the_package_the_way_out_is_told(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pytriton'] = None; from softipu.tools.main import entry; entry()"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, "serve", "--model-repository", str(tmp_path)],
        env=environment(tmp_path), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert answer.returncode == 1
    assert "SIPU-6100" in answer.stderr
    assert "nvidia-pytriton" in answer.stderr


def is_open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_it_listens_where_it_is_told_by_name_or_by_an_ipv6_address(
    small: Path, tmp_path: Path, host: str
) -> None:
    try:
        with socket.socket(socket.AF_INET6 if host == "::1" else socket.AF_INET) as probe:
            probe.bind((host, 0))
    except OSError as error:
        pytest.skip(f"{host}: {error}")
    words = ["--host", host, "--startup-timeout", "60"]
    with serving(small, tmp_path / "home", *words) as running:
        shown = "[::1]" if host == "::1" else host
        for port in (running.http, running.grpc, running.metrics):
            # The metrics come last, a moment after the server says that it is ready.
            eventually(lambda port=port: is_open(host, port), seconds=10)
        [line] = [line for line in running.lines if "Ready: " in line]
        assert f"at http://{shown}:{running.http}, gRPC {shown}:{running.grpc}, " in line


@pytest.mark.parametrize("name", ["my models", "modèles"])
def test_a_repository_may_have_any_name(small: Path, tmp_path: Path, name: str) -> None:
    """The server's Python backend hands paths to a shell without quotes."""
    shutil.copytree(small, tmp_path / name)
    with serving(tmp_path / name, tmp_path / "home", "--startup-timeout", "60") as running:
        assert running.is_served("layer")
    assert (tmp_path / name / "layer/1/executable.popef").is_file()


def test_names_that_the_server_would_hang_with_are_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small / "layer", tmp_path / "models/my layer")
    answer = run("--model-repository", str(tmp_path / "models"), *ANY_PORTS, home=tmp_path)
    assert answer.returncode == 1
    assert "SIPU-6104: The server cannot load a model of the name 'my layer'" in answer.stderr
    (tmp_path / "t m p").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t m p"))
    answer = run("--model-repository", str(small), *ANY_PORTS, home=tmp_path)
    assert answer.returncode == 1
    assert "SIPU-1101: The server cannot use the directory for temporary files" in answer.stderr


def test_clients_names_that_the_server_would_hang_with_are_told_at_the_start(
    small: Path, tmp_path: Path
) -> None:
    """The others are served; only a client could ask for it, by gRPC."""
    shutil.copytree(small, tmp_path / "models")
    shutil.copytree(small / "layer", tmp_path / "models/my layer")
    (tmp_path / "models/my notes").mkdir()
    words = ["--model-control-mode", "explicit", "--load-model", "layer"]
    with serving(tmp_path / "models", tmp_path / "home", *words) as running:
        assert running.models == ["layer"]
        [said] = [line for line in running.lines if line.startswith("Model ")]
    assert said.startswith(
        "Model my layer is not served: SIPU-6104: The server cannot load a model of the name "
    )
    assert "hangs with this one" in said


def test_polling_passes_over_names_that_the_server_would_hang_with(tmp_path: Path) -> None:
    asked: list[str] = []
    control = SimpleNamespace(load=asked.append, unload=asked.append)
    poller = Poller([tmp_path], control, 0.0, {})
    for name in ("my layer", "layer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").touch()
    first, second = sorted(poller.look())
    assert first == "Model layer was loaded."
    assert "Model my layer could not be loaded: The server cannot load" in second
    assert asked == ["layer"]
