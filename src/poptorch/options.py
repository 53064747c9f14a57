"""`poptorch.Options`: how a model is compiled and executed, and the settings it is made of.

The setters are generated from the tables in `_options_table*`; this module only puts the groups
together. `OPTION_ROWS` is the same tables as data, for documentation.
"""

from __future__ import annotations

import copy
from typing import Any

from softipu import settings

from ._logging import logger
from ._options_attribute import Attribute
from ._options_file import ConfigFileError, set_from_file, set_from_json
from ._options_impl import Freezable, OptionsDict, ProgressBar
from ._options_rows import Row, with_setters
from ._options_state import restore, to_state
from ._options_table import ROWS
from ._options_table_groups import (
    DISTRIBUTED,
    JIT,
    LOCATION_SETTINGS,
    POPART,
    PRECISION,
    TRAINING,
    tensor_location_rows,
)
from ._strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    _IExecutionStrategy,  # noqa: F401 (PopTorch programs find it here)
)
from .enums import OutputMode

__all__ = [
    "Attribute",
    "BlockId",
    "ConfigFileError",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
]

BlockId = str


@with_setters(JIT)
class _JitOptions(OptionsDict):
    """Options of PyTorch's JIT compiler: nothing is left of them."""


class _WithSessionOptions(OptionsDict):
    """A group some of whose options are kept among the PopART session options."""

    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart = popart_options
        super().__init__()


@with_setters(PRECISION)
class _PrecisionOptions(_WithSessionOptions):
    """Options of the number formats: `opts.Precision`."""


@with_setters(TRAINING)
class _TrainingOptions(_WithSessionOptions):
    """Options of training, which inference models refuse: `opts.Training`."""


@with_setters(POPART)
class _PopartOptions(Freezable):
    """PopART session options by name, in `options`; checked when a model is compiled."""

    def __init__(self) -> None:
        self._is_frozen = False
        self.options: dict[str, Any] = {
            "instrumentWithHardwareCycleCounter": False,
            "rearrangeAnchorsOnHost": False,
        }

    def __repr__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{type(self).__name__}({values})"


@with_setters(DISTRIBUTED)
class _DistributedOptions(OptionsDict):
    """Options of programs that run as several processes: `opts.Distributed`."""

    def __init__(self) -> None:
        self._gcd_mappings: dict[int, int] = {}
        super().__init__()
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    @property
    def processId(self) -> int:
        """The number of this process, from 0."""
        return int(self.distributed_process_id)

    @property
    def numProcesses(self) -> int:
        """How many processes there are."""
        return int(self.num_distributed_processes)


@with_setters(LOCATION_SETTINGS)
class TensorLocationSettings(OptionsDict):
    """Where one kind of tensor is kept; for the setters of `opts.TensorLocations`."""


_TENSOR_LOCATIONS = tensor_location_rows(TensorLocationSettings)


@with_setters(_TENSOR_LOCATIONS)
class _TensorLocationOptions(OptionsDict):
    """Options of where tensors are kept: `opts.TensorLocations`."""


@with_setters(ROWS)
class Options(OptionsDict):
    """How a model is compiled and executed: `poptorch.inferenceModel(model, options)`.

    Setters return the options, so that calls can be chained. Once a model or data loader has them,
    they are frozen; `clone()` makes a copy that is not.
    """

    def __init__(self) -> None:
        self._popart = _PopartOptions()
        self._jit = _JitOptions()
        self._graphProcessing = _PrecisionOptions(self._popart)
        self._training = _TrainingOptions(self._popart)
        self._distributed = _DistributedOptions()
        self._tensor_locations = _TensorLocationOptions()
        self._progress_bar = ProgressBar()
        super().__init__()
        self._read_environment()

    def _read_environment(self) -> None:
        cache = settings.get("POPTORCH_CACHE_DIR")
        if cache:
            logger.info("POPTORCH_CACHE_DIR is set: setting cache path to %s", cache)
            self.enableExecutableCaching(cache)
        defaults = settings.get("POPTORCH_DEFAULT_OPTIONS")
        if defaults:
            try:
                set_from_json(self, defaults)
            except (ValueError, AttributeError, AssertionError, TypeError) as error:
                raise type(error)(f"POPTORCH_DEFAULT_OPTIONS: {error}") from error

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """Where tensors are kept."""
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:
        """Which of how many processes this one is."""
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:
        """What is left of the JIT compiler's options."""
        return self._jit

    @property
    def Precision(self) -> _PrecisionOptions:
        """Number formats."""
        return self._graphProcessing

    @property
    def Training(self) -> _TrainingOptions:
        """Training."""
        return self._training

    @property
    def _Popart(self) -> _PopartOptions:
        """PopART session options by name."""
        return self._popart

    def from_json(self, string: str) -> Options:
        """Call setters by name: `opts.from_json('{"Training.gradientAccumulation": 4}')`.

        A list gives several arguments; "OutputMode.All" is the member of that enum.
        """
        set_from_json(self, string)
        return self

    def loadFromFile(self, filepath: str) -> Options:
        """Call the setters in a file: one per line, as in Python but without the leading `opts.`.

        Empty lines and comments are skipped. A line that is not Python raises ConfigFileError.
        """
        set_from_file(self, filepath)
        return self

    def defaultOutputMode(self) -> bool:
        """Whether nobody has chosen an output mode."""
        return bool(self.output_mode == OutputMode.Default)

    def toDict(self) -> dict[str, Any]:
        """All options in one dictionary, under the names that the compiler knows them by."""
        if self.defaultOutputMode():
            raise AssertionError("An output mode must be picked before serialisation")
        merged: dict[str, Any] = dict(self._execution_strategy.backendOptions())
        merged.update(self._popart.options)
        for part in (self, self._training, self._distributed, self._tensor_locations):
            part.update(merged)
        if self._show_compilation_progress_bar:
            merged["compilation_progress_bar_fn"] = self._progress_bar
        return merged

    def clone(self) -> Options:
        """A copy that is independent of this one, and not frozen."""
        return copy.deepcopy(self)

    def _toState(self) -> dict[str, Any]:
        """Everything that was set, as JSON; `_fromState` reads it."""
        return to_state(self)

    @classmethod
    def _fromState(cls, state: dict[str, Any]) -> Options:
        """The options that `_toState` saved. The environment has no part in them."""
        options = cls.__new__(cls)
        Options.__init__(options)
        restore(options, state)
        return options

    def __repr__(self) -> str:
        shown = {row.key: getattr(self, row.key) for row in ROWS if row.where == "private"}
        shown = self._values | {key.lstrip("_"): value for key, value in shown.items() if key}
        shown |= {name: getattr(self, name) for name in (*GROUPS, "_Popart")}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


GROUPS = ("Training", "Precision", "Jit", "TensorLocations", "Distributed")
OPTION_ROWS: tuple[Row, ...] = (
    *ROWS,
    *TRAINING,
    *PRECISION,
    *JIT,
    *_TENSOR_LOCATIONS,
    *LOCATION_SETTINGS,
    *DISTRIBUTED,
    *POPART,
)

# A setter that is looked for in the wrong group is suggested with its right place.
OptionsDict._elsewhere.update(
    {row.setter: f"Options.{row.name}" for row in OPTION_ROWS if row.setter != "set"}
    | {row.setter: f"poptorch.{row.name}" for row in LOCATION_SETTINGS}
)
