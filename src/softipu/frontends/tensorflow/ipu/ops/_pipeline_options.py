"""What a program tells a pipeline: schedules, modes, stage options, and the optimizer's part."""

from __future__ import annotations

from enum import Enum
from typing import Any

import tensorflow as tf

from .. import ipu_outfeed_queue
from .._named_numbers import NamedNumber
from ..eager import backprop
from ..optimizers.ipu_optimizer import is_keras_optimizer


class PipelineSchedule(NamedNumber):
    """How the stages of successive micro-batches overlap on the IPUs; results are the same."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(Enum):
    """When activations would be computed again to save memory; results are the same."""

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


class PipelineStageOptions:
    """Poplar's options for the operations of a stage; they change no result."""

    def __init__(
        self,
        convolution_options: dict[str, Any] | None = None,
        matmul_options: dict[str, Any] | None = None,
        slice_options: dict[str, Any] | None = None,
    ) -> None:
        self.convolution_options = _options("convolution_options", convolution_options)
        self.matmul_options = _options("matmul_options", matmul_options)
        self.slice_options = _options("slice_options", slice_options)


def _options(name: str, value: Any) -> dict[str, Any]:
    value = value or {}
    if not isinstance(value, dict):
        raise TypeError(f"PipelineStageOptions.{name} must be dictionary.")
    return value


