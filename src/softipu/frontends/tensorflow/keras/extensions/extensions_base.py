"""What all kinds of Keras model get under an IPUStrategy: settings, checks, fit and its kin."""

from __future__ import annotations

import copy
import enum
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ipu import utils as ipu_utils
from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from tensorflow.python.platform import tf_logging as logging
from tf_keras.src.engine import data_adapter as keras_data
from tf_keras.src.engine import training as training_module
from tf_keras.src.saving.legacy.saved_model import utils as saving

from softipu.frontends.tensorflow import system

from ..delegation import KerasExtension
from . import _pipelining_options, checks, polling, running, training_steps
from .accumulation import Accumulator
from .data_adapter import IPUDataHandler
from .execution import Execution

_untracked = tf.__internal__.tracking.no_automatic_dependency_tracking


class ReplicatedMetricReductionMethod(enum.Enum):
    """How the metrics of several replicas become one value."""

    NONE = 1
    LIST = 2
    SUM = 3
    MEAN = 4

    @classmethod
    def parse(cls, value: Any) -> ReplicatedMetricReductionMethod:
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(
            f"Cannot parse {value} as a ReplicatedMetricReductionMethod. Valid values are: "
            f"{', '.join(cls.__members__)}."
        )


#: Settings that a model's configuration carries: name there -> attribute.
_SETTINGS = {
    "gradient_accumulation_steps_per_replica": "_gradient_accumulation_steps_per_replica",
    "gradient_accumulation_reduction_method": "_gradient_accumulation_reduction_method",
    "replicated_metric_reduction_method": "_replicated_metric_reduction_method",
    "asynchronous_callbacks": "_asynchronous_callbacks",
    "pipelining_gradient_accumulation_steps_per_replica": (
        "_pipelining_gradient_accumulation_steps_per_replica"
    ),
    "pipelining_device_mapping": "_pipelining_device_mapping",
    "pipelining_accumulate_outfeed": "_pipelining_accumulate_outfeed",
    "infeed_kwargs": "_infeed_kwargs",
    "outfeed_kwargs": "_outfeed_kwargs",
}
#: Settings of older versions, which configurations may still carry.
_FORMER = (
    "experimental_gradient_accumulation_normalize_gradients",
    "experimental_pipelining_normalize_gradients",
)


def without_extension_settings(config: Any) -> Any:
    """A model's configuration as stock Keras wants it."""
    if not isinstance(config, dict):
        return config
    ours = {*_SETTINGS, *_FORMER}
    return {key: value for key, value in config.items() if key not in ours}


