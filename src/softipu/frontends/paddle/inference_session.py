"""The IPU side of one predictor: what may be fed, and what a run does.

A program with one micro-batch in a run feeds Paddle's tensors directly. With more of them, or with
half precision, inputs are kept here until the run, and outputs are collected here.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from softipu.errors import InferenceInput, InferenceUnsupported

from .devices import Attachment
from .inference_model import Feed, Model
from .inference_options import IpuOptions

if TYPE_CHECKING:
    from softipu.estimating.modelled import Call

Array = np.ndarray[Any, Any]

#: Types that may be fed for a type of the model: those that the IPU narrows are taken narrow too.
_TAKEN = {"int64": ("int64", "int32"), "float64": ("float64", "float32")}


@dataclass(frozen=True)
class NativeTensor:
    """Methods of Paddle's tensors, as they were before ours stood in front of them."""

    methods: dict[str, Callable[..., Any]]
    half_type: Any

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.methods[name]


class Gate:
    """Lets clones be made only while none of the family runs: `with gate:` around a run.

    Paddle's clones share weights, and making one disturbs another that runs at that moment.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running = 0
        self._cloning = False

    def __enter__(self) -> None:
        with self._lock:
            while self._cloning:
                self._changed.wait()
            self._running += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._running -= 1
            if self._cloning:
                self._changed.notify_all()

    @contextmanager
    def cloning(self) -> Iterator[None]:
        with self._lock:
            while self._cloning:
                self._changed.wait()
            self._cloning = True  # first: those who run again and again must not keep it out
            while self._running:
                self._changed.wait()
        try:
            yield
        finally:
            with self._lock:
                self._cloning = False
                self._changed.notify_all()


class Session:
    """What a predictor on IPUs has beyond Paddle's; clones have twins of it."""

    def __init__(
        self,
        native: NativeTensor,
        options: IpuOptions,
        model: Model,
        attachment: Attachment,
        modelled: Call,
        gate: Gate | None = None,
    ) -> None:
        self.native = native
        self.options = options
        self.model = model
        self.attachment = attachment
        #: Modelled cycles of a run, once they are known.
        self.modelled = modelled
        self.gate = gate or Gate()
        self.half = bool(options["ipu_enable_fp16"])
        self.leading = options.leading_shape
        self.batches = math.prod(self.leading)
        #: Whether inputs wait here for the run.
        self.staged = self.half or self.batches > 1
        self.waiting: dict[str, Array] = {}
        self.results: dict[str, Array] = {}
        #: Bytes of each input that was set; without all of them there is nothing to run.
        self.fed: dict[str, int] = {}
        self.bytes_out = -1

    def twin(self) -> Session:
        """For a clone of the predictor: the same IPUs, inputs and outputs of its own."""
        return Session(
            self.native, self.options, self.model, self.attachment, self.modelled, self.gate
        )

    # --- inputs ---

    def _no_such(self, what: str, name: str, names: Iterable[str]) -> InferenceInput:
        return InferenceInput(
            f"{self.model.name} has no {what} {name!r}.",
            cause=f"Its {what}s are: {', '.join(names)}.",
            remedy=f"Take a name from get_{what}_names().",
        )

    def input_port(self, name: str, owner: Any) -> InputPort:
        if name not in self.model.feeds:
            raise self._no_such("input", name, self.model.feeds)
        return InputPort(self, owner, self.model.feeds[name])

    def output_port(self, name: str, owner: Any, names: list[str]) -> OutputPort:
        if name not in names:
            raise self._no_such("output", name, names)
        return OutputPort(self, owner, name)

    def micro_shape(self, feed: Feed) -> tuple[int, ...]:
        """The shape that the program is compiled for; -1 where the model leaves it open."""
        if feed.shape and feed.shape[0] < 0:
            return (int(self.options["ipu_micro_batch_size"]), *feed.shape[1:])
        return feed.shape

    def check_shape(self, feed: Feed, shape: tuple[int, ...]) -> None:
        micro = self.micro_shape(feed)
        stacked = (*self.leading, *micro)
        flat = (micro[0] * self.batches, *micro[1:]) if micro else stacked
        if not any(_fits(shape, wanted) for wanted in (flat, stacked)):
            raise InferenceInput(
                f"Input {feed.name!r} of {self.model.name} takes an array of shape "
                f"{_shown(flat)}, not {_shown(shape)}."
            )

    def check_dtype(self, feed: Feed, dtype: str) -> None:
        taken = _TAKEN.get(feed.dtype, (feed.dtype,))
        if self.half and feed.dtype == "float32":
            taken = ("float32", "float16")
        if dtype not in taken:
            raise InferenceInput(
                f"Input {feed.name!r} of {self.model.name} takes {' or '.join(taken)}, "
                f"not {dtype}.",
                remedy=f"Convert it, for example with array.astype({taken[0]!r}).",
            )

    def prepared(self, feed: Feed, data: Array) -> Array:
        """An input as the engine takes it."""
        if self.half and feed.dtype == "float32":
            with np.errstate(over="ignore"):  # becomes infinite, as on the IPU
                data = data.astype(np.float16)
        return data.astype(feed.dtype, copy=False)

    def set_input(self, feed: Feed, data: Array) -> None:
        """Keep a whole input until the run; the caller may change its array meanwhile."""
        shape = (self.batches, *_open_filled(self.micro_shape(feed), data))
        self.waiting[feed.name] = np.array(self.prepared(feed, data).reshape(shape), order="C")
        self.note(feed.name, data.nbytes)

    def note(self, name: str, size: int) -> None:
        if self.fed.get(name) != size:
            self.fed[name] = size
            self.bytes_out = -1  # other inputs, other outputs

    # --- runs ---

    def run(self, engine: Any) -> Any:
        if len(self.fed) != len(self.model.feeds):
            missing = [name for name in self.model.feeds if name not in self.fed]
            raise InferenceInput(
                f"Input {missing[0]!r} of {self.model.name} was never set.",
                remedy="Call get_input_handle(name).copy_from_cpu(array) for each input first.",
            )
        with self.gate:
            start = perf_counter()
            done = self._run_staged(engine) if self.staged else engine.run()
            seconds = perf_counter() - start
        if self.bytes_out < 0:
            self.bytes_out = self._output_bytes(engine)
        self.attachment.account(
            seconds, sum(self.fed.values()), self.bytes_out, self.modelled.cycles()
        )
        return done

    def _run_staged(self, engine: Any) -> bool:
        put, get = self.native["copy_from_cpu"], self.native["copy_to_cpu"]
        inputs = [(engine.get_input_handle(name), whole) for name, whole in self.waiting.items()]
        collected: dict[str, list[Array]] = {}
        for batch in range(self.batches):
            for handle, whole in inputs:
                put(handle, whole[batch])
            engine.run()
            for name in engine.get_output_names():
                output = get(engine.get_output_handle(name))
                collected.setdefault(name, []).append(output)
        self.results = {name: self._joined(parts) for name, parts in collected.items()}
        return True

    def _joined(self, parts: list[Array]) -> Array:
        whole = np.stack(parts).reshape(*self.leading, *parts[0].shape)
        if self.half and whole.dtype == np.float32:
            with np.errstate(over="ignore"):
                return whole.astype(np.float16)
        return whole

    def run_on(self, engine: Any, inputs: Any) -> list[Any]:
        """A run on a list of Paddle's tensors, in the order of the input names."""
        feeds = [self.model.feeds[name] for name in engine.get_input_names()]
        if not isinstance(inputs, (list, tuple)) or len(inputs) != len(feeds):
            raise InferenceInput(
                f"{self.model.name} takes a list of {len(feeds)} tensors: "
                f"{', '.join(feed.name for feed in feeds)}."
            )
        for feed, tensor in zip(feeds, inputs, strict=True):
            self.check_shape(feed, tuple(tensor.shape))
            self.check_dtype(feed, _dtype_of(tensor))
        if self.staged:
            for feed, tensor in zip(feeds, inputs, strict=True):
                self.set_input(feed, tensor.numpy())
            self.run(engine)
            import paddle

            return [paddle.to_tensor(whole) for whole in self.results.values()]
        with self.gate:
            start = perf_counter()
            outputs: list[Any] = engine.run(list(inputs))
            seconds = perf_counter() - start
        bytes_in, bytes_out = (
            int(sum(tensor.size * tensor.element_size() for tensor in side))
            for side in (inputs, outputs)
        )
        self.attachment.account(seconds, bytes_in, bytes_out, self.modelled.cycles())
        return outputs

    def _output_bytes(self, engine: Any) -> int:
        if self.staged:
            return sum(whole.nbytes for whole in self.results.values())
        shape = self.native["shape"]
        handles = [engine.get_output_handle(name) for name in engine.get_output_names()]
        return sum(4 * math.prod(shape(handle)) for handle in handles)


