"""What the compiler takes of the options, and what it says about them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from options_support import plain_surroundings  # noqa: F401

import poptorch
from poptorch import _logging
from poptorch._errors import Error
from poptorch._options_popart import PATTERNS, POPART_OPTIONS, SESSION_OPTIONS
from poptorch._options_validate import _validateOptions
from poptorch.enums import (
    OutputMode,
)
from poptorch.options import (
    OPTION_ROWS,
    Options,
    ShardedExecution,
    TensorLocationSettings,
)


def validated(key: str, value: Any) -> None:
    options = Options().outputMode(OutputMode.All)
    options._Popart.set(key, value)
    _validateOptions(options.toDict())


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("asdfasdf", True, "Unknown bool option asdfasdf"),
        ("asdfasdf", 1, "Unknown uint64 option asdfasdf"),
        ("asdfasdf", ["a"], "Unknown set / vector option asdfasdf"),
        ("asdfasdf", {"a": "b"}, "Unknown map option asdfasdf"),
        ("enableOutlinin", True, r"Did you mean enableOutlining\?"),
        ("enableOutlining", 1, r"Unknown uint64 option enableOutlining[\s\S]*is a bool option"),
        ("outlineThreshold", 1, "floating point option"),
        ("dotChecks", "ALL", "Unknown string option dotChecks"),
        ("dotChecks", torch.empty(1, 1), "Unknown value type .* for option dotChecks"),
        ("dotChecks", None, "Unknown value type .* for option dotChecks"),
        ("dotChecks", [1.5], "Don't know how to convert type .*float.* to string"),
        ("autoRecomputation", 5, "Value for RecomputationType out of range"),
        ("autoRecomputation", -1, "Value for RecomputationType out of range"),
        ("batchSerializationSettings.factor", 2**64, "out of range"),
        ("hardwareInstrumentations", {2}, "Value for Instrumentation out of range"),
        ("patterns", {"PadSum": True}, "without first setting 'patterns_level'"),
        ("location_nowhere", {"onChip": 1}, "Unknown tensor location location_nowhere"),
        ("location_weight", {"onchip": 1}, r"Did you mean onChip\?"),
    ],
)  # fmt: skip
def test_an_option_that_the_compiler_has_not_is_an_error(key: str, value: Any, words: str) -> None:
    with pytest.raises(Error, match=words) as caught:
        validated(key, value)
    assert "Way out:" in str(caught.value)


def test_patterns_are_checked_by_name_and_level() -> None:
    options = Options().outputMode(OutputMode.All)
    for level in range(4):
        options._Popart.setPatterns(dict.fromkeys(PATTERNS, True), level)
        _validateOptions(options.toDict())
    options._Popart.setPatterns({"Inplace": True}, 0)
    with pytest.raises(Error, match=r"Unknown pattern Inplace.[\s\S]*Did you mean InPlace"):
        _validateOptions(options.toDict())
    options._Popart.setPatterns({}, 4)
    with pytest.raises(Error, match="PatternsLevel out of range"):
        _validateOptions(options.toDict())


EXAMPLES: dict[str, Any] = {
    "bool": False,
    "uint64": 1,
    "floating point": 0.5,
    "string": "x",
    "container": ["1"],
}


@pytest.mark.parametrize("name", sorted(POPART_OPTIONS))
def test_each_known_popart_option_is_taken_with_its_type_and_no_other(name: str) -> None:
    kind = SESSION_OPTIONS[name].kind
    validated(name, EXAMPLES[kind])
    for other in EXAMPLES.keys() - {kind}:
        with pytest.raises(Error, match="Unknown .* option"):
            validated(name, EXAMPLES[other])


def test_every_public_option_is_known_to_the_compiler_table() -> None:
    handled_apart = {"anchored_tensors", "available_memory_proportion"}
    for row in OPTION_ROWS:
        if row.where == "private" or not row.key or row.group == "TensorLocationSettings":
            continue
        if not row.key.startswith("location_") and row.key not in handled_apart:
            assert row.key in SESSION_OPTIONS, row.name


def test_accepted_options_are_logged_the_way_poptorch_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    poptorch._logging.setLogLevel("DEBUG")
    options = Options().outputMode(OutputMode.All).setExecutionStrategy(ShardedExecution())
    options.TensorLocations.setWeightLocation(TensorLocationSettings().useOnChipStorage(True))
    options._Popart.set("hardwareInstrumentations", {0}).set("dotChecks", ["FINAL"])
    options._Popart.set("engineOptions", {"debug.allowOutOfMemory": "true"})
    options._Popart.set("enableOutlining", True).set("outlineThreshold", 0.5)
    options._Popart.set("logDir", "x")
    options.Training.setConvolutionDithering(True)
    _validateOptions(options.toDict())
    written = capsys.readouterr().err
    for line in (
        "[poptorch:cpp] [debug] poptorch.Options set replication_factor to value 1\n",
        "poptorch.Options set execution_mode to value 1\n",
        "poptorch.Options set input_cgt to value 1\n",
        "poptorch.Options set accumulation_and_replication_reduction_type to value 1\n",
        "poptorch.Options set log_dir to value .\n",
        "poptorch.Options set enableOutlining to value true\n",
        "poptorch.Options set outlineThreshold to value 0.5\n",
        "poptorch.Options added 0 to hardwareInstrumentations\n",
        "poptorch.Options added FINAL to dotChecks\n",
        "poptorch.Options set engineOptions[debug.allowOutOfMemory] to true\n",
        "poptorch.Options set convolutionOptions[enableConvDithering] to 1\n",
        "Setting onChip to 1 for location location_weight\n",
        "use poptorch.Options.logDir() instead\n",
    ):
        assert line in written, line


def test_the_limit_of_repeated_lines_follows_the_options() -> None:
    options = Options().outputMode(OutputMode.All)
    try:
        _validateOptions(options.maxRepeatLogs(2).toDict())
        assert _logging.RepeatedLines.shared_limit == 2
    finally:
        _validateOptions(options.maxRepeatLogs(4).toDict())
