"""Elementwise expressions for `custom_ops.codelet_expression_op`.

An expression is a tree that can be evaluated on tensors, and shown as the C++ that a codelet holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ._named_numbers import NamedNumber


class BaseType(NamedNumber):
    Unknown = 0
    Int16 = 1
    Int32 = 2
    Float16 = 3
    Float32 = 4
    Sequence = 5


class Type:
    """The type of an expression."""

    base = BaseType.Unknown

    def __init__(self, type: BaseType | None = None) -> None:
        self._type = self.base if type is None else type

    def getType(self) -> BaseType:
        return self._type

    def getElementType(self) -> BaseType:
        return self.getType()


class Unknown(Type):
    base = BaseType.Unknown


class Int16(Type):
    base = BaseType.Int16


class Int32(Type):
    base = BaseType.Int32


class Float16(Type):
    base = BaseType.Float16


class Float32(Type):
    base = BaseType.Float32


class Sequence(Type):
    base = BaseType.Sequence

    def __init__(self, element_type: Type) -> None:
        super().__init__()
        self._element_type = element_type

    def getElementType(self) -> BaseType:
        return self._element_type.getElementType()


class DefaultNameSource:
    """Numbers for the variables of lowered expressions."""

    def __init__(self) -> None:
        self._next = 0

    def GetNextName(self) -> int:
        self._next += 1
        return self._next - 1


#: Operator or function in C++ -> what it computes.
_MEANINGS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "std::abs": tf.abs,
    "std::max": tf.maximum,
    "std::min": tf.minimum,
    "std::pow": tf.pow,
    "std::exp": tf.exp,
    "std::log": tf.math.log,
    "std::sqrt": tf.sqrt,
    "std::tanh": tf.tanh,
}


def _meaning(op: str) -> Callable[..., Any]:
    if op not in _MEANINGS:
        raise NotImplementedError(
            f"The vertex expression {op!r} has no meaning here; known are {', '.join(_MEANINGS)}. "
            "Write the expression with these, or in TensorFlow."
        )
    return _MEANINGS[op]


class VertexExpression:
    def __init__(self, type: Type | None) -> None:
        self._type = type

    def __abs__(self) -> VertexExpression:
        return UnaryFunctionExpr("std::abs", self)

    def __add__(self, other: Any) -> VertexExpression:
        return BinaryExpr("+", self, other)

    def __radd__(self, other: Any) -> VertexExpression:
        return BinaryExpr("+", _expression(other), self)

    def __sub__(self, other: Any) -> VertexExpression:
        return BinaryExpr("-", self, other)

    def __rsub__(self, other: Any) -> VertexExpression:
        return BinaryExpr("-", _expression(other), self)

    def __mul__(self, other: Any) -> VertexExpression:
        return BinaryExpr("*", self, other)

    def __rmul__(self, other: Any) -> VertexExpression:
        return BinaryExpr("*", _expression(other), self)

    def __neg__(self) -> VertexExpression:
        return BinaryExpr("-", ConstantVertexExpr(0), self)

    def __invert__(self) -> VertexExpression:
        return self.__neg__()

    def __pos__(self) -> VertexExpression:
        return self

    def __str__(self) -> str:
        return self.lower(DefaultNameSource())

    def getType(self) -> Type | None:
        return self._type

    def lower(self, source: DefaultNameSource) -> str:
        """The expression in C++."""
        raise NotImplementedError

    def evaluate(self, values: dict[str, Any]) -> Any:
        """The expression with these tensors for its placeholders."""
        raise NotImplementedError


def _expression(value: Any) -> VertexExpression:
    return value if isinstance(value, VertexExpression) else ConstantVertexExpr(value)


class ConstantVertexExpr(VertexExpression):
    def __init__(self, val: Any) -> None:
        if not isinstance(val, int | float):
            raise NotImplementedError(
                f"A vertex expression can't hold {val!r}: constants are ints and floats."
            )
        super().__init__(Int32() if isinstance(val, int) else Float32())
        self._val = val

    def lower(self, source: DefaultNameSource) -> str:
        return f"({self._val})"

    def evaluate(self, values: dict[str, Any]) -> Any:
        return self._val


class PlaceholderVertexExpr(VertexExpression):
    def __init__(self, name: str, type: Type | None = None) -> None:
        super().__init__(type)
        self._name = name

    def lower(self, source: DefaultNameSource) -> str:
        return self._name

    def evaluate(self, values: dict[str, Any]) -> Any:
        return values[self._name]


class _Applied(VertexExpression):
    """An operator on expressions."""

    def __init__(self, op: str, *operands: Any) -> None:
        self._op = op
        self._operands = [_expression(operand) for operand in operands]
        super().__init__(self._operands[0].getType())

    def evaluate(self, values: dict[str, Any]) -> Any:
        return _meaning(self._op)(*(operand.evaluate(values) for operand in self._operands))


class BinaryExpr(_Applied):
    def __init__(self, op: str, lhs: Any, rhs: Any) -> None:
        super().__init__(op, lhs, rhs)

    def lower(self, source: DefaultNameSource) -> str:
        return "(" + self._op.join(operand.lower(source) for operand in self._operands) + ")"


class _Call(_Applied):
    def lower(self, source: DefaultNameSource) -> str:
        return f"({self._op}({','.join(operand.lower(source) for operand in self._operands)}))"


class BinaryFunctionExpr(_Call):
    def __init__(self, op: str, lhs: Any, rhs: Any) -> None:
        super().__init__(op, lhs, rhs)


class UnaryFunctionExpr(_Call):
    def __init__(self, op: str, lhs: Any) -> None:
        super().__init__(op, lhs)


class LetVertexExpr(VertexExpression):
    """A value with a name, so that it is computed once."""

    def __init__(self, expr: Any, f: Callable[[VertexExpression], VertexExpression]) -> None:
        self._expr = _expression(expr)
        self._f = f
        super().__init__(f(self._expr).getType())

    def lower(self, source: DefaultNameSource) -> str:
        name = f"var{source.GetNextName()}"
        body = self._f(PlaceholderVertexExpr(name, self._expr.getType())).lower(source)
        return f"[&, {name}={self._expr.lower(source)}]{{return {body};}}()"

    def evaluate(self, values: dict[str, Any]) -> Any:
        name = f"let{id(self)}"
        body = self._f(PlaceholderVertexExpr(name, self._expr.getType()))
        return body.evaluate({**values, name: self._expr.evaluate(values)})


class Conditional(VertexExpression):
    def __init__(self, pred: Any, a: Any, b: Any) -> None:
        self._pred, self._a, self._b = _expression(pred), _expression(a), _expression(b)
        super().__init__(self._a.getType())

    def lower(self, source: DefaultNameSource) -> str:
        pred, a, b = (part.lower(source) for part in (self._pred, self._a, self._b))
        return f"(({pred}) ? ({a}) : ({b}))"

    def evaluate(self, values: dict[str, Any]) -> Any:
        pred, a, b = (part.evaluate(values) for part in (self._pred, self._a, self._b))
        return tf.where(tf.cast(pred, tf.bool), a, b)


def constant(value: Any) -> VertexExpression:
    return ConstantVertexExpr(value)


def let(expr: Any, f: Callable[[VertexExpression], VertexExpression]) -> VertexExpression:
    return LetVertexExpr(expr, f)


def condition(pred: Any, a: Any, b: Any) -> VertexExpression:
    return Conditional(pred, a, b)
