"""Samples followed through the ops of a graph: where each tensor has them.

Data that come from no input (masks, zeros, repeated rows) show samples only where they meet some:
then they are followed back to whatever made them so large, and the walk begins again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from softipu.graph import Graph, Op, Phase, Role, Tensor

from .meeting import SAME, meeting, sources, stacked
from .samples import NOWHERE, Batch, Lost, Place, Places, broadcast, through

#: More walks than any graph was seen to need.
_WALKS = 12

Known = Sequence[Places]


@dataclass
class Followed:
    graph: Graph
    batch: Batch
    #: What is known from the start: of inputs; later also of data that are as large as told.
    given: dict[str, Places]
    places: dict[str, Places] = field(default_factory=dict)
    #: Programs inside ops, by the index of the op.
    bodies: dict[int, tuple[Followed, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._learnt: set[tuple[str, Place]] = set()
        self._made_by = {name: op for op in self.graph.ops for name in op.outputs}
        for _ in range(_WALKS):
            before = dict(self.given)
            lost = self._walk()
            if self.given == before:
                if lost is not None:
                    raise lost
                return
        raise Lost

    def _walk(self) -> Lost | None:
        self.places = {name: self.given.get(name, NOWHERE) for name in self.graph.tensors}
        lost = None
        for index, op in enumerate(self.graph.ops):
            inputs = [self.graph.tensors[name] for name in op.inputs]
            known = [self.places[name] for name in op.inputs]
            outputs = [self.graph.tensors[name] for name in op.outputs]
            for name, place in meeting(op, inputs, known, outputs):
                if place not in self.places[name]:
                    self.learn(name, place)
            try:
                if op.bodies:
                    found = self._inside(index, op, inputs, known)
                else:
                    found = [self._result(op, inputs, known, out) for out in outputs]
            except Lost as error:  # what is learnt until the next walk may be what it lacked
                lost, found = error, [NOWHERE] * len(outputs)
            for out, its in zip(outputs, found, strict=True):
                self.places[out.name] = self.places[out.name] | its
        return lost

    # --- forwards -------------------------------------------------------------------------------

    def _result(self, op: Op, inputs: list[Tensor], known: Known, out: Tensor) -> Places:
        batch = self.batch
        if not any(known):
            return NOWHERE
        old, new, first = inputs[0].shape, out.shape, known[0]
        if op.kind == "view":
            return through(lambda place: batch.viewed(place, op, old, new), first)
        if op.kind == "slice_view":
            return through(lambda place: batch.parted(place, op, old, new), first)
        if op.kind == "expand_view":
            return through(lambda place: batch.repeated(place, old, new), first)
        if op.kind == "transpose":
            return through(lambda place: batch.permuted(place, op.attributes["order"]), first)
        if op.kind == "reduce":
            axes = tuple(op.attributes["axes"])
            return through(lambda place: batch.reduced(place, axes, old, new), first)
        if op.kind == "matmul":
            return frozenset(p for p in first if p.axis != 2) | frozenset(
                p for p in known[1] if p.axis != 1
            )
        if op.kind.startswith("convolution"):
            return _convolved(op, known)
        if op.kind == "gather":
            return batch.indexed(known, op, inputs, new)
        if op.kind == "scatter":
            return self._scattered(op, inputs, known, out)
        if op.kind == "concat":
            return self._joined(op, inputs, known, out)
        if op.kind == "copy":
            return self._copied(op, inputs, known, out)
        if op.kind == "ctc_loss":
            steps_first = len(new) == len(old)
            if not steps_first and any(place.axis == 0 for place in first):
                raise Lost  # steps of one sequence
            return frozenset(p if steps_first else Place(p.axis - 1, p.stride) for p in first)
        if op.kind.startswith("normalise") and new != old:
            return self._statistics(op, inputs[0], first, out)
        if op.kind.startswith("normalise"):  # scale and statistics say nothing that these don't
            full = [index for index, tensor in enumerate(inputs) if tensor.shape == new]
            return frozenset().union(*(known[index] for index in full))
        if op.kind in SAME:
            return self._matching(inputs, known, out)
        raise Lost

    def _statistics(self, op: Op, x: Tensor, places: Places, out: Tensor) -> Places:
        """Those of single samples have an entry for each group of each; scale and shift none, but
        where samples lie side by side as channels."""
        groups = int(op.attributes["groups"])
        if op.attributes["function"] == "batch":
            channels = out.shape == x.shape[1:2]
            return frozenset(Place(0, p.stride) for p in places if channels and p.axis == 1)
        own = op.kind == "normalise"
        if not own or out.elements != groups:
            return NOWHERE
        return through(lambda p: self.batch.grouped(p, groups, x.shape, out.shape), places)

    def _matching(self, inputs: list[Tensor], known: Known, out: Tensor) -> Places:
        """Axes of operands are axes of the result; those with fewer are repeated."""
        full: set[Place] = set()
        fewer: set[Place] = set()
        for tensor, places in zip(inputs, known, strict=True):
            for place in places:
                if len(tensor.shape) == len(out.shape):
                    if tensor.shape[place.axis] != out.shape[place.axis]:
                        raise Lost
                    full.add(place)
                elif tensor.elements == out.elements:
                    full.add(self.batch.reshaped(place, tensor.shape, out.shape))
                else:
                    fewer.add(broadcast(place, tensor.shape, out.shape))
        return frozenset(full or fewer)

    def _joined(self, op: Op, inputs: list[Tensor], known: Known, out: Tensor) -> Places:
        axis = int(op.attributes["axis"])
        if stacked(inputs[0].shape, out.shape):
            return frozenset(
                Place(place.axis + (place.axis >= axis), place.stride)
                for place in frozenset().union(*known)
            )
        for place in frozenset().union(*known):
            along = [place in its for its in known]
            sizes = {tensor.shape[place.axis] for tensor in inputs}
            joined = place.axis == axis
            if (joined and not all(along)) or (not joined and len(sizes) > 1):
                raise Lost
        return frozenset().union(*known)

    def _copied(self, op: Op, inputs: list[Tensor], known: Known, out: Tensor) -> Places:
        found: Places = NOWHERE
        for tensor, its in zip(inputs, known, strict=True):
            if tensor.shape == out.shape:
                found |= its
        if not found:  # a part on its own, or put into what has no samples yet
            old, its = next((t.shape, k) for t, k in zip(inputs, known, strict=True) if k)
            found = through(lambda place: self.batch.copied(place, op, old, out.shape), its)
        return found

    def _scattered(self, op: Op, inputs: list[Tensor], known: Known, out: Tensor) -> Places:
        shapes = [tensor.shape for tensor in inputs]
        if op.attributes.get("grouped"):
            return self.batch.indexed(known, op, inputs, out.shape)
        if len(inputs) > 2:
            # What is scattered into has samples of its own; the gradient of a table has none.
            return known[0] if shapes[0] == out.shape else NOWHERE
        if op.phase is not Phase.FORWARD:
            return NOWHERE
        # Rows summed up by bag, one for each sample.
        return frozenset(p for p in known[1] if p.axis == 0 and shapes[1][0] == out.shape[0])

    def _inside(self, index: int, op: Op, inputs: list[Tensor], known: Known) -> list[Places]:
        """Bodies take what the op reads one after the other; a loop hands on what it carries."""
        outputs = [NOWHERE] * len(op.outputs)
        if not any(known):
            self.bodies.pop(index, None)
            return outputs
        needed = [name for body in op.bodies for name in body.inputs]
        if len(needed) != len(inputs):
            raise Lost
        bodies, at = [], 0
        for body in op.bodies:
            entry = dict(zip(body.inputs, known[at : at + len(body.inputs)], strict=True))
            inside = Followed(body, self.batch, {name: its for name, its in entry.items() if its})
            for name, outer in zip(body.inputs, op.inputs[at:], strict=False):
                for place in inside.given.get(name, NOWHERE) - entry[name]:
                    self.learn(outer, place)
            found = [inside.places[name] for name in body.outputs]
            if op.kind == "loop":
                for carried, made, its in zip(inputs, body.outputs, found, strict=False):
                    if carried.shape == body.tensors[made].shape:
                        for place in its - self.places[carried.name]:
                            self.learn(carried.name, place)
            outputs = [a | b for a, b in zip(outputs, found, strict=True)]
            bodies.append(inside)
            at += len(body.inputs)
        self.bodies[index] = tuple(bodies)
        return outputs

    # --- backwards ------------------------------------------------------------------------------

    def learn(self, name: str, place: Place) -> None:
        """Samples are in a tensor: so they are in what it was made of."""
        tensor = self.graph.tensors[name]
        if (name, place) in self._learnt:
            return
        self._learnt.add((name, place))
        if not self.batch.fills(place, tensor.shape):
            raise Lost
        op = self._made_by.get(name)
        if op is None and tensor.role is Role.WEIGHT:
            raise Lost  # a model for this number of samples and no other
        before = list(sources(op, self.graph, self.batch, place)) if op is not None else []
        for source, at in before:
            self.learn(source, at)
        if not before:  # made as large as it is, or by what does not tell from what
            self.given[name] = self.given.get(name, NOWHERE) | {place}


def _convolved(op: Op, known: Known) -> Places:
    if any(place.axis != 0 for place in known[0]):
        raise Lost  # samples side by side as channels
    if op.kind == "convolution_weight_gradient":
        return NOWHERE
    if known[1]:
        raise Lost  # each sample has its own kernel
    return known[0]
