"""Data that change places: copies, transposes, rows by index, windows, order."""

from __future__ import annotations

from math import ceil, log2, prod

from softipu.graph import Op, Role, Tensor

from . import arrange
from .arrange import START, per_byte
from .chip import Machine
from .cost import Cost, exchange, spread, vertex
from .lookup import Lookup, planned
from .settings import Settings
from .vector import apply, over_tiles


def moved(
    tensor_bytes: int, machine: Machine, *, rearranged: bool, piece: int = 8, plan: str = ""
) -> Cost:
    """Bytes that change tiles, and maybe their order on the tile."""
    if tensor_bytes == 0:
        return Cost(plan=plan)
    here, tiles = spread(tensor_bytes, machine)
    total = exchange(float(here), machine)
    if rearranged:
        cycles = START + per_byte(piece) * here
    else:
        cycles = machine.copy_call + here / machine.copy
    copy = vertex("copy", cycles, tiles=tiles, plan=plan)
    return total + copy + Cost(temporary=here if rearranged else 0)


def transpose(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    order = tuple(op.attributes["order"])
    # While the last axis stays last, whole runs move and nothing is interleaved anew.
    last = bool(order) and order[-1] != len(order) - 1
    result = outputs[0]
    together = 8
    if last and result.elements:
        size = result.bytes // result.elements
        together = arrange.piece(size, inputs[0].shape[-1], result.shape[-1])
    return moved(result.bytes, machine, rearranged=last, piece=together, plan="transpose")


def copy(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    return moved(outputs[0].bytes, machine, rearranged=False, plan=op.kind)


def fill(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    return apply("fill", outputs[0].elements, outputs[0].dtype, machine) + Cost(plan="fill")


def gather(
    op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine, settings: Settings,
    ipu: int,
) -> Cost:  # fmt: skip
    """MultiSlice: rows of the table and their columns are dealt to tiles, then picked out."""
    index = _index(inputs[1:])
    if _by_group(op, index):
        return _grouped(index.elements, outputs[0].elements, outputs[0], machine)
    proportion = settings.proportion(ipu)
    table, made = inputs[0], outputs[0].elements
    placed = table.role in (Role.WEIGHT, Role.STATE, Role.CONSTANT)
    return _by_index(table, index.elements, made, machine, proportion, placed=placed)


def scatter(
    op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine, settings: Settings,
    ipu: int,
) -> Cost:  # fmt: skip
    """MultiUpdate(Add): each tile looks at indices for those of its own rows."""
    table = outputs[0]
    data = [
        tensor.elements for tensor in inputs
        if tensor.dtype.startswith("float") and tensor.shape != table.shape
    ]  # fmt: skip
    index = _index(inputs)
    given = max(data, default=index.elements)
    if _by_group(op, index):
        return _grouped(index.elements, given, table, machine)
    update = "add" if op.attributes["function"] == "add" else "set"
    proportion = settings.proportion(ipu)
    return _by_index(table, index.elements, given, machine, proportion, update)


def _by_group(op: Op, index: Tensor) -> bool:
    """Whether groups have indices of their own; those along the first axis that all other axes
    only repeat pick whole rows."""
    whole_rows = op.attributes["axis"] == 0 and index.elements == (*index.shape, 1)[0]
    return bool(op.attributes.get("grouped")) and not whole_rows


def _grouped(indices: int, data: int, result: Tensor, machine: Machine) -> Cost:
    """Each group has its own indices, and tiles the groups they hold: nobody looks at others'."""
    if not data or not indices:
        return Cost(plan="no rows")
    indices = min(indices, data)
    here, tiles = spread(indices, machine, 1)
    width, size = max(1, data // indices), max(1, result.bytes // max(1, result.elements))
    worker = 30 + ceil(here / machine.workers) * (19 + 2 * ceil(width * size / 4))
    return (
        exchange(float(here * (4 + width * size)), machine)
        + vertex("multi_slice", machine.workers * worker, tiles=tiles)
        + Cost(temporary=here * 4, plan=f"{indices} indices, each in its group")
    )


def _index(inputs: list[Tensor]) -> Tensor:
    """The indices: the largest operand of whole numbers."""
    whole = [tensor for tensor in inputs if not tensor.dtype.startswith("float")]
    return max(whole or inputs, key=lambda tensor: tensor.elements)


def _by_index(
    table: Tensor, indices: int, data: int, machine: Machine, proportion: float,
    update: str = "", *, placed: bool = True,
) -> Cost:  # fmt: skip
    """Rows of a table, as its planner spreads them; what is made is made where it wants them."""
    if not table.elements or not data or not indices:
        return Cost(plan="no rows")
    indices = min(indices, data)
    width = max(1, data // indices)
    lookup = Lookup(
        max(1, table.elements // width), width, max(1, table.bytes // table.elements), indices,
        table.dtype, update, placed,
    )  # fmt: skip
    return planned(lookup, machine, proportion) + Cost(flops=float(data if update == "add" else 0))


#: Assumption: cycles of a pooling worker before its first vector, for each vector, and for each row
#: of so many vectors; then for each element of a window, also where it is compared once more.
_POOL_START, _POOL_VECTOR, _POOL_ROW, _ROW_VECTORS = 60, 8, 30, 16
_POOL_ELEMENT, _POOL_COMPARED = 3, 5


def pool(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """Pooling: a few cycles for each vector of each window, and rows that start anew."""
    return _pool(op, outputs[0], inputs[0], machine, _POOL_ELEMENT)


def pool_gradient(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """The maximum compares with what it was; the mean only spreads."""
    cycles = _POOL_COMPARED if op.attributes["function"] == "max" else _POOL_ELEMENT
    return _pool(op, outputs[0], inputs[0], machine, cycles)


def _pool(op: Op, result: Tensor, source: Tensor, machine: Machine, cycles: int) -> Cost:
    window = prod(op.attributes["kernel"])
    if op.kind == "pool_gradient":
        window = max(1.0, window / prod(op.attributes["stride"]))
    here, tiles = spread(result.elements, machine, 8)
    vector = 4 if result.dtype == "float16" else 2
    vectors = ceil(here / vector / machine.workers)
    rows = max(1, vectors // _ROW_VECTORS)
    worker = _POOL_START + vectors * (_POOL_VECTOR + cycles * window) + _POOL_ROW * rows
    share = arrange.BORDER if window > 1 else 1.0
    total = exchange(source.bytes / max(1, tiles) * share, machine)
    return (
        total
        + vertex("pool", machine.workers * worker, float(result.elements * window), tiles=tiles)
        + Cost(plan=f"{op.attributes['function']} over {int(window)}")
    )


def scan(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """A scan in steps that double their reach."""
    x = outputs[0]
    length = x.shape[int(op.attributes["axis"])] if x.shape else 1
    steps = max(1, ceil(log2(max(2, length))))
    total = Cost(plan=f"scan of {length} in {steps} steps")
    for _ in range(steps):
        total += apply("add", x.elements, x.dtype, machine)
        total += exchange(x.bytes / machine.tiles, machine)
    return total


def sort(op: Op, inputs: list[Tensor], outputs: list[Tensor], machine: Machine) -> Cost:
    """Bitonic: log²/2 rounds of compare and exchange; only to the wanted length for top-k."""
    x = inputs[0]
    length = max(2, x.shape[int(op.attributes["axis"])] if x.shape else 2)
    wanted = max(2, int(op.attributes.get("count", length)))
    rounds = ceil(log2(wanted)) * (ceil(log2(wanted)) + 1) // 2 + max(
        0, ceil(log2(length)) - ceil(log2(wanted))
    )
    each = apply("compare", x.elements, x.dtype, machine)
    each += apply("where", x.elements, x.dtype, machine)
    each += exchange(x.bytes / machine.tiles, machine)
    return each.times(rounds) + Cost(plan=f"bitonic, {rounds} rounds")


def pick(outputs: int, sources: int, machine: Machine) -> Cost:
    """The best of several tiles' candidates, for argmax and the like."""
    return over_tiles(2 * outputs, sources, machine)
