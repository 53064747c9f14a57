"""Export of models as SavedModels that TensorFlow Serving, or any TensorFlow, can run.

What is saved is the model itself, with its variables frozen into constants; there is no executable
for a device beside it, so that no loop and no feeds are needed around the predict step.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import convert_to_constants

from softipu.frontends.tensorflow import argument_options

_Signature = Sequence[tf.TensorSpec]


def export_single_step(
    predict_step: Callable[..., Any],
    export_dir: str,
    iterations: int,
    predict_step_signature: _Signature | None = None,
    input_dataset: Any = None,
    output_names: str | list[str] | None = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: _Signature | None = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: _Signature | None = None,
    purge_export_dir: bool = False,
) -> Any:
    """Saves preprocessing_step -> predict_step -> postprocessing_step; returns what it saved.

    The signature is given, or that of a tf.function, or that of the elements of `input_dataset`.
    """
    del iterations  # how often a loop on the device would run before it returns to the host
    _validate_export_dir(export_dir, purge_export_dir)
    _validate_signatures(
        predict_step, predict_step_signature, input_dataset,
        preprocessing_step, preprocessing_step_signature,
        postprocessing_step, postprocessing_step_signature,
    )  # fmt: skip
    before = _before(preprocessing_step, preprocessing_step_signature, input_dataset)
    specs = _prepare_input_signature(
        predict_step, predict_step_signature, input_dataset if before is None else None
    )
    after = _after(postprocessing_step, postprocessing_step_signature)
    predict = _Step("predict_step", _freeze_single_step(predict_step, specs), specs)
    return _export_steps(before, predict, after, export_dir, output_names)


def export_pipeline(
    computational_stages: Sequence[Callable[..., Any]],
    export_dir: str,
    iterations: int,
    inputs: Sequence[Any] | None = None,
    device_mapping: Sequence[int] | None = None,
    pipeline_schedule: Any = None,
    poplar_options: Any = None,
    name: str | None = None,
    predict_step_signature: _Signature | None = None,
    input_dataset: Any = None,
    output_names: str | list[str] | None = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: _Signature | None = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: _Signature | None = None,
    purge_export_dir: bool = False,
) -> Any:
    """Saves the stages one after the other, else like `export_single_step`.

    `inputs` are the first arguments of the first stage; they become part of the model.
    """
    del iterations, pipeline_schedule  # the order of work, not its result
    argument_options.warn_of_ignored("serving.export_pipeline", poplar_options=poplar_options)
    _validate_export_dir(export_dir, purge_export_dir)
    if device_mapping is not None and len(device_mapping) != len(computational_stages):
        raise ValueError(
            f"device_mapping has {len(device_mapping)} entries for {len(computational_stages)} "
            "computational stages; each stage needs one."
        )
    first = computational_stages[0]
    _validate_signatures(
        first, predict_step_signature, input_dataset,
        preprocessing_step, preprocessing_step_signature,
        postprocessing_step, postprocessing_step_signature,
    )  # fmt: skip
    constants = [tf.convert_to_tensor(value) for value in inputs or ()]
    before = _before(preprocessing_step, preprocessing_step_signature, input_dataset)
    dataset = input_dataset if before is None else None
    all_specs = _prepare_input_signature(
        first, predict_step_signature, dataset, constants,
        remove_non_feed_inputs_from_signature=False,
    )  # fmt: skip
    specs = all_specs[len(constants) :]
    after = _after(postprocessing_step, postprocessing_step_signature)

    def pipeline(*args: Any) -> Any:
        values: Any = (*constants, *args)
        with tf.name_scope(name or "pipeline"):
            for stage in computational_stages:
                values = _as_list(stage(*values))
        return values

    predict = _Step("predict_step", _freeze_single_step(pipeline, specs), specs)
    return _export_steps(before, predict, after, export_dir, output_names)


def export_keras(
    model: Any,
    export_dir: str,
    batch_size: int | None = None,
    output_names: str | list[str] | None = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: _Signature | None = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: _Signature | None = None,
    purge_export_dir: bool = False,
) -> Any:
    """Saves a Keras model that was made under an IPU strategy."""
    if not hasattr(model, "export_for_ipu_serving"):
        raise ValueError(
            "Provided model was not created inside an IPU strategy, so it does not contain "
            "IPU-specific functions. Please wrap its creation inside an IPU strategy."
        )
    return model.export_for_ipu_serving(
        export_dir, batch_size, output_names,
        preprocessing_step, preprocessing_step_signature,
        postprocessing_step, postprocessing_step_signature, purge_export_dir,
    )  # fmt: skip


def export_call(
    call: Callable[..., Any],
    input_signature: _Signature,
    export_dir: str,
    output_names: str | list[str] | None = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: _Signature | None = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: _Signature | None = None,
    purge_export_dir: bool = False,
) -> Any:
    """Saves `call(*inputs)`, whose inputs are named by their specs: for models of Keras."""
    _validate_export_dir(export_dir, purge_export_dir)
    _validate_signatures(
        call, input_signature, None,
        preprocessing_step, preprocessing_step_signature,
        postprocessing_step, postprocessing_step_signature,
    )  # fmt: skip
    before = _before(preprocessing_step, preprocessing_step_signature, None)
    after = _after(postprocessing_step, postprocessing_step_signature)
    specs = list(input_signature)
    predict = _Step("predict_step", _freeze_single_step(call, specs), specs)
    return _export_steps(before, predict, after, export_dir, output_names)


@dataclass(frozen=True)
class _Step:
    """A frozen function of the exported model, and the tensors that it takes."""

    name: str
    function: Callable[..., list[Any]]
    specs: list[tf.TensorSpec]


def _before(step: Callable[..., Any] | None, signature: Any, dataset: Any) -> _Step | None:
    if step is None:
        return None
    specs = _prepare_input_signature(step, signature, dataset)
    return _Step("preprocessing_step", _freeze_single_step(step, specs), specs)


def _after(step: Callable[..., Any] | None, signature: Any) -> _Step | None:
    if step is None:
        return None
    specs = _prepare_input_signature(step, signature)
    return _Step("postprocessing_step", _freeze_single_step(step, specs), specs)


def _export_steps(
    before: _Step | None,
    predict: _Step,
    after: _Step | None,
    export_dir: str,
    output_names: str | list[str] | None,
) -> Any:
    names = [output_names] if isinstance(output_names, str) else output_names
    if names and not isinstance(names, list):
        raise TypeError(f"output_names must be either a string or a list, received {type(names)}")
    steps = [step for step in (before, predict, after) if step is not None]

    @tf.function(input_signature=steps[0].specs)
    def run(*args: Any) -> Any:
        values: list[Any] = list(args)
        for number, step in enumerate(steps):
            if number:
                _check_matching(values, step.specs, steps[number - 1].name, step.name)
            values = step.function(*values)
        if not names:
            return values
        if len(values) != len(names):
            raise ValueError(
                "Length of output_names does not match the number of results returned by the "
                "predict function."
            )
        return dict(zip(names, values, strict=True))

    model = tf.Module()
    model.predict = run
    tf.saved_model.save(model, export_dir)
    return run


def _freeze_single_step(step: Callable[..., Any], specs: _Signature) -> Callable[..., list[Any]]:
    """The step with its variables as constants; it returns a flat list."""

    @tf.function(input_signature=list(specs))
    def flat(*args: Any) -> Any:
        return _as_list(step(*args))

    frozen = convert_to_constants.convert_variables_to_constants_v2(
        flat.get_concrete_function(), lower_control_flow=False
    )
    return lambda *args: _as_list(frozen(*args))


def _check_matching(values: list[Any], specs: _Signature, source: str, target: str) -> None:
    if len(values) != len(specs):
        raise ValueError(
            f"The number of the `{source}` outputs does not match the number of `tf.TensorSpec` "
            f"objects in the signature of `{target}`."
        )
    for index, (value, spec) in enumerate(zip(values, specs, strict=True)):
        if value.shape != spec.shape or value.dtype != spec.dtype:
            raise ValueError(
                f"`{source}` returned Tensor at position {index} does not match required "
                f"`{target}` TensorSpec.\nTensor shape {value.shape}, dtype {value.dtype}\n"
                f"Expected TensorSpec shape {spec.shape}, dtype {spec.dtype}\n"
            )


def _as_list(values: Any) -> list[Any]:
    return [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]


def _validate_export_dir(export_dir: str, purge_export_dir: bool) -> None:
    if os.path.isdir(export_dir) and os.listdir(export_dir):
        if not purge_export_dir:
            raise ValueError(
                f'Directory "{export_dir}" is not empty. Please specify an empty directory.'
            )
        shutil.rmtree(export_dir)


def _validate_signatures(
    predict_step: Any,
    predict_step_signature: Any = None,
    input_dataset: Any = None,
    preprocessing_step: Any = None,
    preprocessing_step_signature: Any = None,
    postprocessing_step: Any = None,
    postprocessing_step_signature: Any = None,
) -> None:
    """Each step needs exactly one source for its signature."""
    first, given = (
        ("predict_step", predict_step_signature)
        if preprocessing_step is None
        else ("preprocessing_step", preprocessing_step_signature)
    )
    if given is not None and input_dataset is not None:
        raise ValueError(
            f"Both `{first}_signature` and `input_dataset` cannot be provided. "
            "Please pass only one of them."
        )
    if preprocessing_step is None:
        if given is None and input_dataset is None:
            _check_own_signature(predict_step, "predict_step", " or `input_dataset`.")
    else:
        if given is None and input_dataset is None:
            _check_own_signature(preprocessing_step, "preprocessing_step", " or `input_dataset`.")
        if predict_step_signature is None:
            _check_own_signature(predict_step, "predict_step", ".")
    if input_dataset is not None and not isinstance(input_dataset, tf.data.Dataset):
        raise TypeError("If `input_dataset` is provided, it should be an instance of tf.Dataset.")
    if postprocessing_step is not None and postprocessing_step_signature is None:
        _check_own_signature(postprocessing_step, "postprocessing_step", ".")
    for name, signature in (
        ("preprocessing_step_signature", preprocessing_step_signature),
        ("postprocessing_step_signature", postprocessing_step_signature),
        ("predict_step_signature", predict_step_signature),
    ):
        if signature is not None:
            _check_given_signature(name, signature)


def _check_own_signature(step: Any, name: str, or_dataset: str) -> None:
    if not isinstance(step, polymorphic_function.Function):
        raise ValueError(
            f"`input_signature` deduction from given `{name}` is not possible. Please mark it as "
            "tf.function with `input_signature` parameter set or provide "
            f"`{name}_signature`{or_dataset}"
        )
    if step.input_signature is None:
        raise ValueError(
            f"Empty `input_signature` inside provided tf.function `{name}`. Please specify it or "
            f"provide `{name}_signature`{or_dataset}"
        )


def _check_given_signature(name: str, signature: Any) -> None:
    if not isinstance(signature, tuple | list):
        raise TypeError(
            f"`{name}` must be an instance of tuple or list. Received {type(signature)}"
        )
    if not signature:
        raise ValueError(f"`{name}` must be not empty.")
    for index, spec in enumerate(signature):
        if not isinstance(spec, tf.TensorSpec):
            raise TypeError(f"`{name}[{index}]` is not an instance of TensorSpec")


def _prepare_input_signature(
    step: Any,
    signature: Any = None,
    input_dataset: Any = None,
    non_feed_inputs: Sequence[Any] | None = None,
    remove_non_feed_inputs_from_signature: bool = True,
) -> list[tf.TensorSpec]:
    """The specs of the step's arguments, each with the argument's name."""
    constants = [tf.TensorSpec.from_tensor(tf.convert_to_tensor(t)) for t in non_feed_inputs or ()]
    if signature is None and input_dataset is not None:
        elements = input_dataset.element_spec
        elements = (elements,) if isinstance(elements, tf.TensorSpec) else tuple(elements)
        signature = (*constants, *elements)
    elif signature is None:
        signature = getattr(step, "input_signature", None)
    if signature is None:
        raise ValueError(f"Missing input_signature for {_name(step)}")
    if not isinstance(signature, tuple | list):
        raise TypeError(
            f"input_signature must be either a tuple or a list, received {type(signature)}"
        )
    names = list(inspect.signature(_python_function(step)).parameters)
    if constants and remove_non_feed_inputs_from_signature:
        names = names[len(constants) :]
        if len(signature) > len(names):
            signature = signature[len(constants) :]
    if len(signature) != len(names):
        raise ValueError(
            "Length of input_signature does not match the number of "
            f"{_name(step)} arguments, input_signature : {signature}, names : {names}"
        )
    return [
        tf.TensorSpec.from_spec(spec, name=name)
        for spec, name in zip(signature, names, strict=True)
    ]


def _python_function(step: Any) -> Any:
    return getattr(step, "python_function", step)


def _name(step: Any) -> str:
    return getattr(_python_function(step), "__name__", repr(step))
