"""What models of users' own classes can do under an IPUStrategy.

The layers' graph, which pipeline stages are about, comes from running `call` once on symbolic
inputs. It is kept beside the model, which otherwise stays the subclassed model it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tf_keras.src.engine import (
    base_layer,
    base_layer_utils,
    functional,
    input_layer,
    keras_tensor,
    node,
    training,
)
from tf_keras.src.saving.legacy.saved_model import load

from softipu.frontends.tensorflow import ipu_semantics

from ._pipelining_api import PipelineExtension, untracked
from ._pipelining_schedule import Network, Schedule, assignments_from_scopes
from .pipeline_stage_assignment import (
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
)

#: What a model repeats in each of its functions.
_STEPS = {"fit": "train_step", "evaluate": "test_step", "predict": "predict_step"}


class ModelExtension(PipelineExtension):
    """A model whose graph becomes known when it is built."""

    _layer_assignment = ModelLayerPipelineStageAssignment
    _nested_assignment = NestedModelPipelineStageAssignment

    @untracked
    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        PipelineExtension.__init__(self)
        self._traced_network: Network | None = None
        self._traced_inputs: Any = None
        self._graph_network_initialized = False

    def _ipu_network(self) -> Network:
        if self._traced_network is None:
            raise RuntimeError(f"The model {self.name} has not been built yet.")
        return self._traced_network

    # Building.

    def _build_supported(self, *_args: Any, **_kwargs: Any) -> bool:
        return True

    def _build_delegate(self, input_shape: Any) -> None:
        self._validate_call_function()
        base_layer.Layer.build(self, _map_shapes(_shape, input_shape))
        if not base_layer_utils.call_context().in_call:
            self._check_call_args("build")
            plain = not all(map(_is_input, tf.nest.flatten(input_shape)))
            self._trace_network(_map_shapes(_symbolic, input_shape), plain)

    def _build_with_dtypes(self, input_shape: Any, input_dtype: Any) -> None:
        """Builds a model that the user has not built."""
        if self._runs_without_call():
            return
        if not self._graph_network_initialized:
            self._validate_call_function()
            dtypes = iter(tf.nest.flatten(input_dtype))
            self._trace_network(
                _map_shapes(lambda shape: _symbolic(shape, next(dtypes)), input_shape)
            )
        self._check_pipeline()

    def _trace_network(self, inputs: Any, plain_shapes: bool = False) -> None:
        """Runs `call` on symbolic inputs, made of shapes alone or not; keeps the graph that comes
        of it."""
        for layer in self.layers:  # stages refer to calls by number, so each trace counts anew
            layer._inbound_nodes.clear()
            layer._outbound_nodes.clear()
        self._keep_network(inputs, self._call_symbolically(inputs, plain_shapes))

    @untracked
    def _keep_network(self, inputs: Any, outputs: Any) -> None:
        ends = tf.nest.flatten(inputs), tf.nest.flatten(outputs)
        _, nodes_by_depth, _, _ = functional._map_graph_network(*ends)
        self._traced_network = Network(*ends, nodes_by_depth)
        self._traced_inputs = _to_config(inputs)
        self.built = True
        self._set_save_spec(inputs)
        known = self._pipeline_stage_assignment
        scoped = known or assignments_from_scopes(self)
        self._graph_network_initialized = True
        if scoped and not known:
            self.set_pipeline_stage_assignment(scoped)

    def _call_symbolically(self, inputs: Any, plain_shapes: bool) -> Any:
        context = base_layer_utils.call_context()
        losses = list(self._losses)
        with (
            _tracking(self),
            context.enter(layer=self, inputs=inputs, build_graph=True),
            ipu_semantics.functions_taking(keras_tensor.KerasTensor),
        ):
            if not self.built:
                self.build(tf.nest.map_structure(_shape, inputs))
            try:
                return self.call(inputs, **self._training_argument())
            except (tf.errors.InvalidArgumentError, TypeError) as error:
                raise ValueError(_not_symbolic(self.name, error, plain_shapes)) from error
            finally:
                self._losses[:] = losses  # losses of symbolic inputs are nobody's

    def _training_argument(self) -> dict[str, bool]:
        """`training` where `call` cannot do without it."""
        spec = self._call_spec.full_argspec
        required = spec.args[2 : len(spec.args) - len(spec.defaults or [])]
        return {"training": False} if "training" in required else {}

    def _has_own(self, function: str) -> bool:
        own = getattr(getattr(self, function), "__func__", None)
        return own is not getattr(training.Model, function)

    def _runs_without_call(self) -> bool:
        """Models of several networks, such as GANs, say in their steps what is called, and `call`
        says nothing."""
        step = _STEPS.get(self._ipu_run.name or "")
        return step is not None and self._has_own(step) and not self._has_own("call")

    def _validate_call_function(self) -> None:
        if not self._has_own("call") and not self._runs_without_call():
            step = _STEPS.get(self._ipu_run.name or "")
            raise NotImplementedError(
                f"The function `call` for the model {self.name} has not been implemented. When "
                "subclassing the `Model` class you must implement the `call` function"
                + (f", or have a `{step}` of its own that does without it." if step else ".")
            )

    def _assert_weights_created_supported(self) -> bool:
        return True

    def _assert_weights_created_delegate(self) -> None:
        own = vars(getattr(self, "__original_class__", type(self)))
        if "build" in own and not self.built:
            raise ValueError(
                f"Weights for model {self.name} have not yet been created. Weights are created "
                "when the Model is first called on inputs or `build()` is called with an "
                "`input_shape`."
            )

    # Pipeline stages.

    def _is_pipelined(self) -> bool:
        if not self._has_own("call"):  # nothing that stages could be made of
            return False
        if not self._graph_network_initialized:
            raise RuntimeError(
                f"Whether the model {self.name} is pipelined is only known once it has been "
                "built. Please call `model.build()` first."
            )
        return super()._is_pipelined()

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """The assignment of each call of a layer, in order of execution."""
        self._check_built("get")
        return super().get_pipeline_stage_assignment()

    @untracked
    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Makes the model a pipeline, or says why it cannot be this one."""
        self._check_built(
            "set",
            ", or assign pipeline stages in your graph definition using PipelineStage scopes",
        )
        super().set_pipeline_stage_assignment(pipeline_stage_assignment)

    def _check_built(self, action: str, other_way: str = "") -> None:
        if not self._graph_network_initialized:
            raise RuntimeError(
                f"Cannot {action} pipeline stage assignments for model `{self.name}` which has not "
                f"been built yet. Please call `model.build()` first{other_way}."
            )

    def _get_pipeline_post_order(self) -> Schedule:
        try:
            return super()._get_pipeline_post_order()
        except ValueError as error:
            raise RuntimeError(
                f"The pipeline stage assignments for model {self.name} are no longer valid: "
                f'"{error}" This can happen if the model is invoked with shapes or dtypes which '
                "are incompatible with those from the previous invocation, or those passed to "
                "`model.build`. Try calling `model.build` and specifying a less restrictive shape. "
                "You can specify dtypes to `model.build` by passing in `keras.Input` objects "
                "instead of plain shapes."
            ) from error

    # Saving and loading.

    def _get_config_delegate(self) -> dict[str, Any]:
        """The user's class has no configuration of its own, unless it overrides `get_config`."""
        config = {**self._pipelining_config(), "get_config_has_been_called": True}
        if self._graph_network_initialized:
            config["graph_network_initialized"] = True
            config["network_inputs"] = self._traced_inputs
        return config

    @untracked
    def _deserialize_from_config_delegate(self, config: dict[str, Any]) -> None:
        self._from_base_config(config)
        self._check_config(config)
        stages = config.get("pipeline_stage_assignment", [])
        if isinstance(self, load.RevivedLayer):
            self._accept_loss_of_class(stages)
        elif config.get("network_inputs") is not None:
            self._pipeline_stage_assignment = []
            self._trace_network(_from_config(config["network_inputs"]))
            self._restore_stages(stages)

    def _check_config(self, config: dict[str, Any]) -> None:
        overridden = self.get_config.__func__ is not training.Model.get_config
        if overridden and not config.get("get_config_has_been_called", False):
            raise RuntimeError(
                "get_config() has been overridden on a subclassed Model but IPU-specific "
                "properties have not been saved since the implementation does not call "
                "super().get_config(). In the get_config() override, add `config = "
                "super().get_config()` and merge your configuration with this config dict to "
                "ensure these options are saved along with the rest of your model."
            )

    def _accept_loss_of_class(self, stages: list[Any]) -> None:
        """Keras made a model without the user's class: it can run, but has no layers to assign."""
        if stages:
            raise ValueError(
                f"The model {self.name} was saved with pipeline stages, which belong to the "
                "calls of layers in its class, but it was loaded without the class. Pass the class "
                "to `load_model` in `custom_objects`."
            )
        self._graph_network_initialized = True


