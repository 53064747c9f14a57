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


class ArchUnknown(SoftIPUError, ValueError):
    code = 8012
    cause = "The name of a chip or system is misspelt, or not one of `softipu.arch`."
    remedy = "`python -m softipu.arch` lists chips and systems."


class EstimateSourceUnknown(SoftIPUError, TypeError):
    code = 8013
    cause = "Estimates are made of PyTorch models, of functions of tensors, and of graphs."
    remedy = "Give the model itself, the compiled PopTorch model, or a `softipu.graph.Graph`."


class OptionsContradict(SoftIPUError, ValueError):
    code = 8014
    cause = "Two arguments of an estimate can't both be meant."
    remedy = "Leave one of the two out."


class EstimateTargetUnknown(SoftIPUError):
    code = 8015
    cause = "`softipu estimate` takes the name of a model, module:function, or an exported file."
    remedy = "See `softipu estimate --help`."


class SweepUnreadable(SoftIPUError):
    code = 8016
    cause = "A sweep is written as a name and its values: micro_batch=1,2,4,8."
    remedy = "See `softipu estimate --help`."


class OutOfMemory(SoftIPUError, RuntimeError):
    code = 8017
    cause = "By the machine model, the program needs more memory on a tile than the IPU has."
    remedy = "Follow the suggestions of the message, or unset SOFTIPU_STRICT to run it anyway."
