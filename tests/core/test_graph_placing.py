"""An optimiser's state is where its weight is, however its arithmetic is written."""

from __future__ import annotations

from softipu.graph import Builder, Graph, Phase, Role

SPEC = ((8, 4), "float32")


def _pipeline(stages: int) -> Graph:
    """A product on each stage; m = 0.9 m + g, in two ops of which the first reads only state."""
    build = Builder("pipeline")
    x = build.tensor("x", *SPEC, Role.INPUT)
    rate = build.tensor("rate", (), "float32", Role.STATE)

    def do(function: str, *inputs: str, phase: Phase, stage: int = 0) -> str:
        (made,) = build.op(
            "elementwise", inputs, [SPEC], function=function, phase=phase, stage=stage
        )
        return made

    pairs = [
        (build.tensor("w", *SPEC, Role.WEIGHT), build.tensor("m", *SPEC, Role.STATE))
        for _ in range(stages)
    ]
    for stage, (weight, _) in enumerate(pairs):
        x = do("mul", x, weight, phase=Phase.FORWARD, stage=stage)
    gradients = [
        do("mul", x, weight, phase=Phase.BACKWARD, stage=stage)
        for stage, (weight, _) in enumerate(pairs)
    ]
    for (weight, state), gradient in zip(pairs, gradients, strict=True):
        kept = do("mul", state, rate, phase=Phase.UPDATE)
        new = do("add", kept, gradient, phase=Phase.UPDATE)
        build.update(new, state)
        build.update(do("sub", weight, new, phase=Phase.UPDATE), weight)
    return build.finish([])


def test_each_update_is_in_the_stage_of_its_weight() -> None:
    graph = _pipeline(3)
    updates = [op for op in graph.ops if op.phase is Phase.UPDATE]
    assert {op.stage for op in updates} == {0, 1, 2}
    readers = {name: op.stage for op in updates for name in op.inputs}
    assert [readers[name] for name in ("m", "m_1", "m_2")] == [0, 1, 2]
    assert [readers[name] for name in ("w", "w_1", "w_2")] == [0, 1, 2]


def test_a_shared_number_ties_no_weights_together() -> None:
    rates = {op.stage for op in _pipeline(2).ops if "rate" in op.inputs}
    assert rates == {0, 1}
