"""Copies, saved states, JSON and freezing of options, for random settings."""

from __future__ import annotations

import copy
import enum
import json
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from options_support import comparable, plain_surroundings  # noqa: F401

from poptorch import options as options_module
from poptorch._errors import Error
from poptorch._options_validate import _validateOptions
from poptorch.enums import (
    ConnectionType,
    MeanReductionStrategy,
    OutputMode,
    ReductionType,
    SyncPattern,
)
from poptorch.options import (
    Options,
    PipelinedExecution,
    ShardedExecution,
    Stage,
)

_word = st.text("abcdefgh_", min_size=1, max_size=8)
_some = st.integers(1, 9)
_yes = st.booleans()
_dict = st.dictionaries(_word, _word, max_size=3)

#: Setters with strategies for their arguments; all of these can be written in JSON too.
CALLS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "deviceIterations": (_some,),
    "replicationFactor": (_some,),
    "broadcastBuffers": (_yes,),
    "maxRepeatLogs": (st.none() | _some,),
    "autoRoundNumIPUs": (_yes,),
    "anchorTensor": (_word, _word, st.none() | st.sampled_from(OutputMode), _some),
    "outputMode": (st.sampled_from(OutputMode), _some),
    "connectionType": (st.sampled_from(ConnectionType),),
    "syncPattern": (st.sampled_from(SyncPattern),),
    "setAvailableMemoryProportion": (
        st.dictionaries(_some.map("IPU{}".format), st.floats(0, 1), max_size=3),
    ),
    "modelName": (_word,),
    "useIpuModel": (_yes,),
    "useIpuId": (_some,),
    "useOfflineIpuTarget": (st.sampled_from([1, 2, 21]),),
    "enableExecutableCaching": (st.none() | _word,),
    "enableSyntheticData": (_yes,),
    "logCycleCount": (_yes,),
    "enableProfiling": (_word,),
    "updatableNamedBuffers": (st.lists(_word, max_size=3),),
    "relaxOptimizerAttributesChecks": (_yes,),
    "showCompilationProgressBar": (_yes,),
    "sourceLocationExcludes": (st.lists(_word, max_size=3),),
    "appendToLocationExcludes": (_word, _word),
    "disableModuleNamescope": (),
    "Training.gradientAccumulation": (_some,),
    "Training.accumulationAndReplicationReductionType": (
        st.sampled_from([ReductionType.Mean, ReductionType.Sum]),
    ),
    "Training.setMeanAccumulationAndReplicationReductionStrategy": (
        st.sampled_from([MeanReductionStrategy.Running, MeanReductionStrategy.Post]),
    ),
    "Training.setConvolutionDithering": (_yes,),
    "Precision.enableStochasticRounding": (_yes,),
    "TensorLocations.numIOTiles": (st.integers(16, 96).map(lambda half: 2 * half),),
    "Distributed.configureProcessId": (_some, _some),
    "_Popart.set": (st.sampled_from(["reportOptions", "gclOptions"]), _dict),
    "_Popart.setEngineOptions": (_dict,),
}

_call = st.sampled_from(sorted(CALLS)).flatmap(
    lambda name: st.tuples(st.just(name), st.tuples(*CALLS[name]))
)
random_calls = st.lists(_call, max_size=12)


def called(options: Options, name: str, arguments: tuple[Any, ...]) -> Any:
    target: Any = options
    for part in name.split("."):
        target = getattr(target, part)
    return target(*arguments)


def made_by(calls: list[tuple[str, tuple[Any, ...]]]) -> Options:
    options = Options()
    for name, arguments in calls:
        called(options, name, arguments)
    return options


@settings(max_examples=60, deadline=None)
@given(random_calls)
def test_copies_pickles_and_saved_states_are_equal_and_independent(calls: Any) -> None:
    options = made_by(calls)
    before = comparable(options)
    saved = json.dumps(options._toState(), allow_nan=False)
    for duplicate in (
        options.clone(),
        copy.deepcopy(options),
        pickle.loads(pickle.dumps(options)),
        Options._fromState(json.loads(saved)),
    ):
        assert repr(duplicate) == repr(options)
        assert comparable(duplicate) == before
        duplicate.deviceIterations(77).anchorTensor("new", "new")
        duplicate.Training.setAutomaticLossScaling(True)
        duplicate.Distributed.configureProcessId(5, 6)
        duplicate.appendToLocationExcludes("new")
        assert duplicate._Popart.options["automaticLossScalingSettings.enabled"] is True
        assert comparable(options) == before


