"""A run is modelled on the system whose IPUs it finds, as `softipu estimate --arch SYSTEM` is."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from machine_networks import Net

from softipu.estimating.modelled import Modelled
from softipu.graph import Graph, Schedule
from softipu.machine import Estimate, Settings


def small() -> Graph:
    net = Net("small")
    net.unary("relu", net.conv(net.input("x", (4, 16, 8, 8)), 16, 3))
    return net.build.finish([net.made[0]], Schedule(micro_batch=4))


def asked(graph: Graph, settings: Settings) -> Estimate:
    log = logging.getLogger("softipu.test")
    return Modelled("small", lambda: (graph, settings), large=lambda: False, log=log).estimate()


@pytest.mark.parametrize(("system", "chip"), [("bow-pod64", "bow"), ("pod4", "mk2")])
def test_a_run_is_modelled_on_the_system_of_its_partition(
    monkeypatch: pytest.MonkeyPatch, system: str, chip: str
) -> None:
    monkeypatch.setenv("SOFTIPU_SYSTEM", system)
    assert asked(small(), Settings(chip=chip)).settings.system == system


def test_another_chip_is_not_modelled_on_this_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod16")
    assert asked(small(), Settings(chip="mk2")).settings.system is None


def test_a_program_of_more_ipus_than_the_system_has_is_modelled_on_a_larger_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod4")
    wide = small().with_schedule(replicas=8)
    assert asked(wide, Settings(chip="bow")).settings.system is None
    assert asked(small().with_schedule(replicas=4), Settings(chip="bow")).settings.system


def test_a_system_that_is_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTIPU_SYSTEM", "bow-pod16")
    named = replace(Settings(chip="bow"), system="bow-pod64")
    assert asked(small(), named).settings.system == "bow-pod64"
