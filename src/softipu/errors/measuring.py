"""What the harness and the benchmark runner report."""

from __future__ import annotations

from .base import SoftIPUError

# --- 60xx: the CNN benchmark harness ---------------------------------------------------------


class UnknownModel(SoftIPUError):
    code = 6001
    cause = "The harness has no model of that name."
    remedy = "`softipu bench run --help` lists the models."


class UnknownConfig(SoftIPUError):
    code = 6002
    cause = "The file of configurations has none of that name."
    remedy = "`softipu bench run --help` lists the configurations."


class ConfigFileUnusable(SoftIPUError):
    code = 6003
    cause = "Configurations are a YAML mapping from names to options of `softipu bench run`."
    remedy = "Correct the file; src/softipu/bench/configs.yml is an example."


class UnfitBenchOption(SoftIPUError):
    code = 6004
    cause = "An option of the harness has a value of the wrong type or range, or excludes another."
    remedy = "`softipu bench run --help` says what each option takes."


class NoSuchLayer(SoftIPUError):
    code = 6005
    cause = "Pipelines are split at layers, named by their path in the model, in the model's order."
    remedy = "Name layers as `model.named_modules()` does, with / or . between the parts."


class GroupsUneven(SoftIPUError):
    code = 6006
    cause = "Channels are divided into groups of one size."
    remedy = "Choose another --norm-num-groups or --efficientnet-group-dim."


class WeightsUnusable(SoftIPUError):
    code = 6007
    cause = "The file holds no state dict, or that of another model."
    remedy = "Save it with `torch.save(model.state_dict(), FILE)`, from the same model and options."


class ImagesMissing(SoftIPUError):
    code = 6008
    cause = "The folder does not exist, or there is no image in it or in its subfolders."
    remedy = "Name a folder with images in --data-path, or use --data generated."


class ImageUnreadable(SoftIPUError):
    code = 6009
    cause = "The file is damaged, or no image, or may not be read."
    remedy = "Remove or replace the file."


class BenchPackageMissing(SoftIPUError):
    code = 6010
    cause = "The CNN harness needs packages that softipu's other parts do without."
    remedy = "`pip install 'softipu[torch,bench]'`."


class HarnessRefused(SoftIPUError):
    code = 6011
    cause = "PopTorch refused the model, the options or the data that the harness gave it."
    remedy = (
        "Change the option that the message speaks of; for more IPUs, set SOFTIPU_SYSTEM to a "
        "larger system (for example bow-pod64)."
    )


# --- 6050–6099: the benchmark runner -------------------------------------------------------------


class SpecMissing(SoftIPUError):
    code = 6050
    cause = "No file lies where --spec points (the default is benchmarks.yml in this directory)."
    remedy = "Check the path; put a wildcard in quotes so that the runner resolves it."


class SpecMalformed(SoftIPUError):
    code = 6051
    cause = "A spec file is YAML: a mapping from names to benchmarks, each itself a mapping."
    remedy = "Correct the file where the message points; docs/benchmark-runner.md has an example."


class BenchmarkUnknown(SoftIPUError):
    code = 6052
    cause = "A name given with --benchmark is in none of the spec files."
    remedy = "Choose a name that `--dry-run` lists; wildcards such as 'resnet50_*' are allowed."


class BenchmarkInvalid(SoftIPUError):
    code = 6053
    cause = "An entry of a spec file has a value that the runner cannot use."
    remedy = "Correct the entry; docs/benchmark-runner.md lists the keys and what they take."


class PlaceholderUnknown(SoftIPUError):
    code = 6054
    cause = "A {name} in a command or expression is filled from `parameters` (or metrics)."
    remedy = "Add the parameter, correct its name, or write {{ and }} for braces that are meant."


class RunnerEnvironment(SoftIPUError):
    code = 6055
    cause = "The benchmark needs an environment variable that is not set."
    remedy = "Set the variables that the message names."


class ProgramMissing(SoftIPUError):
    code = 6056
    cause = "The program that the command begins with is not on PATH."
    remedy = "Install it, correct PATH, or name the program with its directory."


class PreRunFailed(SoftIPUError):
    code = 6057
    cause = "A command under `pre_run_commands` failed, so the benchmark was not started."
    remedy = "Look at the log that the message names; --no-pre-run leaves these commands out."


class BenchmarkFailed(SoftIPUError):
    code = 6058
    cause = "The benchmark's process ended with an error of its own."
    remedy = "Look at its log, which the message names."


class BenchmarkTimeout(SoftIPUError):
    code = 6059
    cause = "The benchmark ran longer than --timeout or its own `timeout` allows, and was stopped."
    remedy = "Allow it more time, or look into its log for where it hangs."


class MetricMissing(SoftIPUError):
    code = 6060
    cause = "A metric's regexp must match the output more often than `skip`, each time a number."
    remedy = "Compare the benchmark's log with the metric's regexp."


class RunnerUnsupported(SoftIPUError):
    code = 6061
    cause = "The runner does not offer this on a software IPU."
    remedy = "Leave out what the message names."


class RequirementsFailed(SoftIPUError):
    code = 6062
    cause = "What a benchmark needs installed could not be installed."
    remedy = "Install it by hand, or take the key out of the spec file."


class BenchDependency(SoftIPUError, ImportError):
    code = 6063
    cause = "Measuring needs a few packages that softipu alone does not."
    remedy = "Run `pip install 'softipu[bench]'`."


class CustomMetricFailed(SoftIPUError):
    code = 6064
    cause = "A file given with --custom-metrics-files is Python code that registers functions."
    remedy = "Correct the file; see `register_custom_metric` in docs/benchmark-runner.md."


class RunInterrupted(SoftIPUError):
    code = 6065
    cause = "The runner was stopped from outside (Ctrl-C or a signal) during this benchmark."
    remedy = "Run it again; the results so far are in the log directory."


class LogsUnwritable(SoftIPUError):
    code = 6066
    cause = "The directory for logs and results can't be made or written to."
    remedy = "Name another one with --log-dir."


class ResultsUnreadable(SoftIPUError):
    code = 6067
    cause = "Plots are made from benchmark_results.json or .csv files, or directories with them."
    remedy = "Name a log directory of the runner, or one of these files."


class CopyrightMissing(SoftIPUError):
    code = 6068
    cause = "Source files that are not empty must have a copyright line near their beginning."
    remedy = "Add the line, let --amend add it, or list the files with --exclude-json."


class CppExtensionUnsupported(SoftIPUError, RuntimeError):
    code = 6069
    cause = "Compiled operations for Poplar or PopART can't be built or run here."
    remedy = "Register a Python function in their place: see poptorch.register_custom_op."


class NotebookFailed(SoftIPUError):
    code = 6070
    cause = "A cell of the notebook raised an error, ran too long, or its kernel died."
    remedy = "Run the notebook by hand to see more."