@settings(max_examples=60, deadline=None)
@given(random_calls)
def test_the_same_settings_in_json_give_the_same_options(calls: Any) -> None:
    def plain(value: Any) -> Any:
        return f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else value

    by_json = Options()
    for name, arguments in calls:
        text = json.dumps({name: [plain(argument) for argument in arguments]})
        assert by_json.from_json(text) is by_json
    assert repr(by_json) == repr(made_by(calls))


@settings(max_examples=60, deadline=None)
@given(random_calls)
def test_the_compiler_takes_whatever_the_setters_took(calls: Any) -> None:
    options = made_by(calls)
    if options.defaultOutputMode():
        options.outputMode(OutputMode.All)
    _validateOptions(options.toDict())


@settings(max_examples=60, deadline=None)
@given(random_calls, _call)
def test_frozen_options_refuse_every_change(calls: Any, change: Any) -> None:
    options = made_by(calls)
    options._freeze()
    before = repr(options)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        called(options, *change)
    assert repr(options) == before
    called(options.clone(), *change)
    options._unfreeze()
    called(options, *change)


def test_frozen_options_refuse_assignment_and_deletion_too() -> None:
    options = Options()
    options.checkIsFrozen()
    options._freeze()
    for change in (
        lambda: setattr(options, "device_iterations", 2),
        lambda: setattr(options, "_execution_strategy", ShardedExecution()),
        lambda: options.set(device_iterations=2),
        lambda: options.createOrSet(random_seed=2),
        lambda: options.deleteIfExists("device_iterations"),
        lambda: options.setExecutionStrategy(ShardedExecution()),
        options.checkIsFrozen,
        options.Training.checkIsFrozen,
        options._Popart.checkIsFrozen,
    ):
        with pytest.raises(AttributeError, match="Can't modify frozen Options"):
            change()


def test_strategies_survive_copies_and_saved_states() -> None:
    strategy = PipelinedExecution(Stage("A", "B").ipu(1), Stage("C").ipu(0))
    options = Options().setExecutionStrategy(strategy)
    restored = Options._fromState(json.loads(json.dumps(options._toState())))
    for duplicate in (options.clone(), restored):
        assert repr(duplicate._execution_strategy) == repr(strategy)
        assert duplicate._execution_strategy is not strategy


def test_saved_states_hold_values_that_json_has_no_form_for() -> None:
    options = Options()
    options._Popart.set("a", {1, 2}).set("b", (1, "x")).set("c", {3: OutputMode.All, "$enum": 1})
    restored = Options._fromState(json.loads(json.dumps(options._toState())))
    assert restored._Popart.options == options._Popart.options


def test_a_value_that_cannot_be_saved_is_named() -> None:
    options = Options()
    options._Popart.set("mine", torch.zeros(1))
    with pytest.raises(Error, match="Option mine can't be saved"):
        options._toState()


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(Error, match="have format 99"):
        Options._fromState(Options()._toState() | {"format": 99})


def test_groups_can_be_given_another_class() -> None:
    """popdist does this to block setters that it has the say over."""

    class Distributed(options_module._DistributedOptions):
        def disable(self) -> Any:
            raise RuntimeError("Cannot call `Distributed.disable`")

    options = Options()
    options.Distributed.__class__ = Distributed
    with pytest.raises(RuntimeError, match="Cannot call"):
        options.clone().Distributed.disable()


def test_a_subclass_may_have_private_attributes_of_its_own() -> None:
    class Mine(Options):
        def __init__(self) -> None:
            self._ipus_per_replica = 2
            super().__init__()

    mine = Mine().deviceIterations(2)
    assert mine.clone()._ipus_per_replica == 2
    assert isinstance(mine.clone(), Mine)


def test_options_print_what_was_set() -> None:
    options = Options().replicationFactor(4)
    options._Popart.set("dotChecks", ["ALL"])
    text = str(options)
    assert text.startswith("Options(replication_factor=4, ")
    for part in ("gradient_accumulation=1", "dotChecks=['ALL']", "PipelinedExecution("):
        assert part in text
    assert f"{id(options):x}" not in text


def test_the_same_option_in_two_places_is_an_error_that_names_it() -> None:
    options = Options().outputMode(OutputMode.All)
    options._Popart.set("numIOTiles", 32)
    options.TensorLocations.numIOTiles(64)
    with pytest.raises(AssertionError, match="some keys in common: numIOTiles"):
        options.toDict()


def test_the_dictionary_has_the_progress_bar_unless_it_is_hidden() -> None:
    options = Options().outputMode(OutputMode.All)
    assert options.toDict()["compilation_progress_bar_fn"] is options._progress_bar
    hidden = options.showCompilationProgressBar(False).toDict()
    assert "compilation_progress_bar_fn" not in hidden
