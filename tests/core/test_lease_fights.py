"""Many processes fight for few IPUs, and many of them are killed: never two owners, never a leak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from softipu import devices

ARENA = Path(__file__).with_name("lease_arena.py")
SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.alone
@pytest.mark.stress
def test_64_processes_fight_for_16_ipus_with_a_tenth_of_the_rounds_killed(state: Path):
    answer = subprocess.run(
        [sys.executable, str(ARENA), "64", "5000"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        timeout=200,
    )
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    print(result)
    assert result["violations"] == 0, "two processes held one IPU at the same time"
    assert result["failures"] == 0, answer.stderr
    assert result["held_at_end"] == 0, "an IPU stayed held after everybody was gone"
    assert result["rounds"] >= 5000
    assert result["kills"] >= 500
    with devices.attach(16) as lease:
        assert len(lease.ids) == 16
    # Killed writers leave at most one unfinished file per record, so rubbish cannot pile up.
    assert len(list((state / "ipus").iterdir())) <= 16 * 5
