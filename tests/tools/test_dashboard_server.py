"""The dashboard's server without a browser: what it answers, whom it refuses, how it ends."""

from __future__ import annotations

import http.cookiejar
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from softipu import errors
from softipu.tools.dashboard import command

MAIN = """
import sys
from softipu.tools import cli
from softipu.tools.dashboard.command import main
sys.exit(cli.guarded(main, sys.argv[1:]))
"""
KEY = "open-sesame"
SOURCE = str(Path(command.__file__).parents[3])
Serve = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def serve(start: Any) -> Serve:
    """Start a dashboard; returns its process and address once it accepts connections."""

    def run(*arguments: str, **options: Any) -> tuple[subprocess.Popen[str], str]:
        process = start(MAIN, "--port", "0", "--interval", "0.2", *arguments, **options)
        line = process.stdout.readline()
        assert line.startswith("Dashboard: http://"), line
        return process, line.split()[1]

    return run


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one dashboard that all tests share which only look."""
    folder = tmp_path_factory.mktemp("shared")
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "--port", "0", "--interval", "0.2"],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": SOURCE, "HOME": str(folder), "SOFTIPU_HOME": str(folder / "state")},
    )
    assert process.stdout is not None
    with process.stdout:
        yield process.stdout.readline().split()[1]
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def web() -> Iterator[httpx.Client]:
    """A client that keeps no cookies. Without certificates to load, it is there at once."""
    with httpx.Client(verify=False, timeout=20) as client:
        client.cookies.jar.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        yield client


def refused(start: Any, *arguments: str) -> tuple[int, str]:
    process = start(MAIN, *arguments, stderr=subprocess.PIPE)
    with process.stderr:
        text = process.stderr.read()
    return process.wait(20), text


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    kind = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


# --- what it answers -------------------------------------------------------------------------


def test_a_snapshot_has_everything_the_page_needs(
    serve: Serve, hold: Any, web: httpx.Client
) -> None:
    holder = hold(2)
    _, url = serve()
    body = web.get(f"{url}api/snapshot").json()
    assert body["version"] == 1
    assert body["problems"] == []
    [system] = body["systems"]
    assert (system["name"], system["chip"], system["boards"]) == ("bow-pod16", "bow", 8)
    [partition] = body["partitions"]
    assert (partition["name"], partition["active"], partition["size"]) == ("ipuof", True, 16)
    assert (partition["origin"], partition["reconfigurable"]) == ("embedded", True)
    first, third = partition["ipus"][0], partition["ipus"][2]
    assert first["state"] == "held"
    assert first["holder"]["pid"] == holder.pid
    assert third["state"] == "free"
    assert third["holder"] is None
    assert {"serial", "host", "number", "clock_hz", "board_power", "die_temperature"} <= set(first)
    assert {"board_power", "die_temperature", "power"} <= set(body["modelled"])
    [process] = body["processes"]
    assert (process["pid"], process["ipus"], process["partition"]) == (holder.pid, [0, 1], "ipuof")
    assert process["key"] == first["holder"]["process"]
    totals = body["totals"]
    assert (totals["ipus"], totals["busy"], totals["boards"]) == (16, 2, 8)
    assert totals["power"] == pytest.approx(8 * first["board_power"], rel=0.01)


def test_a_stream_brings_one_snapshot_after_another(web: httpx.Client, url: str) -> None:
    with web.stream("GET", f"{url}api/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        seen = events(response)
        numbers = [next(seen)[1]["sequence"] for _ in range(4)]
    assert numbers == sorted(set(numbers))


def test_a_second_viewer_costs_no_second_collection(web: httpx.Client, url: str) -> None:
    with (
        web.stream("GET", f"{url}api/stream") as one,
        web.stream("GET", f"{url}api/stream") as two,
    ):
        first, second = events(one), events(two)
        mine = {body["sequence"]: body["time"] for _, body in (next(first) for _ in range(5))}
        theirs = {body["sequence"]: body["time"] for _, body in (next(second) for _ in range(5))}
    shared = mine.keys() & theirs.keys()
    assert shared
    assert all(mine[number] == theirs[number] for number in shared)


def test_history_grows_while_somebody_watches(web: httpx.Client, url: str) -> None:
    with web.stream("GET", f"{url}api/stream") as response:
        seen = events(response)
        for _ in range(6):
            next(seen)
    body = web.get(f"{url}api/history").json()
    assert body["columns"] == ["time", "busy", "utilisation", "power", "host_in", "host_out"]
    assert body["seconds"] == 600
    assert len(body["points"]) >= 2
    times = [row[0] for row in body["points"]]
    assert times == sorted(times)


def test_a_system_that_does_not_exist_is_a_problem_and_not_a_crash(
    serve: Serve, web: httpx.Client
) -> None:
    _, url = serve(env={"SOFTIPU_SYSTEM": "pod-of-whales"})
    answer = web.get(f"{url}api/snapshot")
    assert answer.status_code == 200
    [problem] = answer.json()["problems"]
    assert problem["code"] == "SIPU-1002"
    assert "pod-of-whales" in problem["what"]
    assert problem["cause"]
    assert problem["remedy"]


def test_a_vipu_server_that_hangs_is_reported_and_the_page_still_answers(
    serve: Serve, web: httpx.Client
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = str(silent.getsockname()[1])
        _, url = serve(env={"IPUOF_VIPU_API_HOST": "127.0.0.1", "IPUOF_VIPU_API_PORT": port})
        assert web.get(url).status_code == 200
        with web.stream("GET", f"{url}api/stream") as response:
            for kind, body in events(response):
                assert kind == "waiting"
                if body["problems"]:
                    break
        assert body["problems"][0]["code"] == "SIPU-1405"


def test_a_vipu_server_that_is_gone_is_reported(serve: Serve, web: httpx.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = str(gone.getsockname()[1])
    _, url = serve(env={"IPUOF_VIPU_API_HOST": "127.0.0.1", "IPUOF_VIPU_API_PORT": port})
    [problem] = web.get(f"{url}api/snapshot").json()["problems"]
    assert problem["code"] == "SIPU-1404"


def test_files_come_with_strict_headers_and_right_types(web: httpx.Client, url: str) -> None:
    page = web.get(url)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    script = web.get(f"{url}static/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-security-policy"] == policy
    for path in ("static/../server.py", "static/%2e%2e%2fserver.py", "static/none.js", "docs"):
        assert web.get(url + path).status_code == 404


def test_no_file_of_the_page_refers_to_another_site() -> None:
    folder = Path(command.__file__).with_name("static")
    for path in folder.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", "").replace("//\n", ""), path.name
        assert "innerHTML" not in text
        assert "insertAdjacentHTML" not in text


# --- whom it refuses -------------------------------------------------------------------------


def test_foreign_host_names_are_refused_on_loopback(web: httpx.Client, url: str) -> None:
    for host in ("evil.example", "evil.example:8484", "127.0.0.1.evil.example", ""):
        answer = web.get(f"{url}api/snapshot", headers={"Host": host})
        assert answer.status_code in (400, 421)
        assert "partitions" not in answer.text
    for good in ("localhost:9999", "127.0.0.1", "[::1]:80"):
        assert web.get(url, headers={"Host": good}).status_code == 200


def test_the_key_opens_by_address_header_or_cookie_and_by_nothing_else(
    serve: Serve, web: httpx.Client
) -> None:
    _, printed = serve("--access-key", KEY)
    url, _, query = printed.partition("?")
    assert query == f"key={KEY}"
    for path in ("", "static/main.js", "api/snapshot", "api/history", "api/stream"):
        assert web.get(url + path).status_code == 401
        assert web.get(f"{url}{path}?key=open-sesamE").status_code == 401
    wrong = web.get(f"{url}api/snapshot", headers={"Cookie": "softipu_dashboard=x"})
    assert wrong.json()["code"] == "SIPU-1407"
    bearer = {"Authorization": f"Bearer {KEY}"}
    assert web.get(f"{url}api/snapshot", headers=bearer).status_code == 200
    with httpx.Client(verify=False) as browser:
        first = browser.get(printed)
        assert first.status_code == 200
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert KEY not in cookie
        again = browser.get(f"{url}api/snapshot")
        assert again.status_code == 200
        assert "set-cookie" not in again.headers


def test_other_machines_need_a_key(start: Any, serve: Serve, web: httpx.Client) -> None:
    code, text = refused(start, "--host", "0.0.0.0", "--port", "0")
    assert code == 1
    assert "SIPU-1412" in text
    assert "--access-key" in text
    _, printed = serve("--host", "0.0.0.0", "--access-key", KEY)
    port = printed.split(":")[2].partition("/")[0]
    assert web.get(f"http://127.0.0.1:{port}/?key={KEY}").status_code == 200


def test_a_key_may_come_from_a_file(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    _, printed = serve("--access-key-file", str(path))
    assert printed.endswith(f"?key={KEY}")


@pytest.mark.parametrize("key", ["", "short", "with space in it", "tab\tinside-it"])
def test_weak_or_odd_keys_are_refused(key: str) -> None:
    with pytest.raises(errors.InvalidSetting):
        command.main(["--access-key", key])


def test_a_taken_port_is_an_error_with_a_way_out(start: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, text = refused(start, "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "SIPU-1502" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_when_told_to_even_with_a_viewer(
    serve: Serve, web: httpx.Client, number: signal.Signals
) -> None:
    process, url = serve()
    watching = threading.Event()

    def watch() -> None:
        with web.stream("GET", f"{url}api/stream") as response:
            for _ in events(response):
                watching.set()

    viewer = threading.Thread(target=watch)
    viewer.start()
    assert watching.wait(10)
    process.send_signal(number)
    assert process.wait(10) == 0
    viewer.join(10)
    assert not viewer.is_alive()


def test_a_hanging_collection_does_not_delay_the_end(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = str(silent.getsockname()[1])
        process, _ = serve(env={"IPUOF_VIPU_API_HOST": "127.0.0.1", "IPUOF_VIPU_API_PORT": port})
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "70000"],
        ["--interval", "0.1"],
        ["--interval", "nan"],
        ["--history", "0"],
        ["--hots", "x"],
    ],
)
def test_wrong_options_are_usage_errors(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
def test_an_address_that_is_not_ours_is_explained(host: str) -> None:
    with pytest.raises(errors.InvalidSetting, match=host):
        command.main(["--host", host, "--access-key", KEY])


def test_the_command_costs_no_web_framework_before_it_serves() -> None:
    code = (
        "import sys; import softipu.tools.dashboard.command as c; c.parser(); "
        "sys.exit(any(m in sys.modules for m in ('fastapi', 'uvicorn', 'starlette')))"
    )
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": SOURCE}).returncode == 0


def test_addresses_are_printed_as_people_open_them() -> None:
    assert command.address("127.0.0.1", 80, None) == "http://127.0.0.1:80/"
    assert command.address("::1", 80, None) == "http://[::1]:80/"
    assert command.address("box", 80, "a&b#c%20d") == "http://box:80/?key=a%26b%23c%2520d"
