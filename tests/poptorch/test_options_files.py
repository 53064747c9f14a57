"""Options from files and from the environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from options_support import plain_surroundings  # noqa: F401

from poptorch import options as options_module
from poptorch.enums import (
    ConnectionType,
)
from poptorch.options import (
    ConfigFileError,
    Options,
    ShardedExecution,
)


def test_options_load_from_files_one_after_the_other(tmp_path: Path) -> None:
    first, second = tmp_path / "a.conf", tmp_path / "b.conf"
    first.write_text(
        "# comment\ndeviceIterations(2)\n\n   replicationFactor(2)  # two\n"
        'setExecutionStrategy(poptorch.ShardedExecution("A"))\n'
        "Training.gradientAccumulation(3)\n"
    )
    second.write_text("deviceIterations(1)\n")
    options = Options()
    assert options.loadFromFile(str(first)).loadFromFile(str(second)) is options
    assert (options.device_iterations, options.replication_factor) == (1, 2)
    assert options.Training.gradient_accumulation == 3
    assert isinstance(options._execution_strategy, ShardedExecution)


def test_a_line_that_is_not_python_is_named_and_nothing_is_set(tmp_path: Path) -> None:
    path = tmp_path / "tmp.conf"
    path.write_text("deviceIterations(2)\n\n# no\noutputMode(poptorch.OutputMode.All")
    options = Options()
    with pytest.raises(options_module.ConfigFileError) as caught:
        options.loadFromFile(str(path))
    assert (
        "SyntaxError at line 2 of tmp.conf: unexpected EOF while parsing\n"
        "> options.outputMode(poptorch.OutputMode.All" in str(caught.value)
    )
    assert "line 4 of the whole file" in str(caught.value)
    assert options.device_iterations == 1
    assert ConfigFileError.__module__ == "poptorch.options"


def test_an_error_in_a_file_is_traced_to_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tmp.conf"
    path.write_text("\n\ndeviceIteration(2)\n")
    with pytest.raises(AttributeError, match="Did you mean deviceIterations") as caught:
        Options().loadFromFile(str(path))
    places = [(str(entry.path), entry.lineno + 1) for entry in caught.traceback]
    assert (str(path), 3) in places


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Options().loadFromFile(str(tmp_path / "none.conf"))


def test_the_environment_gives_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    text = {
        "deviceIterations": 2,
        "connectionType": "ConnectionType.OnDemand",
        "Precision.enableFloatingPointExceptions": True,
        "_Popart.set": ["saveInitializersToFile", "my_file.onnx"],
    }
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", json.dumps(text))
    expected = Options.from_json(Options.clone(Options()), "{}")
    assert expected.device_iterations == 2
    assert expected.connection_type == ConnectionType.OnDemand
    assert expected._Popart.options["enableFloatingPointChecks"] is True
    # A text with a dot that names no enum stays a text.
    assert expected._Popart.options["saveInitializersToFile"] == "my_file.onnx"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("{", ValueError, "not JSON"),
        ("[1]", ValueError, "an object of values by setter"),
        ('{"deviceIteration": 1}', AttributeError, "Did you mean deviceIterations"),
        ('{"deviceIterations": "x"}', AssertionError, "Unexpected type"),
        ('{"deviceIterations": [1, 2]}', TypeError, "too many"),
    ],
)
def test_a_wrong_default_names_the_environment_variable(
    text: str, error: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", text)
    with pytest.raises(error, match=f"POPTORCH_DEFAULT_OPTIONS: .*{words}"):
        Options()


def test_the_environment_names_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "cache")
    assert Options()._Popart.options["cachePath"] == "cache"
    assert Options()._Popart.options["enableEngineCaching"] is True


def test_the_environment_says_which_process_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("MINE", "many")
    options = Options()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (3, 4)
    with pytest.raises(ValueError, match="MINE='many'"):
        options.Distributed.setEnvVarNames("MINE", "RANK")