class KerasExtensionBase(KerasExtension):
    """Subclasses know how their kind of model is divided into pipeline stages."""

    if TYPE_CHECKING:
        # Mixed into a Keras model, whose attributes mypy can't know.
        def __getattr__(self, name: str) -> Any: ...

    @_untracked
    def __init__(self) -> None:
        self._pipelining_gradient_accumulation_steps_per_replica: int | None = None
        self._pipelining_device_mapping: list[int] | None = None
        self._pipelining_accumulate_outfeed: bool | None = None
        self._pipeline_maximum_stage: int | None = None
        self._pipelining_kwargs: dict[str, Any] = {}
        self._gradient_accumulation_steps_per_replica: int | None = None
        self._gradient_accumulation_optimizer_kwargs: dict[str, Any] = {}
        self._gradient_accumulation_reduction_method = GradientAccumulationReductionMethod.SUM
        self._use_v2_gradient_accumulation_optimizer = False
        self._replicated_metric_reduction_method = ReplicatedMetricReductionMethod.NONE
        self._asynchronous_callbacks = False
        self._infeed_kwargs: dict[str, Any] = {}
        self._outfeed_kwargs: dict[str, Any] = {}
        self._ipu_run = running.Running()
        self._ipu_callers = 0
        self._reset_ipu_extension()

    def _reset_ipu_extension(self) -> None:
        """Settings changed: functions are built anew when they are next needed."""
        with saving.no_automatic_dependency_tracking_scope(self):
            self._ipu_functions: dict[Any, Execution] = {}

    def _reset_compile_cache_supported(self) -> bool:
        return True

    def _reset_compile_cache_delegate(self) -> Any:
        self._reset_ipu_extension()
        return self._reset_compile_cache(__extension_delegate=False)

    # How many IPUs

    def _is_pipelined(self) -> bool:
        raise NotImplementedError

    def _get_shard_count(self) -> int:
        if not self._is_pipelined():
            return 1
        if self._pipelining_device_mapping:
            return max(self._pipelining_device_mapping) + 1
        return self._get_pipeline_maximum_pipeline_stage() + 1

    def _get_num_ipus(self) -> int:
        device = self.distribute_strategy.extended.non_slot_devices(None)
        if tf.DeviceSpec.from_string(device).device_type != "IPU":
            raise ValueError(f"{type(self).__name__} can only be used on an IPU device.")
        return int(ipu_utils.get_num_of_ipus_in_device(device)) // system.instance()[1]

    def _get_replication_factor(self) -> int:
        """As the IPUs are configured now; a program may do that anew between two runs."""
        ipus, shards = self._get_num_ipus(), self._get_shard_count()
        needed = 2 ** math.ceil(math.log2(shards))
        if shards > ipus:
            raise ValueError(
                f"Current device has {ipus} IPUs attached, however the current model requires a "
                f"multiple of {needed} IPUs. Configure at least that many "
                "(IPUConfig.auto_select_ipus), or use fewer pipeline stages or shards."
            )
        return ipus // needed

    @_untracked
    def _get_pipeline_maximum_pipeline_stage(self) -> int:
        if self._pipeline_maximum_stage is None:
            self._pipeline_maximum_stage = _highest_stage(self._pipeline_stage_assignment)
        return self._pipeline_maximum_stage

    def _verify_and_get_gradient_accumulation_steps_per_replica(self, per_execution: int) -> int:
        kind = "pipelined " if self._is_pipelined() else ""
        steps = self._gradient_accumulation_steps_per_replica or 1
        if kind:
            given = self._pipelining_gradient_accumulation_steps_per_replica
            if given is None:
                raise ValueError(
                    "The model which you are attempting to train is pipelined, however "
                    "`gradient_accumulation_steps_per_replica` has not been set through "
                    "`set_pipelining_options()`. You need to set this value as pipelined models "
                    "will perform gradient accumulation when training."
                )
            steps = given
        if per_execution % steps:
            raise RuntimeError(
                f"The {kind}model has been configured to use gradient accumulation for training, "
                f"however the current `steps_per_execution` value (set to {per_execution}) is not "
                f"divisible by `gradient_accumulation_steps_per_replica` ({steps}). You need to "
                "adjust either `steps_per_execution` or`gradient_accumulation_steps_per_replica` "
                "to make sure that `steps_per_execution` is divisible by "
                "`gradient_accumulation_steps_per_replica`."
            )
        return steps

    # Data

    def _make_data_handler(self, *args: Any, **kwargs: Any) -> IPUDataHandler:
        """The data of fit, evaluate or predict, checked for what this model needs."""
        handler = IPUDataHandler(*args, replication_factor=None, **kwargs)
        inputs, _, _ = keras_data.unpack_x_y_sample_weight(handler.element_spec)
        shapes = tf.nest.map_structure(_shape_for_keras, inputs)
        types = tf.nest.map_structure(lambda spec: spec.dtype, inputs)
        self._build_with_dtypes(shapes, types)
        handler.set_replication_factor(self._get_replication_factor())
        per_execution = min(handler.steps_per_execution_value, handler.inferred_steps)
        self._note_steps(handler.inferred_steps, per_execution)
        self._log_steps_per_execution(per_execution)
        return handler

    def _note_steps(self, steps: int, per_execution: int) -> None:
        """A run has so many steps, or the validation within it."""
        run = self._ipu_run
        if run.name == "fit" and run.steps is not None:  # fit makes its own data first
            run.validation_steps = steps
            return
        run.steps = steps
        if run.name == "fit":
            self._verify_and_get_gradient_accumulation_steps_per_replica(per_execution)
        if run.stepwise is not None:
            polling.know_steps(run.stepwise, steps)

    def _per_execution(self) -> int:
        """How many steps an execution of the present run has."""
        asked = int(self._steps_per_execution.numpy())
        return asked if self._ipu_run.steps is None else min(asked, self._ipu_run.steps)

    def _log_steps_per_execution(self, per_execution: int) -> None:
        if per_execution == 1:
            logging.info(
                f"The model `{self.name}` has been configured with only {per_execution} steps per "
                "execution. Consider increasing the value for the `steps_per_execution` argument "
                "passed to the `compile()` method to improve performance."
            )

    # Fit, evaluate, predict: stock Keras, with functions of our own

    def _fit_supported(self, *_args: Any, **_kwargs: Any) -> bool:
        return True

    def _fit_delegate(self, *args: Any, **kwargs: Any) -> Any:
        return self._run_stock("fit", args, kwargs)

    def _evaluate_supported(self, *_args: Any, **_kwargs: Any) -> bool:
        return True

    def _evaluate_delegate(self, *args: Any, **kwargs: Any) -> Any:
        return self._run_stock("evaluate", args, kwargs)

    def _predict_supported(self, *_args: Any, **_kwargs: Any) -> bool:
        return True

    def _predict_delegate(self, *args: Any, **kwargs: Any) -> Any:
        return self._run_stock("predict", args, kwargs)

    def _run_stock(self, name: str, args: Any, kwargs: Any) -> Any:
        if name != "predict":
            self._assert_compile_was_called()
        if self.run_eagerly:
            raise RuntimeError(
                "Keras models cannot run eagerly when using `IPUStrategy`. Set "
                "`run_eagerly=False` when calling `compile`."
            )
        if self._steps_per_execution is None:  # predict works without compile
            self._configure_steps_per_execution(1)
        run = self._ipu_run
        before = run.name, run.stepwise, run.steps, run.validation_steps
        with running.CALLERS:
            self._ipu_callers += 1
        try:
            validates = name == "evaluate" and run.name == "fit"
            run.steps = run.validation_steps if validates else None
            run.name, run.validation_steps = name, None
            # Metrics that are accumulated over steps are not known after each.
            known = name == "predict" or not self._pipelining_accumulate_outfeed
            if self._asynchronous_callbacks and known:
                args, kwargs = (), polling.with_stepwise_callbacks(self, name, args, kwargs)
                run.stepwise = kwargs["callbacks"]
            return getattr(self, name)(*args, **kwargs, __extension_delegate=False)
        finally:
            run.name, run.stepwise, run.steps, run.validation_steps = before
            with running.CALLERS:
                self._ipu_callers -= 1
                if not self._ipu_callers:  # train_on_batch and its kin make their own
                    self.train_function = self.test_function = self.predict_function = None

    def _make_train_function_supported(self, *_args: Any, **_kwargs: Any) -> bool:
        return self._ipu_run.name == "fit"

    def _make_train_function_delegate(self, force: bool = False) -> Callable[[Any], Any]:
        del force
        checks.not_overridden(self, "make_train_function")
        self._validate_call_function()
        steps = self._verify_and_get_gradient_accumulation_steps_per_replica(self._per_execution())
        if self._is_pipelined() or steps > 1:
            checks.not_overridden(self, "train_step")
        if steps > 1:
            checks.optimizer_can_accumulate(self.optimizer)
            if self._use_v2_gradient_accumulation_optimizer:
                checks.is_optimizer_v2(self.optimizer)
        if self._is_pipelined():
            self._check_pipelining_options(training=True, count=steps)

        def made() -> Execution:
            execution = Execution(self, "train", self._training_step(steps), self._train_counter)
            if steps > 1 and not training_steps.accumulates_itself(self.optimizer):
                execution.accumulate(self._accumulator(steps), steps)
            return execution

        return self._with_callbacks(self._function(("train", steps), made), "train")

    def _training_step(self, steps: int) -> Callable[[Any], Any]:
        options: dict[str, Any] = {"dtype": self._accumulation_dtype()}
        if not self._is_pipelined():
            options.update(self._gradient_accumulation_optimizer_kwargs)
        step = training_steps.training_step(
            self, steps, reduction_method=self._gradient_accumulation_reduction_method, **options
        )
        # On IPUs the loss to minimise comes before the metrics.
        return self._with_metric_dtype(step, first=1)

    def _accumulator(self, steps: int) -> Accumulator:
        captured = self._pipelining_kwargs.get("gradient_accumulation_for_captured_grads", False)
        return Accumulator(
            self.optimizer,
            steps,
            self._gradient_accumulation_reduction_method,
            dtype=self._accumulation_dtype(),
            accumulate_captured=captured and self._is_pipelined(),
        )

    def _accumulation_dtype(self) -> Any:
        if self._is_pipelined():
            return self._pipelining_kwargs.get("gradient_accumulation_dtype")
        return self._gradient_accumulation_optimizer_kwargs.get("dtype")

    def _metric_dtype(self) -> Any:
        """The type that metrics are added up in before they leave a pipeline; None is their own.

        Adding them up changes nothing else: metrics are those of all steps so far anyway.
        """
        if self._pipelining_accumulate_outfeed and self._is_pipelined():
            return self._pipelining_kwargs.get("accumulate_outfeed_dtype")
        return None

    def _with_metric_dtype(self, step: Callable[[Any], Any], first: int) -> Callable[[Any], Any]:
        dtype = self._metric_dtype()
        return step if dtype is None else training_steps.kept_as(step, dtype, first=first)

    def _check_pipelining_options(self, *, training: bool, count: int | None = None) -> None:
        """Whether IPUs could run the pipeline with so many mini-batches, or those of a run."""
        if count is None:
            count = self._per_execution()
        _pipelining_options.check(
            self._get_pipeline_post_order(),
            self._pipelining_device_mapping,
            self._pipelining_kwargs,
            training=training,
            count=count,
        )

    def _make_test_function_supported(self, *_args: Any, **_kwargs: Any) -> bool:
        return self._ipu_run.name in ("fit", "evaluate")

    def _make_test_function_delegate(self, force: bool = False) -> Callable[[Any], Any]:
        del force
        checks.not_overridden(self, "make_test_function")
        self._validate_call_function()
        if self._is_pipelined():
            checks.step_not_overridden(self, "test_step")
            self._check_pipelining_options(training=False)
        own = training_steps.own_or_stock(self.test_step, training_module.Model.test_step)
        step = self._with_metric_dtype(own, first=0)
        execution = self._function(
            ("test",), lambda: Execution(self, "test", step, self._test_counter)
        )
        return self._with_callbacks(execution, "test")

    def _make_predict_function_supported(self, *_args: Any, **_kwargs: Any) -> bool:
        return self._ipu_run.name == "predict"

    def _make_predict_function_delegate(self, force: bool = False) -> Callable[[Any], Any]:
        del force
        checks.not_overridden(self, "make_predict_function")
        self._validate_call_function()
        if self._is_pipelined():
            checks.step_not_overridden(self, "predict_step")
            self._check_pipelining_options(training=False)
        step = training_steps.own_or_stock(self.predict_step, training_module.Model.predict_step)
        execution = self._function(
            ("predict",), lambda: Execution(self, "predict", step, self._predict_counter)
        )
        return self._with_callbacks(execution.keep_every_step(), "predict")

    def _function(self, key: Any, make: Callable[[], Execution]) -> Execution:
        """The one for the IPUs that are configured now; those for others are forgotten."""
        known = self._ipu_functions.get(key)
        if known is None or not known.suits_configuration():
            known = self._ipu_functions[key] = make()
        return known

    def _with_callbacks(self, execution: Execution, mode: str) -> Callable[[Any], Any]:
        return polling.polled(self, execution, mode) if self._ipu_run.stepwise else execution

    def _reduce_over_replicas(self, each: list[Any]) -> Any:
        method = self._replicated_metric_reduction_method
        if method is ReplicatedMetricReductionMethod.NONE:
            return each[-1]
        joined = tf.nest.map_structure(lambda *values: tf.stack(values), *each)
        if method is ReplicatedMetricReductionMethod.LIST:
            return joined
        if method is ReplicatedMetricReductionMethod.SUM:
            return tf.nest.map_structure(lambda t: tf.reduce_sum(t, 0), joined)
        return tf.nest.map_structure(lambda t: tf.reduce_mean(t, 0), joined)

    def _validate_and_get_metrics_result_supported(self, *_args: Any) -> bool:
        if self._ipu_run.name is None:
            return False
        # The logs of several instances are those of all of them; Keras would have to ask around.
        shared = not self.distribute_strategy.extended._sole_instance
        several = shared or self._get_replication_factor() > 1
        return several or self._metric_dtype() is not None

    def _validate_and_get_metrics_result_delegate(self, logs: Any) -> Any:
        """The model's own metrics are those of one replica; the logs are reduced as asked."""
        return logs

    # Settings

    @_untracked
    def _set_asynchronous_callbacks_impl(self, asynchronous: bool) -> None:
        self._asynchronous_callbacks = asynchronous

    @_untracked
    def _set_replication_options_impl(self, replicated_metric_reduction_method: Any) -> None:
        self._replicated_metric_reduction_method = ReplicatedMetricReductionMethod.parse(
            replicated_metric_reduction_method
        )

    @_untracked
    def _set_gradient_accumulation_options_impl(
        self,
        gradient_accumulation_steps_per_replica: int | None,
        gradient_accumulation_reduction_method: Any,
        use_v2_gradient_accumulation_optimizer: bool,
        gradient_accumulation_optimizer_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self._gradient_accumulation_reduction_method = GradientAccumulationReductionMethod.parse(
            gradient_accumulation_reduction_method
        )
        self._use_v2_gradient_accumulation_optimizer = use_v2_gradient_accumulation_optimizer
        if gradient_accumulation_steps_per_replica is not None:
            checks.positive(gradient_accumulation_steps_per_replica)
            self._gradient_accumulation_steps_per_replica = gradient_accumulation_steps_per_replica
        if gradient_accumulation_optimizer_kwargs is not None:
            checks.accumulation_arguments(gradient_accumulation_optimizer_kwargs)
            self._gradient_accumulation_optimizer_kwargs = dict(
                gradient_accumulation_optimizer_kwargs
            )
        self._reset_ipu_extension()

    @_untracked
    def _set_pipelining_options_impl(
        self,
        pipelining_gradient_accumulation_steps_per_replica: int | None,
        pipelining_device_mapping: list[int] | None,
        accumulate_outfeed: bool | None,
        gradient_accumulation_reduction_method: Any,
        pipelining_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self._gradient_accumulation_reduction_method = GradientAccumulationReductionMethod.parse(
            gradient_accumulation_reduction_method
        )
        steps = pipelining_gradient_accumulation_steps_per_replica
        if steps is not None:
            checks.positive(steps)
            self._pipelining_gradient_accumulation_steps_per_replica = steps
        if pipelining_device_mapping is not None:
            checks.list_of_integers(pipelining_device_mapping)
            self._pipelining_device_mapping = pipelining_device_mapping
        if accumulate_outfeed is not None:
            self._pipelining_accumulate_outfeed = accumulate_outfeed
        if pipelining_kwargs is not None:
            checks.pipelining_arguments(pipelining_kwargs)
            given = dict(pipelining_kwargs)
            given.setdefault("gradient_accumulation_for_captured_grads", False)
            self._pipelining_kwargs = given
        self._reset_ipu_extension()

    @_untracked
    def _set_infeed_queue_options_impl(self, **kwargs: Any) -> None:
        checks.infeed_arguments(kwargs)
        self._infeed_kwargs = kwargs
        self._reset_ipu_extension()

    @_untracked
    def _set_outfeed_queue_options_impl(self, **kwargs: Any) -> None:
        checks.outfeed_arguments(kwargs)
        self._outfeed_kwargs = kwargs
        self._reset_ipu_extension()

    def _get_base_config(self) -> dict[str, Any]:
        values = {name: getattr(self, attribute) for name, attribute in _SETTINGS.items()}
        if self._pipelining_kwargs:
            logging.info(
                f"Calling get_config() on {self.name} - `pipelining_kwargs` cannot be serialized "
                "and you will need to call `set_pipelining_options` again if the model is restored."
            )
        return {
            name: value.value if isinstance(value, enum.Enum) else value
            for name, value in values.items()
        }

    @staticmethod
    def _strip_base_config(config: dict[str, Any]) -> dict[str, Any]:
        return copy.deepcopy(without_extension_settings(config))

    @_untracked
    def _from_base_config(self, config: dict[str, Any]) -> None:
        for name, attribute in _SETTINGS.items():
            if name in config:
                default = getattr(self, attribute)
                value = config[name]
                kind = type(default)
                setattr(self, attribute, kind(value) if isinstance(default, enum.Enum) else value)

    def _assert_weights_created_supported(self) -> bool:
        return True

    def _assert_weights_created_delegate(self) -> None:
        if not self.built:
            raise ValueError(
                f"Weights for model {self.name} have not yet been created. Weights are created "
                "when the Model is first called on inputs or `build()` is called with an "
                "`input_shape`."
            )

    # For subclasses

    def _build_with_dtypes(self, input_shape: Any, input_dtype: Any) -> None:
        raise NotImplementedError

    def _validate_call_function(self) -> None:
        raise NotImplementedError

    def _train_step_overridden(self) -> bool:
        return bool(self.train_step.__func__ is not training_module.Model.train_step)


def _shape_for_keras(spec: Any) -> tuple[int, ...]:
    shape = tuple(spec.shape.as_list())
    return (*shape, 1) if len(shape) == 1 else shape


def _highest_stage(assignments: Any) -> int:
    return max(
        _highest_stage(item.pipeline_stage_assignments)
        if item.is_nested_model
        else item.pipeline_stage
        for item in assignments
    )
