"""The order in which a real program runs the ops of a graph, as far as memory depends on it.

Captured programs have the order of autograd and of the optimiser's source; PopART's scheduler
looks for one in which less is alive at a time. Two of its moves matter: gradients of weights come
before those of inputs, and the update of a weight ends before the next one begins.
"""

from __future__ import annotations

from softipu.graph import KINDS, Graph, Phase


def order(graph: Graph) -> list[int]:
    """Indices of the graph's ops as they run, each after those that make what it reads."""
    return [*_gradients_early(graph), *_one_weight_at_a_time(graph)]


def _gradients_early(graph: Graph) -> list[int]:
    """All but the update. Gradients of weights are made as soon as they can be: the activation
    that they are the last to need makes room before the gradient of the op's input takes some."""
    early = _gradients(graph)
    ops = graph.ops
    after: dict[int, int] = {}  # the op after which each runs
    there: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for index, op in enumerate(ops):
        for name in op.inputs:
            readers.setdefault(name, []).append(index)
        if op.phase is Phase.UPDATE:
            continue
        needs = [there[name] for name in op.inputs if name in there]
        moves = index in early or KINDS[op.kind].free
        after[index] = max(needs) if moves and needs else index
        there |= dict.fromkeys(op.outputs, after[index])
    # A look at a tensor is no reason for it to be there: it waits for its first reader.
    for index in sorted(after, reverse=True):
        if KINDS[ops[index].kind].free:
            reading = [reader for name in ops[index].outputs for reader in readers.get(name, ())]
            waits = [after[reader] for reader in reading if reader in after]
            after[index] = min(waits) if waits else after[index] if reading else index
    return sorted(after, key=lambda index: (after[index], index))


def _gradients(graph: Graph) -> set[int]:
    """Ops that make what the update reads, and those that only give it another type or shape."""
    wanted = {name for op in graph.ops if op.phase is Phase.UPDATE for name in op.inputs}
    found: set[int] = set()
    for index, op in reversed(list(enumerate(graph.ops))):
        if op.phase is Phase.BACKWARD and not wanted.isdisjoint(op.outputs):
            found.add(index)
            if op.kind == "cast" or KINDS[op.kind].free:
                wanted.update(op.inputs)
    return found


def _one_weight_at_a_time(graph: Graph) -> list[int]:
    """The update, where captured programs take a step of all weights at a time."""
    ops = graph.ops
    updating = [index for index, op in enumerate(ops) if op.phase is Phase.UPDATE]
    made_by = {name: index for index in updating for name in ops[index].outputs}
    read = {name for index in updating for name in ops[index].inputs}
    found: list[int] = []
    done: set[int] = set()
    ends = [index for index in updating if read.isdisjoint(ops[index].outputs)]
    for end in [*ends, *updating]:
        waiting, needed = [end], set()
        while waiting:
            index = waiting.pop()
            if index in done or index in needed:
                continue
            needed.add(index)
            waiting += [made_by[name] for name in ops[index].inputs if name in made_by]
        found += sorted(needed)  # the order of the graph is one in which all is there in time
        done |= needed
    return found
