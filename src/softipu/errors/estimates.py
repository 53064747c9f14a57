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


# --- 805x and 806x: reports and profiles -------------------------------------------------------


class ReportUnwritable(SoftIPUError):
    code = 8050
    cause = "The directory can't be made or written to, or what stands there is no directory."
    remedy = "Name a directory that you may write to, on a disk with space left."


class ProfileMissing(SoftIPUError):
    code = 8051
    cause = "No run with profiling has written a profile there."
    remedy = (
        'Run with POPLAR_ENGINE_OPTIONS=\'{"autoReport.all":"true"}\' or `softipu run --profile '
        "DIR`, and name the directory that holds profile.pop, or the file."
    )


class ProfileUnreadable(SoftIPUError):
    code = 8052
    cause = "The file is cut off, was changed, or is no profile that softipu wrote."
    remedy = "Write it anew: run the program with profiling again."


class ProfileTooNew(SoftIPUError):
    code = 8053
    cause = "A later softipu wrote the file, in a form that this one doesn't know."
    remedy = "Read it with the softipu that wrote it, or a later one."


class ProfileForeign(SoftIPUError):
    code = 8054
    cause = "The file comes from Graphcore's own tools, whose form is not public."
    remedy = "Open it with PopVision; softipu reads the profiles that softipu writes."


class ProfileLacks(SoftIPUError, AttributeError):
    """An AttributeError too, so that `hasattr` says no."""

    code = 8055
    cause = "Misspelt, or a name of libpva whose figure the machine model doesn't know or invent."
    remedy = "See docs/report.md for what `pva` reads from a profile of softipu."


class HloUnreadable(SoftIPUError):
    code = 8070
    cause = "The text is no HLO as XLA prints it, or has shapes that are not known in numbers."
    remedy = "Give the text of `softipu.frontends.tensorflow.hlo`; trace with fixed shapes."


class ModelNotRun(SoftIPUError):
    code = 8071
    cause = "What a model computes is known once it was traced for a batch."
    remedy = "Call fit (mode `train`), evaluate (`test`) or predict (`predict`) first."


class EstimateNeedsBatch(SoftIPUError):
    code = 8072
    cause = "A graph for an IPU has shapes that are known in numbers before it runs."
    remedy = "Give every open dimension a size, as in `micro_batch_size`."


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
    cause = "Estimates are made of models, functions of tensors, graphs, and programs for IPUs."
    remedy = "Give the model itself, the compiled model or program, or a `softipu.graph.Graph`."


class OptionsContradict(SoftIPUError, ValueError):
    code = 8014
    cause = "Two arguments of an estimate can't both be meant."
    remedy = "Leave one of the two out."


class EstimateTargetUnknown(SoftIPUError):
    code = 8015
    cause = "`softipu estimate` takes the name of a model, module:function, or an exported file."
    remedy = "See `softipu estimate --help`."


class EstimateTargetFailed(SoftIPUError):
    code = 8019
    cause = "The function that was named, or the model that it makes, raised an exception."
    remedy = "Correct it there; called from a script of its own, the function fails alike."


class SweepUnreadable(SoftIPUError):
    code = 8016
    cause = "A sweep is written as a name and its values: micro_batch=1,2,4,8."
    remedy = "See `softipu estimate --help`."


class OutOfMemory(SoftIPUError, RuntimeError):
    code = 8017
    cause = "By the machine model, the program needs more memory on a tile than the IPU has."
    remedy = "Follow the suggestions of the message, or unset SOFTIPU_STRICT to run it anyway."


class EstimateFailed(SoftIPUError):
    code = 8018
    cause = "Making the graph or the estimate of a program failed in a way that nobody foresaw."
    remedy = "Report the program as a bug of softipu; results of runs don't depend on estimates."
