"""The base of optimisers that do something around another Keras optimiser."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tf_keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2

from .optimizers_in_files import class_of

#: State that a wrapper has not of its own: slots, steps, hyperparameters are the wrapped
#: optimiser's, so that all methods of OptimizerV2 that look at them give its answers.
_SHARED = (
    "_deferred_slot_restorations", "_distribution_strategy", "_hyper", "_hypers_created",
    "_initial_decay", "_iterations", "_slot_names", "_slots", "_use_locking", "_weights",
    "clipnorm", "clipvalue", "global_clipnorm", "gradient_aggregator", "gradient_transformers",
)  # fmt: skip


class _OptimizerV2Wrapper(
    tf.__internal__.tracking.DelegatingTrackableMixin,
    OptimizerV2,
):
    """Subclasses change what happens to losses and gradients.

    A checkpoint of a wrapper is one of the wrapped optimiser, with the wrapper's own variables
    added.
    """

    def __init__(self, opt: Any, name: str | None = None) -> None:
        if not isinstance(opt, OptimizerV2):
            raise ValueError(
                f"{type(self).__name__} cannot wrap a {type(opt).__module__}."
                f"{type(opt).__name__}: it works with the optimizers of tf.keras.optimizers.legacy "
                "(derived from OptimizerV2). Use the class of the same name from there."
            )
        # OptimizerV2.__init__ is left out: it would reset the state that the two share.
        self._opt = opt
        super().__init__(opt)
        self._init_set_name(name or type(self).__name__)

    def __getattribute__(self, name: str) -> Any:
        if name == "_opt":  # before it is set, OptimizerV2 would look for it among hyperparameters
            return object.__getattribute__(self, name)
        return super().__getattribute__(name)

    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        return self._opt.apply_gradients(
            grads_and_vars,
            name=name,
            experimental_aggregate_gradients=experimental_aggregate_gradients,
        )

    def get_gradients(self, loss: Any, params: Any) -> Any:
        return self._opt.get_gradients(loss, params)

    def _transform_loss(self, loss: Any) -> Any:
        return self._opt._transform_loss(loss)

    def _get_gradients(self, tape: Any, loss: Any, var_list: Any, grad_loss: Any = None) -> Any:
        return self._opt._get_gradients(tape, loss, var_list, grad_loss)

    def _create_all_weights(self, var_list: Any) -> None:
        self._opt._create_all_weights(var_list)

    def _create_slots(self, var_list: Any) -> None:
        self._opt._create_slots(var_list)

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any = None) -> Any:
        return self._opt._resource_apply_dense(grad, handle, apply_state=apply_state)

    def _resource_apply_sparse(
        self, grad: Any, handle: Any, indices: Any, apply_state: Any = None
    ) -> Any:
        return self._opt._resource_apply_sparse(grad, handle, indices, apply_state=apply_state)

    def preprocess_gradients(self, grad: Any, var: Any) -> tuple[Any, Any]:
        """The pair as the wrapped optimiser wants it."""
        if isinstance(self._opt, _OptimizerV2Wrapper):
            return self._opt.preprocess_gradients(grad, var)
        return grad, var

    def set_weights(self, weights: list[Any]) -> None:
        self._opt.set_weights(weights)

    @property
    def weights(self) -> list[Any]:
        weights: list[Any] = self._opt.weights
        return weights

    @weights.setter
    def weights(self, _: Any) -> None:
        raise AttributeError("can't set attribute 'weights': use set_weights")

    def get_config(self) -> dict[str, Any]:
        return {
            "inner_optimizer_config": self._opt.get_config(),
            "inner_optimizer_type": type(self._opt),
            "name": self._name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        settings = cls._with_class(config, custom_objects)
        cls._verify_config(settings)
        inner_config = dict(settings.pop("inner_optimizer_config"))
        inner = settings.pop("inner_optimizer_type").from_config(inner_config)
        return cls(inner, **settings)

    @staticmethod
    def _with_class(config: dict[str, Any], custom_objects: Any) -> dict[str, Any]:
        """A copy, with the class of the wrapped optimiser where a file has its name."""
        copied = dict(config)
        if "inner_optimizer_type" in copied:
            copied["inner_optimizer_type"] = class_of(
                copied["inner_optimizer_type"], custom_objects
            )
        return copied

    @staticmethod
    def _verify_config(config: dict[str, Any]) -> None:
        needed = {
            "inner_optimizer_config": "a configuration dict",
            "inner_optimizer_type": "a type",
        }
        for key, what in needed.items():
            if key not in config:
                raise ValueError(
                    f"_OptimizerV2Wrapper configuration dicts must contain {what} for the wrapped "
                    f"optimizer, {key}."
                )
        if not issubclass(config["inner_optimizer_type"], OptimizerV2):
            raise ValueError("inner_optimizer_type must be a class derived from Keras OptimizerV2.")


def _shared(name: str) -> property:
    def read(self: Any) -> Any:
        return getattr(self._opt, name)

    def write(self: Any, value: Any) -> None:
        setattr(self._opt, name, value)

    return property(read, write)


for _name in _SHARED:
    setattr(_OptimizerV2Wrapper, _name, _shared(_name))


def in_order(operations: list[Any]) -> Any:
    """A context for what graphs run after `operations`, which are None in eager code."""
    return tf.control_dependencies([op for op in operations if op is not None])