class Port:
    """The IPU side of a tensor. What it does not say is as for any of Paddle's tensors."""

    def __init__(self, session: Session, owner: Any, name: str) -> None:
        self.session = session
        self.name = name
        #: The predictor, which lives as long as its tensors.
        self._owner = owner

    def _native(self, method: str, handle: Any, *arguments: Any, **named: Any) -> Any:
        return self.session.native[method](handle, *arguments, **named)

    def _wrong_side(self, method: str, side: str) -> InferenceUnsupported:
        return InferenceUnsupported(
            f"{method} of {self.name!r}: it is an {side} of {self.session.model.name}."
        )


class InputPort(Port):
    def __init__(self, session: Session, owner: Any, feed: Feed) -> None:
        super().__init__(session, owner, feed.name)
        self.feed = feed
        #: Shape and type that were fed last: most programs feed the same for ever.
        self._known: tuple[Any, Any] | None = None

    def copy_from_cpu(self, handle: Any, data: Any) -> None:
        if not isinstance(data, np.ndarray):
            self._native("copy_from_cpu", handle, data)  # strings, and Paddle's own complaint
            self.session.note(self.name, 0)
            return
        session = self.session
        if (data.shape, data.dtype) != self._known:
            session.check_shape(self.feed, data.shape)
            session.check_dtype(self.feed, data.dtype.name)
            self._known = (data.shape, data.dtype)
        if session.staged:
            session.set_input(self.feed, data)
        else:
            fitting = data.astype(self.feed.dtype, copy=False)
            self._native("copy_from_cpu", handle, fitting)
            session.note(self.name, fitting.nbytes)

    def share_external_data(self, handle: Any, data: Any) -> None:
        session = self.session
        shape = data.shape() if callable(data.shape) else data.shape
        session.check_shape(self.feed, tuple(shape))
        session.check_dtype(self.feed, _dtype_of(data))
        if session.staged or _dtype_of(data) != self.feed.dtype:
            self.copy_from_cpu(handle, np.asarray(data))
        else:
            self._native("share_external_data", handle, data)
            session.note(self.name, math.prod(shape) * np.dtype(self.feed.dtype).itemsize)

    def share_external_data_by_ptr_name(
        self, handle: Any, data: Any, shape: Any, dtype: Any, place: Any
    ) -> None:
        if self.session.staged:
            raise InferenceUnsupported(
                "share_external_data_by_ptr_name with several micro-batches or half precision.",
                remedy="Use copy_from_cpu.",
            )
        self.session.check_shape(self.feed, tuple(shape))
        self._native("share_external_data_by_ptr_name", handle, data, shape, dtype, place)
        self.session.note(self.name, math.prod(shape) * np.dtype(self.feed.dtype).itemsize)

    def reshape(self, handle: Any, shape: Any) -> None:
        if isinstance(shape, int):  # a number of strings
            self._native("reshape", handle, shape)
            return
        self.session.check_shape(self.feed, tuple(shape))
        if not self.session.staged:
            self._native("reshape", handle, list(shape))

    def set_lod(self, handle: Any, lod: Any) -> None:
        if self.session.staged:
            raise InferenceUnsupported(
                "set_lod with several micro-batches or half precision: sequences of different "
                "length have no fixed shape.",
                remedy="Pad them to one length.",
            )
        self._native("set_lod", handle, lod)

    def copy_to_cpu(self, handle: Any) -> Any:
        if self.session.staged:
            raise self._wrong_side("copy_to_cpu", "input")
        return self._native("copy_to_cpu", handle)

    def shape(self, handle: Any) -> list[int]:
        waiting = self.session.waiting.get(self.name)
        if waiting is None:
            return list(self._native("shape", handle))
        return [math.prod(waiting.shape[:2]), *waiting.shape[2:]]

    def type(self, handle: Any) -> Any:
        return self._native("type", handle)


