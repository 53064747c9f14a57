"""`softipu demo`: the newcomer's first minute, as `make demo` runs it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from softipu.errors import SelfTestFailed, SoftIPUError
from softipu.tools import demo, demo_progress

TOOL = Path(sys.executable).with_name("softipu")
installed = pytest.mark.skipif(
    not TOOL.exists(), reason="softipu is not installed beside this Python"
)


def processes_of_session(session: int) -> list[str]:
    """The commands of live processes that a session leader left behind."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue  # It ended while we looked.
        state, _parent, _group, its_session = rest.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(name)
    return found


@installed
def test_the_demo_trains_on_a_pod_shows_it_and_leaves_nothing_behind(tmp_path: Path):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    # What the user has configured must not be touched: here, servers that do not answer, options
    # that no model could run with, and files that would be imported in the place of ours.
    elsewhere = {
        "VIPU_CLI_API_HOST": "127.0.0.1:9",
        "IPUOF_VIPU_API_HOST": "127.0.0.1:9",
        "POPTORCH_DEFAULT_OPTIONS": "deviceIterations(1000000)",
        "POPTORCH_CACHE_DIR": "/proc/no-such-folder",
        "OMPI_COMM_WORLD_SIZE": "7",
    }
    work = tmp_path / "work"
    work.mkdir()
    for module in ("poptorch", "sklearn", "softipu") if sys.version_info >= (3, 11) else ():
        (work / f"{module}.py").write_text("raise SystemExit('the wrong module')\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [TOOL, "demo"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | elsewhere | {"TMPDIR": str(temporary)},
        cwd=work,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Dashboard: "):
                with urllib.request.urlopen(line.split()[1], timeout=30) as page:
                    assert b"softipu" in page.read()
    text = "".join(lines)
    assert process.returncode == 0, text
    assert "create partition (demo): success." in text
    working, killed, ended = text.split("$ gc-monitor")[1:]
    assert holders(working) == {"neighbour": 8, "python": 4}
    assert holders(killed) == {"python": 4}
    assert "No attached processes in partition demo" in ended
    assert re.findall(r"^epoch +(\d+): 44 steps in", text, re.M) == [str(n) for n in range(1, 13)]
    accuracy = re.search(r"Accuracy on 360 held-out digits: ([\d.]+)%", text)
    assert accuracy is not None
    assert float(accuracy[1]) > 97
    assert re.search(r"Time per epoch: [\d.]+ s", text)
    assert "\r" not in text, "a bar was drawn where nobody sees it move"
    assert not list(temporary.glob("softipu-demo-*"))
    assert processes_of_session(process.pid) == []


def holders(output: str) -> Counter[str]:
    """How many IPUs each command holds, by the table of gc-monitor."""
    commands = re.findall(r"^\| +\d+ +\| +(\w+)[\d.]* .*MHz", output, re.M)
    return Counter("python" if name.startswith("python") else name for name in commands)


@pytest.mark.parametrize(
    ("module", "package"), [("torch", "softipu[torch]"), ("sklearn", "scikit-learn")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SoftIPUError) as caught:
        demo.main([])
    assert module in caught.value.what
    assert caught.value.remedy == f"{sys.executable} -m pip install {package!r}"


def child(code: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)


def test_a_training_process_that_fails_is_reported_with_its_status(capsys):
    with child('print(\'{"event": "started", "images": 3}\'); raise SystemExit(3)') as training:
        with pytest.raises(SelfTestFailed, match="The training process ended with 3"):
            demo._follow(training, {}, training)
        assert training.stdin is not None
        training.stdin.close()


def test_a_model_that_learnt_too_little_fails_the_demo(capsys):
    good = demo.Outcome(images=9, epochs=[2.0, 1.0, 3.0], accuracy=0.971, tested=5)
    demo._conclude(good)
    assert "median of 3; the first took 2.00 s" in capsys.readouterr().out
    for accuracy in (0.97, float("nan")):
        good.accuracy = accuracy
        with pytest.raises(SelfTestFailed, match="more than 97% was expected"):
            demo._conclude(good)


# --- progress -------------------------------------------------------------------------------


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_bar_redraws_one_line_and_the_epoch_replaces_it(monkeypatch):
    monkeypatch.setattr(demo_progress, "_SECONDS_BETWEEN_DRAWINGS", 0.0)
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    progress = demo_progress.Progress(stream)
    for step in range(1, 5):
        progress.step(1, step, 4, 0.5)
    progress.epoch(1, 4, 0.25, 1.5)
    drawings = stream.getvalue().split("\r")
    assert drawings[0] == ""
    assert all(len(drawing.rstrip("\n")) < 60 for drawing in drawings)
    assert " 50%|" in drawings[2]
    assert "| 4/4 loss 0.5000" in drawings[4]
    assert drawings[5].startswith("epoch  1: 4 steps in 1.50 s, loss 0.2500")
    # Longer than what it replaces, or padded: nothing of the bar is left on the screen.
    assert len(drawings[5].rstrip("\n")) >= len(drawings[4])
    assert stream.getvalue().count("\n") == 1


def test_elsewhere_only_finished_epochs_are_written():
    stream = io.StringIO()
    progress = demo_progress.Progress(stream)
    progress.step(1, 1, 2, 0.5)
    progress.epoch(1, 2, 0.25, 1.5)
    assert stream.getvalue() == "epoch  1: 2 steps in 1.50 s, loss 0.2500\n"


@pytest.mark.parametrize("symbols", [demo_progress._EIGHTHS, demo_progress._ASCII])
def test_a_bar_fills_from_empty_to_full_and_keeps_its_width(symbols):
    bars = [demo_progress.bar(share / 100, 10, symbols) for share in range(-5, 106)]
    assert {len(bar) for bar in bars} == {10}
    assert bars[0].strip() == ""
    assert bars[-1] == symbols[-1] * 10
    filled = [sum(map(symbols.index, bar)) for bar in bars]
    assert filled == sorted(filled)
