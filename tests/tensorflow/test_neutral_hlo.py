"""HLO text is read strictly: what XLA prints is understood, what it would not print is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softipu.errors import HloUnreadable
from softipu.frontends.tensorflow.neutral_hlo import parse, shape_of, split

MODULE = """HloModule small, input_output_alias={ {1}: (2, {}, may-alias) }, entry_computation_layout={()}

%add.1 (x.1: f32[], y.1: f32[]) -> f32[] {
  %x.1 = f32[] parameter(0)
  %y.1 = f32[] parameter(1)
  ROOT %sum.1 = f32[] add(f32[] %x.1, f32[] %y.1)
}

ENTRY %main.9 (a.1: f32[2,3], b.1: f32[3]) -> (f32[2], f32[3]) {
  %a.1 = f32[2,3]{1,0} parameter(0), parameter_replication={false}, metadata={op_name="XLA_Args"}
  %b.1 = f32[3]{0} parameter(1)
  %zero.1 = f32[] constant(-0), metadata={op_type="Sum" op_name="layer/Sum" source_line=12}
  %wide.1 = f32[2,3]{1,0} broadcast(f32[3]{0} %b.1), dimensions={1}
  %prod.1 = f32[2,3]{1,0} multiply(f32[2,3]{1,0} %a.1, f32[2,3]{1,0} %wide.1)
  %sum.2 = f32[2]{0} reduce(%prod.1, %zero.1), dimensions={1}, to_apply=%add.1
  ROOT %out.1 = (f32[2]{0}, /*index=1*/f32[3]{0}) tuple(f32[2]{0} %sum.2, f32[3]{0} %b.1)
}
"""


def test_a_module_is_its_computations_its_entry_and_its_aliases():
    module = parse(MODULE)
    assert module.name == "small"
    assert set(module.computations) == {"add.1", "main.9"}
    assert module.entry.name == "main.9"
    assert module.entry.root == "out.1"
    assert module.aliases == {1: 2}


def test_an_instruction_knows_its_shape_its_operands_and_where_it_comes_from():
    known = parse(MODULE).entry.by_name()
    assert known["prod.1"].operands == ("a.1", "wide.1")
    assert known["sum.2"].operands == ("prod.1", "zero.1")  # written without their shapes
    assert known["sum.2"].numbers("dimensions") == (1,)
    assert known["sum.2"].called("to_apply") == "add.1"
    assert known["zero.1"].op_type == "Sum"
    assert known["zero.1"].op_name == "layer/Sum"
    assert known["zero.1"].literal == "-0"
    assert known["a.1"].shape.sizes == (2, 3)


def test_parameters_come_in_their_own_order_not_in_that_of_the_text():
    text = MODULE.replace("%a.1 = f32[2,3]{1,0} parameter(0)", "%a.1 = f32[2,3]{1,0} parameter(1)")
    text = text.replace("%b.1 = f32[3]{0} parameter(1)", "%b.1 = f32[3]{0} parameter(0)")
    assert [p.name for p in parse(text).entry.parameters()] == ["b.1", "a.1"]


def test_a_tuple_shape_has_parts_and_no_elements_of_its_own():
    shape = shape_of("(f32[2]{0}, (s32[], pred[4]{0}))")
    assert shape.parts is not None
    assert shape.parts[0].sizes == (2,)
    assert shape.parts[1].parts is not None
    assert shape.parts[1].parts[1].dtype == "bool"
    assert shape.elements == 0


@pytest.mark.parametrize(
    ("text", "dtype", "sizes"),
    [
        ("f32[]", "float32", ()), ("f64[3]{0}", "float32", (3,)), ("bf16[2,2]{1,0}", "float16", (2, 2)),
        ("f16[5]", "float16", (5,)), ("s64[1]", "int32", (1,)), ("u8[7]", "uint8", (7,)),
        ("pred[2]", "bool", (2,)), ("f8e4m3fn[4]", "float8", (4,)), ("c64[3]", "float32", (3, 2)),
        ("token[]", "", ()), ("f32[0]{0}", "float32", (0,)),
    ],
)  # fmt: skip
def test_element_types_are_those_that_an_ipu_has(text, dtype, sizes):
    shape = shape_of(text)
    assert (shape.dtype, shape.sizes) == (dtype, sizes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("HloModule small", "Module small"), "does not begin with"),
        (("ENTRY %main.9 (a.1", "main.9 a.1"), "begins no computation"),
        (("  ROOT %out.1", "  %out.1"), "has no ROOT"),
        (("multiply(f32[2,3]{1,0} %a.1", "multiply(f32[2,3]{1,0} %later.1"), "before it exists"),
        (("%wide.1 = f32[2,3]{1,0} broadcast(f32[3]{0} %b.1)", "%wide.1 : broadcast"), "is no instruct"),
        (("f32[2,3]{1,0} broadcast(f32[3]{0} %b.1)", "f32[2,3]{1,0} broadcast(f32[3]{0} %b.1"), "bracket"),
        (("= f32[2]{0} reduce", "= f32[?]{0} reduce"), "not known in numbers"),
        (("= f32[2]{0} reduce", "= wide reduce"), "is no shape"),
        (("reduce(%prod.1, %zero.1)", "reduce(%prod.1, 12)"), "is no operand"),
    ],
)  # fmt: skip
def test_a_text_that_is_not_understood_is_an_error_that_says_where(change, message):
    assert change[0] in MODULE
    with pytest.raises(HloUnreadable, match=message):
        parse(MODULE.replace(*change))


@pytest.mark.parametrize("length", range(60, len(MODULE) - 3, 37))
def test_a_text_that_is_cut_off_is_refused(length):
    with pytest.raises(HloUnreadable):
        parse(MODULE[:length])


@settings(deadline=None)
@given(st.lists(st.sampled_from(["f32[2,3]{1,0} %a", "{x,y}", '"a,b"', "(p, q)", "k=v"])))
def test_items_are_split_at_commas_outside_of_brackets_and_quotes(items):
    assert split(", ".join(items)) == items


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_other_text_is_refused_and_never_anything_else(text):
    with pytest.raises(HloUnreadable):
        parse(text)
