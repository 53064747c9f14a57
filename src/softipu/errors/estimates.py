"""What the neutral graph, the machine model and the reports say when they can't go on."""

from __future__ import annotations

from .base import SoftIPUError

# --- 80xx: graphs and estimates --------------------------------------------------------------


class GraphMalformed(SoftIPUError):
    code = 8001
    cause = "An op graph breaks a rule of `softipu.graph`: whoever built it is wrong."
    remedy = "Correct the graph; for one that softipu captured itself, report the model as a bug."


class EstimateShapesDynamic(SoftIPUError):
    code = 8010
    cause = "A graph for an IPU has shapes that are known in numbers before it runs."
    remedy = "Capture the model with inputs of fixed sizes, without symbolic dimensions."


class EstimateGraphEmpty(SoftIPUError):
    code = 8011
    cause = "The graph has no operation that takes any time, so there is nothing to estimate."
    remedy = "Give a model that computes something of its inputs."
