"""`softipu demo`: the newcomer's first minute, as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

TOOL = Path(sys.executable).with_name("softipu")


@pytest.mark.skipif(not TOOL.exists(), reason="softipu is not installed beside this Python")
def test_the_demo_shows_a_pod_at_work_and_leaves_nothing_behind(tmp_path: Path):
    # Servers that the user has configured must not be touched: here, one that does not answer.
    elsewhere = {"VIPU_CLI_API_HOST": "127.0.0.1:9", "IPUOF_VIPU_API_HOST": "127.0.0.1:9"}
    environment = os.environ | elsewhere | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [TOOL, "demo", "--seconds", "1"], stdout=subprocess.PIPE, text=True, env=environment
    ) as demo:
        assert demo.stdout is not None
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if line.startswith("Dashboard: "):
                with urllib.request.urlopen(line.split()[1], timeout=30) as page:
                    assert b"softipu" in page.read()
    text = "".join(lines)
    assert demo.returncode == 0, text
    assert "create partition (demo): success." in text
    working, killed, ended = text.split("$ gc-monitor")[1:]
    for worker in ("worker-8-ipus", "worker-4-ipus", "worker-2-ipus", "worker-1-ipus"):
        assert worker in working
    assert "worker-4-ipus" not in killed
    assert "worker-8-ipus" in killed
    assert "No attached processes in partition demo" in ended
    assert not list(tmp_path.glob("softipu-demo-*"))
