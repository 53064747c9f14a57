"""Which instructions belong together, in which phase they run, and in which order."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softipu.frontends.tensorflow.neutral import graph_of_hlo
from softipu.frontends.tensorflow.neutral_hlo import parse
from softipu.frontends.tensorflow.neutral_units import forward_name, is_gradient, units_of
from softipu.graph import KINDS, Phase, Role


def module(*lines, root, aliases="", extra="", parameters=2):
    """A module of instructions on f32[4]; the parameters are p0, p1 …"""
    head = [f"%p{n} = f32[4]{{0}} parameter({n})" for n in range(parameters)]
    body = "\n".join(f"  {line}" for line in [*head, *lines, f"ROOT {root}"])
    return f"HloModule m{aliases}\n{extra}\nENTRY %main (x: f32[4]) -> f32[4] {{\n{body}\n}}\n"


def line(name, opcode, *operands, op_name="", op_type=""):
    given = ", ".join(f"f32[4]{{0}} %{operand}" for operand in operands)
    meta = f', metadata={{op_type="{op_type}" op_name="{op_name}"}}' if op_name else ""
    return f"%{name} = f32[4]{{0}} {opcode}({given}){meta}"


def units(text):
    parsed = parse(text)
    return units_of(parsed, parsed.entry)


def names(found):
    return [unit.last.name for unit in found if unit.first.opcode != "parameter"]


@pytest.mark.parametrize(
    ("name", "gradient", "plain"),
    [
        ("model/dense/MatMul", False, "model/dense/MatMul"),
        ("gradient_tape/model/dense/MatMul", True, "model/dense/MatMul"),
        ("Adam/gradients/AddN", True, "Adam/AddN"),
        ("gradients/dense/MatMul_grad", True, "dense/MatMul_grad"),
        ("my_gradients/dense", False, "my_gradients/dense"),
    ],
)
def test_gradients_are_known_by_their_names(name, gradient, plain):
    assert is_gradient(name) is gradient
    assert forward_name(name) == plain


def test_what_no_result_depends_on_does_not_run():
    text = module(
        line("used", "tanh", "p0"), line("dead", "exponential", "p0"),
        root=line("out", "negate", "used"),
    )  # fmt: skip
    assert names(units(text)) == ["used", "out"]


def test_instructions_of_one_operator_are_one_unit():
    erfc = {"op_type": "Erfc", "op_name": "layer/Erfc"}
    text = module(
        line("a", "abs", "p0", **erfc), line("b", "exponential", "a", **erfc),
        line("c", "multiply", "b", "a", **erfc), root=line("out", "negate", "c"),
    )  # fmt: skip
    graph = graph_of_hlo(text, inputs=1)
    functions = [op.attributes["function"] for op in graph.ops]
    assert functions == ["erfc", "neg"]


def test_two_operators_of_one_name_that_depend_on_each_other_are_taken_apart():
    """A function that is called twice has the same names twice."""
    sigmoid = {"op_type": "Sigmoid", "op_name": "cell/Sigmoid"}
    text = module(
        line("first", "logistic", "p0", **sigmoid),
        line("between", "tanh", "first", op_name="cell/Tanh", op_type="Tanh"),
        *(line(f"step{n}", "exponential", "between" if n == 0 else f"step{n - 1}", op_name="x/Exp",
               op_type="Exp") for n in range(70)),
        line("second", "logistic", "step69", **sigmoid), root=line("out", "negate", "second"),
    )  # fmt: skip
    graph = graph_of_hlo(text, inputs=1)
    functions = [op.attributes["function"] for op in graph.ops]
    assert functions[0] == functions[-2] == "sigmoid"
    assert functions.count("exp") == 70


def test_calls_and_fusions_are_what_is_inside_them():
    extra = (
        "%inner (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)\n"
        "  ROOT %t = f32[4]{0} tanh(f32[4]{0} %a)\n}\n"
    )
    text = module(
        "%one = f32[4]{0} call(f32[4]{0} %p0), to_apply=%inner",
        "%two = f32[4]{0} fusion(f32[4]{0} %one), kind=kLoop, calls=%inner",
        root=line("out", "negate", "two"), extra=extra,
    )  # fmt: skip
    graph = graph_of_hlo(text, inputs=1)
    assert [op.attributes["function"] for op in graph.ops] == ["tanh", "tanh", "neg"]


def training(order=range(3)):
    """Three layers with a weight each; XLA prints gradients of weights last."""
    forward = [line("f0", "multiply", "p0", "p1", op_name="m/l0/Mul", op_type="Mul")]
    forward += [
        line(f"f{n}", "multiply", f"f{n - 1}", f"p{n + 1}", op_name=f"m/l{n}/Mul", op_type="Mul")
        for n in (1, 2)
    ]
    tape = "gradient_tape/m/"
    backward = [line("b2", "negate", "f2", op_name=f"{tape}loss", op_type="Neg")]
    backward += [
        line(
            f"b{n}", "multiply", f"b{n + 1}", f"p{n + 2}", op_name=f"{tape}l{n}/Mul", op_type="Mul"
        )
        for n in (1, 0)
    ]
    ends = []
    for n in order:
        before = "p0" if n == 0 else f"f{n - 1}"
        ends.append(
            line(f"g{n}", "multiply", f"b{n}", before, op_name=f"{tape}l{n}/Mul_1", op_type="Mul")
        )
        ends.append(
            line(f"u{n}", "subtract", f"p{n + 1}", f"g{n}", op_name="SGD/update", op_type="Sub")
        )
    shapes = ", ".join(["f32[4]{0}"] * 3)
    root = f"%out = ({shapes}) tuple({', '.join(f'f32[4]{{0}} %u{n}' for n in range(3))})"
    alias = ", input_output_alias={ " + ", ".join(
        f"{{{n}}}: ({n + 1}, {{}}, may-alias)" for n in range(3)
    ) + " }"  # fmt: skip
    return module(*forward, *backward, *ends, root=root, aliases=alias, parameters=4)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_each_weight_gradient_comes_with_the_gradient_that_it_needs(order):
    graph = graph_of_hlo(training(order), inputs=1)
    made = [op.name for op in graph.ops if op.phase is Phase.BACKWARD]
    for n in range(3):
        # At most one further layer comes between a layer's gradient and that of its weight.
        between = made[made.index(f"b{n}") + 1 : made.index(f"g{n}")]
        assert sum(name.startswith("b") for name in between) <= 1
    phases = [op.phase for op in graph.ops]
    assert phases == sorted(phases, key=list(Phase).index)
    assert sum(phase is Phase.UPDATE for phase in phases) == 3


def test_a_sum_of_gradients_without_a_name_runs_with_what_reads_it():
    """`AddN` of a gradient tape is under no `gradient_tape`."""
    tape = {"op_name": "gradient_tape/m/x", "op_type": "Neg"}
    text = module(
        line("f", "tanh", "p0", op_name="m/Tanh", op_type="Tanh"),
        line("a", "negate", "f", **tape), line("b", "negate", "a", **tape),
        line("sum", "add", "a", "b", op_name="AddN", op_type="AddN"),
        line("c", "negate", "sum", **tape),
        root=line("u", "subtract", "p1", "c", op_name="sub", op_type="Sub"),
    )  # fmt: skip
    phases = {op.name: op.phase for op in graph_of_hlo(text, inputs=1).ops}
    assert phases["sum"] is Phase.BACKWARD
    assert phases["f"] is Phase.FORWARD
    assert phases["u"] is Phase.UPDATE


def test_weights_are_replaced_by_what_the_update_makes():
    graph = graph_of_hlo(training(), inputs=1)
    assert sorted(graph.updates) == [("u0", "p1"), ("u1", "p2"), ("u2", "p3")]
    assert {t.name for t in graph.of_role(Role.WEIGHT)} == {"p1", "p2", "p3"}
    assert graph.outputs == ()


def test_stages_follow_the_names_of_layers_in_both_directions():
    graph = graph_of_hlo(
        training(), inputs=1,
        stage_of=lambda name: next((n for n in range(3) if f"l{n}" in name.split("/")), None),
    )  # fmt: skip
    stages = {op.name: op.stage for op in graph.ops}
    assert [stages[f"f{n}"] for n in range(3)] == [0, 1, 2]
    assert [stages[f"g{n}"] for n in range(3)] == [0, 1, 2]
    assert [stages[f"u{n}"] for n in range(3)] == [0, 1, 2]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25))
def test_any_program_of_additions_becomes_a_graph_that_is_legal(pairs):
    """Every value is made before it is read, whatever depends on what."""
    lines, known = [], ["p0", "p1"]
    for number, (left, right) in enumerate(pairs):
        a, b = known[left % len(known)], known[right % len(known)]
        lines.append(line(f"v{number}", "add", a, b, op_name=f"x/{number % 3}", op_type="AddV2"))
        known.append(f"v{number}")
    graph = graph_of_hlo(module(*lines, root=line("out", "tanh", known[-1])), inputs=1)
    assert graph.ops[-1].attributes["function"] == "tanh"
    assert all(op.kind in KINDS for op in graph.ops)
