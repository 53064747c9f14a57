"""The options of the CNN harness: one dataclass, whose fields are also the command's options.

Names and meanings are those of the harness that IPU users know; the defaults are its defaults
unless the meaning says why not.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import UnfitBenchOption, UnknownModel

#: Those of `softipu.bench.models`; here so that the command can list them without PyTorch.
MODELS = (
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50",
    "resnext101",
    "mobilenet",
    "mobilenet-v3-small",
    "mobilenet-v3-large",
    "efficientnet-b0",
    "efficientnet-b4",
)
DATA = ("real", "synthetic", "generated")
PRECISIONS = ("16.16", "32.32")
NORMS = ("batch", "group", "none")
LOCATIONS = ("host", "ipu", "none")
MEMORY_TARGETS = ("cycles", "balanced", "memory")


def _option(default: Any, meaning: str, **rest: Any) -> Any:
    """A field; `rest`: choices, least (of a number), metavar, aliases, several."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, **rest})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure, and how."""

    model: str = _option("resnet18", "model to run: " + ", ".join(MODELS), metavar="NAME")
    data: str = _option(
        "real",
        "images from a folder, random ones of the host (generated), or none at all: random numbers "
        "made on the IPU, to measure without host I/O (synthetic)",
        choices=DATA,
    )
    data_path: str | None = _option(
        None,
        "with --data real: folder with images, in it or in its subfolders (default: two "
        "photographs that come with scikit-learn)",
        metavar="DIR",
    )
    micro_batch_size: int = _option(1, "samples per micro-batch", least=1)
    iterations: int = _option(
        100, "calls of the program; the instances of poprun divide them", least=1
    )
    warmup_iterations: int = _option(
        2, "calls at the start that no figure counts; one call always counts", least=0
    )
    settle: int = _option(
        0,
        "before all that: uncounted calls until softipu has chosen its fastest way to compute, for "
        "at most so many seconds",
        least=0,
    )
    device_iterations: int = _option(
        1, "micro-batches per call and replica", least=1, aliases=["--device-iteration"]
    )
    replicas: int = _option(
        1, "copies of the model, each with IPUs of its own; poprun's number wins", least=1
    )
    pipeline_splits: tuple[str, ...] = _option(
        (),
        "layers at which a new stage on the next IPU begins, for example layer1/0/conv1 layer3",
        metavar="LAYER",
        several=True,
    )
    precision: str = _option("16.16", "of activations and of weights", choices=PRECISIONS)
    half_partial: bool = _option(False, "partial sums of products in half precision")
    norm_type: str = _option("batch", "kind of the norm layers", choices=NORMS)
    norm_num_groups: int = _option(32, "with --norm-type group: number of groups", least=1)
    norm_eps: float | None = _option(
        None, "epsilon of the norm layers (default: the model's own, 1e-5 for group norm)"
    )
    batchnorm_momentum: float | None = _option(
        None,
        "momentum of batch norm layers (default: the model's own); inference has no use for it",
    )
    enable_fast_groupnorm: bool = _option(
        False, "the IPU's faster group norm, whose groups take every n-th channel"
    )
    efficientnet_expand_ratio: int = _option(6, "expansion in EfficientNet's blocks", least=1)
    efficientnet_group_dim: int = _option(
        1, "channels per group of EfficientNet's depthwise convolutions", least=1
    )
    input_image_padding: bool = _option(False, "images with a fourth channel, of zeros")
    eight_bit_io: bool = _option(False, "images travel to the IPU as bytes and are converted there")
    normalization_location: str = _option("host", "where images are normalised", choices=LOCATIONS)
    weights: str | None = _option(
        None,
        "file with weights: a PyTorch state dict or safetensors (default: random ones)",
        metavar="FILE",
    )
    random_weights: bool = _option(
        False, "random weights, the same ones every time; without --weights they are random too"
    )
    model_cache_path: str | None = _option(
        None, "directory where compiled models are kept for the next time", metavar="DIR"
    )
    num_io_tiles: int = _option(
        0, "tiles that do I/O while others compute: an even number from 32 to 192, 0 for none; "
        "the stages of --pipeline-splits then run one after the other",
        least=0,
    )  # fmt: skip
    exchange_memory_target: str = _option(
        "cycles",
        "what a real IPU's compiler optimises exchanges between tiles for; accepted, without any "
        "effect on a software IPU or on modelled figures",
        choices=MEMORY_TARGETS,
    )
    dataloader_worker: int = _option(
        0, "processes that load data (default 0: load between calls, outside the time measured)",
        least=0,
    )  # fmt: skip
    dataloader_rebatch_size: int | None = _option(
        None, "load ahead, so many samples at a time (default: a whole batch, when it is needed)",
        least=1,
    )  # fmt: skip
    compile_only: bool = _option(False, "compile, for IPUs that needn't be there, and stop")
    offline_target_ipu_version: int = _option(2, "with --compile-only: IPU generation", least=1)
    profile: bool = _option(
        False, "write a PyTorch profiler trace of a call and a report on the modelled IPU, and stop"
    )

    @property
    def stages(self) -> int:
        return len(self.pipeline_splits) + 1

    @property
    def ipus(self) -> int:
        return self.replicas * self.stages

    @property
    def half(self) -> bool:
        return self.precision == "16.16"

    @property
    def batch_size(self) -> int:
        """Samples per call: what the host hands over at once."""
        return self.micro_batch_size * self.device_iterations * self.replicas

    @property
    def total_samples(self) -> int:
        return self.batch_size * self.iterations