def _not_symbolic(model: str, error: Exception, plain_shapes: bool) -> str:
    if plain_shapes:
        return (
            "You cannot pass a plain shape to your model's `build` function if your layers do not "
            "support float type inputs. You must pass a `keras.Input` object with the required "
            "dtype, or `call` your model on real tensor data (of the correct dtype). The actual "
            f"error from `call` is: {error}"
        )
    return (
        f"The model {model} runs on IPUs once its layers are known, for which its `call` is run on "
        "symbolic inputs. What can't take those (`tf.cond`, `tf.while_loop`, `tf.map_fn`, gradient "
        f"tapes) belongs into a layer's `call`. The actual error from `call` is: {error}"
    )


@contextlib.contextmanager
def _tracking(model: Any) -> Iterator[None]:
    """Layers that `build` or `call` make belong to the model, whoever runs them."""
    before = model._self_setattr_tracking
    model._self_setattr_tracking = True
    try:
        yield
    finally:
        model._self_setattr_tracking = before


def _map_shapes(function: Callable[[Any], Any], shapes: Any) -> Any:
    """Applies `function` to each shape or `keras.Input` of a model's inputs."""
    if isinstance(shapes, dict):
        return {key: _map_shapes(function, shapes[key]) for key in sorted(shapes)}
    if isinstance(shapes, (list, tuple)) and not all(map(_is_dimension, shapes)):
        return [_map_shapes(function, shape) for shape in shapes]
    return function(shapes)


