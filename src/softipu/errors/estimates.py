"""What the neutral graph, the machine model and the reports say when they can't go on."""

from __future__ import annotations

from .base import SoftIPUError

# --- 80xx: graphs and estimates --------------------------------------------------------------


class GraphMalformed(SoftIPUError):
    code = 8001
    cause = "An op graph breaks a rule of `softipu.graph`: whoever built it is wrong."
    remedy = "Correct the graph; for one that softipu captured itself, report the model as a bug."


class GraphEmpty(SoftIPUError):
    code = 8030
    cause = "The graph has no op that takes time, so there is nothing to estimate."
    remedy = "Capture a model that computes something; check that its outputs depend on its inputs."


class SettingsContradict(SoftIPUError):
    code = 8031
    cause = "Two settings, or a setting and the graph, can't both hold on any IPU."
    remedy = "Change one of the two; `python -m softipu.arch` lists what each system has."


class ModelTooLarge(SoftIPUError):
    code = 8032
    cause = "Even in streaming memory the weights and states have no room in the whole system."
    remedy = "Use more IPUs, shard over replicas, or a smaller model."


class EstimateShapesDynamic(SoftIPUError):
    code = 8010
    cause = "A graph for an IPU has shapes that are known in numbers before it runs."
    remedy = "Capture the model with inputs of fixed sizes, without symbolic dimensions."


class EstimateGraphEmpty(SoftIPUError):
    code = 8011
    cause = "The graph has no operation that takes any time, so there is nothing to estimate."
    remedy = "Give a model that computes something of its inputs."
