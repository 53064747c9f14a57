"""Writing a graph op by op, as importers and tests do: names become unique, the end is checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from softipu.errors import GraphMalformed

from .fuse import scaled_additions
from .model import DTYPE_BYTES, Graph, Op, Phase, Role, Schedule, Tensor
from .placing import placed_updates


class Builder:
    """Collects tensors and ops; `finish` checks them and gives the graph."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.updates: list[tuple[str, str]] = []
        self._used: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, or the same with a number behind it when it is taken."""
        count = self._used.get(wanted, 0)
        self._used[wanted] = count + 1
        return wanted if count == 0 else self.unique(f"{wanted}_{count}")

    def tensor(
        self, name: str, shape: Sequence[int], dtype: str = "float16", role: Role = Role.ACTIVATION
    ) -> str:
        if dtype not in DTYPE_BYTES:
            raise GraphMalformed(f"tensor {name!r} has the element type {dtype!r}")
        name = self.unique(name)
        self.tensors[name] = Tensor(name, tuple(int(size) for size in shape), dtype, role)
        if role is Role.INPUT:
            self.inputs.append(name)
        return name

    def op(
        self,
        kind: str,
        inputs: Iterable[str],
        outputs: Iterable[tuple[Sequence[int], str]],
        *,
        name: str = "",
        phase: Phase = Phase.FORWARD,
        stage: int = 0,
        path: str = "",
        source: str = "",
        bodies: tuple[Graph, ...] = (),
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Add an op whose outputs have these shapes and element types; gives their names."""
        made = tuple(self.tensor(name or kind, shape, dtype) for shape, dtype in outputs)
        # Called after its first output, which is unique; one without outputs needs a name too.
        called = made[0] if made else self.unique(name or kind)
        self.ops.append(
            Op(called, kind, tuple(inputs), made, attributes, phase, stage, path, source, bodies)
        )
        return made

    def update(self, new: str, old: str) -> None:
        """From now on `new` is the value of the weight or state `old`."""
        self.updates.append((new, old))

    def finish(self, outputs: Iterable[str], schedule: Schedule | None = None) -> Graph:
        from .checks import check

        schedule, results = schedule or Schedule(), tuple(outputs)
        kept = (*results, *(new for new, _ in self.updates), *schedule.checkpoints)
        placed = placed_updates(self.tensors, self.ops, self.updates)
        ops = scaled_additions(self.tensors, placed, kept)
        gone = {name for op in self.ops for name in op.outputs}
        gone.difference_update(name for op in ops for name in op.outputs)
        tensors = {name: held for name, held in self.tensors.items() if name not in gone}
        graph = Graph(
            self.name, tensors, tuple(ops), tuple(self.inputs), results, schedule,
            tuple(self.updates),
        )  # fmt: skip
        check(graph)
        return graph