class OptimizerFunctionOutput:
    """What the optimizer function of a pipeline returns: the optimizer, the loss, and details.

    Each attribute is checked when it is set, against those that are set already.
    """

    _opt: Any
    _loss: Any
    _compute_gradients_args: tuple[Any, ...]
    _compute_gradients_kwargs: dict[str, Any]
    _apply_gradients_args: tuple[Any, ...]
    _apply_gradients_kwargs: dict[str, Any]
    _variables: Any = ()
    _tape: Any = None
    _gradient_capture_context: Any = None
    _captured_gradient_outfeed: Any = None

    def __init__(
        self,
        opt: Any,
        loss: Any,
        compute_gradients_args: tuple[Any, ...] | None = None,
        compute_gradients_kwargs: dict[str, Any] | None = None,
        apply_gradients_args: tuple[Any, ...] | None = None,
        apply_gradients_kwargs: dict[str, Any] | None = None,
        variables: Any = None,
        tape: Any = None,
        gradient_capture_context: Any = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        self.opt = opt
        self.loss = loss
        self.compute_gradients_args = compute_gradients_args or ()
        self.compute_gradients_kwargs = compute_gradients_kwargs or {}
        self.apply_gradients_args = apply_gradients_args or ()
        self.apply_gradients_kwargs = apply_gradients_kwargs or {}
        self.variables = variables if variables else ()
        self.tape = tape
        self.gradient_capture_context = gradient_capture_context
        self.captured_gradient_outfeed = captured_gradient_outfeed

    @property
    def opt(self) -> Any:
        return self._opt

    @opt.setter
    def opt(self, value: Any) -> None:
        if not isinstance(value, tf.compat.v1.train.Optimizer) and not is_keras_optimizer(value):
            raise TypeError(
                "OptimizerFunctionOutput.opt must be a TensorFlow Optimizer or Keras"
                " OptimizerV2 object."
            )
        self._opt = value

    @property
    def loss(self) -> Any:
        return self._loss

    @loss.setter
    def loss(self, value: Any) -> None:
        if not isinstance(value, tf.Tensor):
            raise TypeError("OptimizerFunctionOutput.loss must be a TensorFlow Tensor object.")
        self._loss = value

    @property
    def compute_gradients_args(self) -> tuple[Any, ...]:
        return self._compute_gradients_args

    @compute_gradients_args.setter
    def compute_gradients_args(self, value: Any) -> None:
        _check_type("compute_gradients_args", value, tuple)
        self._check_not_keras("compute_gradients_args", value)
        self._compute_gradients_args = value

    @property
    def compute_gradients_kwargs(self) -> dict[str, Any]:
        return self._compute_gradients_kwargs

    @compute_gradients_kwargs.setter
    def compute_gradients_kwargs(self, value: Any) -> None:
        _check_type("compute_gradients_kwargs", value, dict)
        self._check_not_keras("compute_gradients_kwargs", value)
        self._compute_gradients_kwargs = value

    @property
    def apply_gradients_args(self) -> tuple[Any, ...]:
        return self._apply_gradients_args

    @apply_gradients_args.setter
    def apply_gradients_args(self, value: Any) -> None:
        _check_type("apply_gradients_args", value, tuple)
        self._apply_gradients_args = value

    @property
    def apply_gradients_kwargs(self) -> dict[str, Any]:
        return self._apply_gradients_kwargs

    @apply_gradients_kwargs.setter
    def apply_gradients_kwargs(self, value: Any) -> None:
        _check_type("apply_gradients_kwargs", value, dict)
        self._apply_gradients_kwargs = value

    @property
    def variables(self) -> Any:
        return self._variables

    @variables.setter
    def variables(self, value: Any) -> None:
        if not isinstance(value, tuple | list):
            raise TypeError("OptimizerFunctionOutput.variables must be a tuple or list.")
        self._check_keras("variables", value)
        if self.tape:
            raise ValueError(
                "OptimizerFunctionOutput.variables must be empty when OptimizerFunctionOutput.tape"
                " is used."
            )
        self._variables = value

    @property
    def tape(self) -> Any:
        return self._tape

    @tape.setter
    def tape(self, value: Any) -> None:
        if value and not isinstance(value, tf.GradientTape):
            raise TypeError("OptimizerFunctionOutput.tape must be a GradientTape.")
        self._check_keras("tape", value)
        for other in ("variables", "gradient_capture_context"):
            _check_not_both("tape", value, other, getattr(self, other))
        self._tape = value

    @property
    def gradient_capture_context(self) -> Any:
        return self._gradient_capture_context

    @gradient_capture_context.setter
    def gradient_capture_context(self, value: Any) -> None:
        if value and not isinstance(value, backprop.GradientCaptureContext):
            raise TypeError(
                "OptimizerFunctionOutput.gradient_capture_context must be an"
                " ipu.eager.backprop.GradientCollectionContext."
            )
        _check_not_both("gradient_capture_context", value, "tape", self.tape)
        self._gradient_capture_context = value

    @property
    def captured_gradient_outfeed(self) -> Any:
        return self._captured_gradient_outfeed

    @captured_gradient_outfeed.setter
    def captured_gradient_outfeed(self, value: Any) -> None:
        if value and not isinstance(value, ipu_outfeed_queue.IPUOutfeedQueue):
            raise TypeError(
                "OptimizerFunctionOutput.captured_gradient_outfeed must be an instance of"
                " IPUOutfeedQueue."
            )
        if value and self.gradient_source is None:
            raise ValueError(
                "OptimizerFunctionOutput.captured_gradient_outfeed may not be used when neither an"
                " ipu.eager.backprop.GradientCollectionContext, nor an"
                " ipu.eager.backprop.GradientCollectionTape is also used."
            )
        self._captured_gradient_outfeed = value

    @property
    def gradient_source(self) -> Any:
        """The context or tape that captures gradients, if there is one."""
        if isinstance(self.tape, backprop.GradientCaptureTape):
            return self.tape
        return self.gradient_capture_context

    def _check_keras(self, name: str, value: Any) -> None:
        if value and not is_keras_optimizer(self.opt):
            raise ValueError(f"OptimizerFunctionOutput.{name} may only be used with OptimizerV2.")

    def _check_not_keras(self, name: str, value: Any) -> None:
        if value and is_keras_optimizer(self.opt):
            raise ValueError(
                f"OptimizerFunctionOutput.{name} may not be used with OptimizerV2 instances."
            )


def _check_type(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"OptimizerFunctionOutput.{name} must be a {kind.__name__}.")


def _check_not_both(name: str, value: Any, other: str, other_value: Any) -> None:
    if value and other_value:
        raise ValueError(
            f"OptimizerFunctionOutput.{name} may not be used when OptimizerFunctionOutput.{other}"
            " is nonempty."
        )
