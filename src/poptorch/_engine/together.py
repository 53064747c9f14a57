"""Training with replicas in several processes: gradients are summed over all of them.

Every process computes the micro-batches of its own replicas; one reduction comes before each
update, which all processes then do alike. Besides, a few bytes before each call tell whether
the optimisers still have the same attributes, and whether a host wrote weights in between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from softipu import instances
from softipu.errors import InstancesDisagree, PopdistMisuse, SoftIPUError
from softipu.instances import group

from .._errors import failure
from .._logging import logger
from .memory import DeviceMemory

if TYPE_CHECKING:
    from .._capture import Program


@dataclass(frozen=True)
class Share:
    """Which part of all replicas this process has."""

    index: int = 0
    count: int = 1
    total_replicas: int = 1
    offset: int = 0


def share_of(process: int, processes: int, replicas: int) -> Share:
    """The share of a process with so many replicas, which all processes have unless poprun knows
    better."""
    if processes == 1:
        return Share(total_replicas=replicas)
    with told():
        instance = instances.read()
    if instance.uniform or instance.count != processes:
        return Share(process, processes, replicas * processes, replicas * process)
    if replicas != instance.local_replicas:
        raise failure(
            PopdistMisuse,
            f"Options.replicationFactor is {replicas}, but this instance has "
            f"{instance.local_replicas} replicas.",
        )
    return Share(process, processes, instance.total_replicas, instance.replica_offset)


@contextmanager
def told() -> Iterator[None]:
    """What instances say leaves as the exception that PopTorch users catch."""
    try:
        yield
    except SoftIPUError as error:
        raise failure(type(error), error.what, cause=error.cause, remedy=error.remedy) from error


class Together:
    """The connection of one executable to its counterparts in the other processes."""

    def __init__(self, share: Share, program: Program, terms: Sequence[object]) -> None:
        with told():
            instance = instances.read()
        if (instance.index, instance.count) != (share.index, share.count):
            raise failure(
                PopdistMisuse,
                f"Options.Distributed says that this is process {share.index} of {share.count}, "
                f"but it was started as instance {instance.index} of {instance.count}.",
            )
        with told():
            self._group = group.current()
        self._program = program
        self._terms = terms
        self._begun = False
        #: The attributes of the optimizer when they were last looked at, as one number.
        self._digested: dict[str, object] | None = None
        self._attributes = 0
        self._flat: dict[torch.dtype, torch.Tensor] = {}
        self._rooms: list[torch.Tensor] = []
        self._types: tuple[torch.dtype, ...] = ()

    @property
    def waited(self) -> float:
        """Seconds spent on other processes so far."""
        return self._group.waited

    # --- before each call -----------------------------------------------------------------------

    def before_call(self, memory: DeviceMemory) -> None:
        """All processes have the same program and, whatever their hosts did since the last call,
        the same weights and the same attributes of the optimizer: or they would drift apart."""
        with told():
            same, written = self._look_around(memory)
            if not same:
                self._refuse_attributes(memory)
            if not self._begun:
                self._group.agree("programs, options or optimizers", self._signature(memory))
                self._group.meet_on(memory.device)
            if written or not self._begun:
                self._even_out(memory)
        memory.written = False
        self._begun = True

    def _look_around(self, memory: DeviceMemory) -> tuple[bool, bool]:
        """Whether all have the same attributes, and whether any host wrote."""
        if memory.attributes != self._digested:
            self._digested = dict(memory.attributes)
            text = json.dumps(self._digested, sort_keys=True).encode()
            found = hashlib.blake2b(text, digest_size=8).digest()
            self._attributes = (
                int.from_bytes(found, "big") >> 1
            )  # so that it has a negative as well
        # The largest and the smallest are equal only if all are.
        own = torch.tensor([self._attributes, -self._attributes, memory.written])
        self._group.all_reduce(own, "max")
        largest, smallest, written = own.tolist()
        return largest == -smallest, bool(written)

    def _refuse_attributes(self, memory: DeviceMemory) -> None:
        texts = self._group.all_gather_bytes(json.dumps(memory.attributes).encode())
        tables = [json.loads(text) for text in texts]
        for index, table in enumerate(tables):
            for name in {**tables[0], **table}:
                first, other = (rows.get(name, "nothing") for rows in (tables[0], table))
                if first != other:
                    raise InstancesDisagree(
                        f"The optimizers of instances 0 and {index} differ: {name} is {first} and "
                        f"{other}.",
                        cause="All instances update the same weights, each for itself, so that "
                        "they have to do it alike.",
                        remedy="Give all instances the same optimizer, and call setOptimizer with "
                        "the same values in all of them; compute what a schedule depends on, such "
                        "as a loss, over all instances (popdist.collectives.allReduceSum).",
                    )

    def _even_out(self, memory: DeviceMemory) -> None:
        """Where what the hosts wrote differs, instance 0 has the say."""
        weights = [*memory.parameters.values(), *memory.state.values()]
        buffers = [value for table in memory.buffers for value in table.values()]
        digests = self._group.all_gather_bytes(_digest(weights) + _digest(buffers))
        if len(set(digests)) == 1:
            return
        # Running statistics are those of each instance's own data, once the training has begun.
        end = len(digests[0]) // 2 if self._begun else None
        others = [i for i, digest in enumerate(digests) if digest[:end] != digests[0][:end]]
        if others and self._group.index in (0, *others):
            logger.warning(
                "Weights or optimizer states of instances 0 and %s differ %s the training: all go "
                "on with those of instance 0. Give all instances the same random seed and the same "
                "weights, or call hvd.broadcast_parameters(model.state_dict(), root_rank=0) "
                "before.",
                ", ".join(map(str, others)),
                "since one of them wrote during" if self._begun else "at the beginning of",
            )
        for tensor in (*weights, *buffers):
            self._group.broadcast(tensor, 0)

    def _signature(self, memory: DeviceMemory) -> bytes:
        program = self._program
        rows: list[object] = [str(term) for term in self._terms]
        rows += [program.trained, program.accumulators, program.hypers]
        for table in (memory.parameters, memory.state):
            rows += [[n, list(value.shape), str(value.dtype)] for n, value in table.items()]
        return hashlib.sha256(json.dumps(rows).encode()).digest()

    # --- each step ------------------------------------------------------------------------------

    def room(
        self, like: Sequence[torch.Tensor], types: Sequence[torch.dtype]
    ) -> list[torch.Tensor]:
        """Tensors of these shapes to sum up in, which lie in one piece of memory for each type."""
        if self._types != tuple(types):
            self._types = tuple(types)
            self._lay_out(like)
        return list(self._rooms)

    def _lay_out(self, like: Sequence[torch.Tensor]) -> None:
        sizes: dict[torch.dtype, int] = dict.fromkeys(self._types, 0)
        places = []
        for tensor, dtype in zip(like, self._types, strict=True):
            places.append((dtype, sizes[dtype], tensor))
            sizes[dtype] += tensor.numel()
        device = like[0].device if like else torch.device("cpu")
        self._flat = {
            dtype: torch.empty(size, dtype=dtype, device=device) for dtype, size in sizes.items()
        }
        self._rooms = [
            self._flat[dtype][start : start + tensor.numel()].view(tensor.shape)
            for dtype, start, tensor in places
        ]

    def reduce(self) -> None:
        """What was summed up in the rooms becomes the sum over all processes."""
        with told():
            for flat in self._flat.values():
                self._group.all_reduce(flat)


def _digest(tensors: Sequence[torch.Tensor]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        whole = tensor.detach().cpu().contiguous().flatten()
        found.update(whole.view(torch.uint8).numpy().data)
    return found.digest()