def _is_dimension(value: Any) -> bool:
    return value is None or (hasattr(value, "__index__") and not _is_input(value))


def _is_input(value: Any) -> bool:
    return node.is_keras_tensor(value) and isinstance(
        value._keras_history.layer, input_layer.InputLayer
    )


def _shape(value: Any) -> tuple[int | None, ...]:
    if _is_input(value):
        value = value.shape
    if not isinstance(value, (tuple, list, tf.TensorShape)):
        raise ValueError(
            "Specified input shape is not one of the valid types. Please specify a batch input "
            "shape of type tuple, a list of input shapes, or a `keras.Input`. User provided input "
            f"type: {type(value)}"
        )
    return tuple(tf.TensorShape(value).as_list())


def _symbolic(value: Any, dtype: Any = None) -> Any:
    return value if _is_input(value) else input_layer.Input(batch_shape=_shape(value), dtype=dtype)


def _to_config(inputs: Any) -> Any:
    """Symbolic inputs as all of Keras's file formats can hold them."""
    if isinstance(inputs, dict):
        return {"keys": list(inputs), "values": [_to_config(value) for value in inputs.values()]}
    if isinstance(inputs, (list, tuple)):
        return [_to_config(value) for value in inputs]
    return {"shape": inputs.shape.as_list(), "dtype": inputs.dtype.name}


def _from_config(config: Any) -> Any:
    if isinstance(config, list):
        return [_from_config(value) for value in config]
    if "keys" in config:
        return dict(zip(config["keys"], map(_from_config, config["values"]), strict=True))
    return _symbolic(tuple(config["shape"]), config["dtype"])
