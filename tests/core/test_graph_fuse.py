"""Sums of scaled tensors in an update are one op, as IPU compilers make them."""

from __future__ import annotations

from softipu.graph import Builder, Graph, Phase, Role, check

SPEC = ((8, 4), "float32")


class _Update:
    """Writes the arithmetic of an optimiser for one weight."""

    def __init__(self) -> None:
        self.build = Builder("update")
        self.weight = self.build.tensor("w", *SPEC, Role.WEIGHT)
        self.state = self.build.tensor("m", *SPEC, Role.STATE)
        self.gradient = self.build.tensor("g", *SPEC, Role.INPUT)
        self.rate = self.build.tensor("rate", (), "float32", Role.STATE)

    def do(self, function: str, *inputs: str, phase: Phase = Phase.UPDATE, spec=SPEC) -> str:
        (made,) = self.build.op("elementwise", inputs, [spec], function=function, phase=phase)
        return made

    def finish(self, weight: str, state: str | None = None) -> Graph:
        self.build.update(weight, self.weight)
        if state is not None:
            self.build.update(state, self.state)
        graph = self.build.finish([])
        check(graph)
        return graph


def _functions(graph: Graph) -> list[str]:
    return [op.attributes["function"] for op in graph.ops]


def test_momentum_is_two_ops_however_it_is_written() -> None:
    one = _Update()  # m = 0.9 m + g, w -= rate * m
    state = one.do("add", one.do("mul", one.state), one.gradient)
    graph = one.finish(one.do("sub", one.weight, one.do("mul", state, one.rate)), state)
    assert _functions(graph) == ["scaled_add", "scaled_add"]
    assert graph.ops[0].inputs == (one.state, one.gradient)
    assert graph.ops[1].inputs == (one.weight, state, one.rate)

    other = _Update()  # m = 0.9 m - rate * g, w += m
    state = other.do(
        "sub", other.do("mul", other.state), other.do("mul", other.gradient, other.rate)
    )
    graph = other.finish(other.do("add", other.weight, state), state)
    assert _functions(graph) == ["scaled_add", "add"]
    assert graph.ops[0].inputs == (other.state, other.gradient, other.rate)
    assert set(graph.tensors) == {"w", "m", "g", "rate", *(op.outputs[0] for op in graph.ops)}


def test_a_product_that_others_read_stays() -> None:
    one = _Update()
    scaled = one.do("mul", one.gradient, one.rate)
    graph = one.finish(one.do("sub", one.weight, scaled), state=scaled)
    assert _functions(graph) == ["mul", "sub"]


def test_products_of_two_tensors_other_phases_and_types_stay() -> None:
    one = _Update()
    graph = one.finish(one.do("add", one.state, one.do("mul", one.gradient, one.gradient)))
    assert _functions(graph) == ["mul", "add"]

    two = _Update()
    graph = two.finish(two.do("add", two.weight, two.do("mul", two.gradient, phase=Phase.BACKWARD)))
    assert _functions(graph) == ["mul", "add"]

    three = _Update()
    half = three.do("mul", three.gradient, spec=((8, 4), "float16"))
    graph = three.finish(three.do("add", three.weight, half))
    assert _functions(graph) == ["mul", "add"]