class OutputPort(Port):
    def copy_to_cpu(self, handle: Any) -> Any:
        session = self.session
        if not session.staged:
            return self._native("copy_to_cpu", handle)
        return self._result().copy()

    def _result(self) -> Array:
        if self.name not in self.session.results:
            raise InferenceInput(
                f"Output {self.name!r} of {self.session.model.name} was read before a run.",
                cause="Outputs exist once run() was called.",
                remedy="Call run() first.",
            )
        return self.session.results[self.name]

    def shape(self, handle: Any) -> list[int]:
        if not self.session.staged:
            return list(self._native("shape", handle))
        return list(self._result().shape)

    def type(self, handle: Any) -> Any:
        if self.session.half and self._result().dtype == np.float16:
            return self.session.native.half_type
        return self._native("type", handle)

    def _refuse(self, method: str) -> Callable[..., None]:
        raise self._wrong_side(method, "output")

    def copy_from_cpu(self, handle: Any, data: Any) -> None:
        self._refuse("copy_from_cpu")

    def share_external_data(self, handle: Any, data: Any) -> None:
        self._refuse("share_external_data")

    def share_external_data_by_ptr_name(self, handle: Any, *arguments: Any) -> None:
        self._refuse("share_external_data_by_ptr_name")

    def reshape(self, handle: Any, shape: Any) -> None:
        self._refuse("reshape")

    def set_lod(self, handle: Any, lod: Any) -> None:
        self._refuse("set_lod")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        want in (-1, have) for have, want in zip(shape, wanted, strict=True)
    )


def _open_filled(micro: tuple[int, ...], data: Array) -> tuple[int, ...]:
    """The micro-batch's shape with what the data says where the model left it open."""
    actual = data.shape[data.ndim - len(micro) + 1 :] if micro else ()
    return (*micro[:1], *actual)


def _shown(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join("any" if size < 0 else str(size) for size in shape) + "]"


def _dtype_of(tensor: Any) -> str:
    if hasattr(tensor, "_dtype"):  # a tensor of the old kind says a number
        return str(np.asarray(tensor).dtype)
    return str(tensor.dtype).rsplit(".", 1)[-1]