FIELDS = {field.name: field for field in dataclasses.fields(Options)}
#: Those that say how to measure; the others say what is run, whoever runs it.
MEASURING = (
    "data",
    "data_path",
    "iterations",
    "warmup_iterations",
    "settle",
    "dataloader_worker",
    "dataloader_rebatch_size",
    "compile_only",
    "offline_target_ipu_version",
    "profile",
)


def spelling(name: str) -> str:
    """A field's name as an option."""
    return "--" + name.replace("_", "-")


def nearest(name: str, known: Iterable[str]) -> str:
    """`Did you mean x? `, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"Did you mean {close[0]}? " if close else ""


def check_model(name: str) -> str:
    if name not in MODELS:
        raise UnknownModel(
            f"There is no model {name!r}.",
            remedy=f"{nearest(str(name), MODELS)}Models: {', '.join(MODELS)}.",
        )
    return name


def understood(options: Options) -> tuple[Options, list[str]]:
    """The options as those who give them together mean them, and what is worth telling of that."""
    notes = []
    if options.eight_bit_io and options.normalization_location == "host":
        notes.append("Eight-bit images are normalised on the IPU, not on the host.")
        options = dataclasses.replace(options, normalization_location="ipu")
    if options.num_io_tiles and options.stages > 1:
        notes.append(
            f"The {options.stages} stages run one after the other, not as a pipeline: "
            "--num-io-tiles asks for sharded execution."
        )
    return options, notes


def checked(options: Options) -> Options:
    """The same options, after a look at each value and at what excludes what."""
    for name, field in FIELDS.items():
        check_value(name, getattr(options, name), field.metadata)
    if options.eight_bit_io and options.normalization_location != "ipu":
        raise UnfitBenchOption(
            "eight_bit_io goes only with normalization_location ipu.",
            cause="Bytes have to become numbers that layers can use, on the IPU.",
            remedy="Use --normalization-location ipu, or leave out --eight-bit-io.",
        )
    piece = options.dataloader_rebatch_size
    if piece is not None and options.batch_size % piece:
        raise UnfitBenchOption(
            f"A batch of {options.batch_size} samples is not divisible into pieces of {piece}.",
            cause="A call takes micro-batch size x device iterations x replicas samples.",
            remedy=f"Choose a --dataloader-rebatch-size that divides {options.batch_size}.",
        )
    if options.data_path is not None and options.data != "real":
        raise UnfitBenchOption(
            f"data_path has no meaning with data {options.data}.", remedy="Use --data real."
        )
    if options.profile and options.compile_only:
        raise UnfitBenchOption(
            "profile and compile_only exclude each other.",
            cause="A profile is the trace of a call, and --compile-only makes none.",
            remedy="Use one of them; `softipu estimate MODEL --report DIR` writes a report on the "
            "modelled IPU without any call.",
        )
    return options


def check_value(name: str, value: Any, rules: Any) -> None:
    """Raise unless a value has the type and range of its option."""
    if name == "model":
        check_model(value)
    elif "choices" in rules:
        _require(value in rules["choices"], name, value, "one of " + ", ".join(rules["choices"]))
    elif "several" in rules:
        right = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
        _require(right, name, value, "a list of names")
    elif FIELDS[name].default is False:
        _require(isinstance(value, bool), name, value, "true or false")
    elif value is None:
        _require(FIELDS[name].default is None, name, value, "a value")
    elif "least" in rules:
        right = isinstance(value, int) and not isinstance(value, bool) and value >= rules["least"]
        _require(right, name, value, f"a whole number from {rules['least']}")
    elif name in ("norm_eps", "batchnorm_momentum"):
        right = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1
        _require(right, name, value, "a number between 0 and 1")
    else:
        _require(isinstance(value, str) and bool(value), name, value, "a path")


def _require(right: bool, name: str, value: Any, wanted: str) -> None:
    if not right:
        raise UnfitBenchOption(f"{name} is {value!r}, not {wanted}.")
