"""What the neutral graph, the machine model and the reports say when they can't go on."""

from __future__ import annotations

from .base import SoftIPUError

# --- 80xx: graphs and estimates --------------------------------------------------------------


class GraphMalformed(SoftIPUError):
    code = 8001
    cause = "An op graph breaks a rule of `softipu.graph`: whoever built it is wrong."
    remedy = "Correct the graph; for one that softipu captured itself, report the model as a bug."
