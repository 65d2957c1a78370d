"""`calculator`: arithmetic read as a syntax tree and never run as code; what it may cost is bounded."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import ClassVar

from gateway.agent.tools import lenient
from gateway.agent.tools.tool import Context, Observation, Tool, ToolParameter
from gateway.chat import Json

Number = int | float

MAX_LENGTH = 500
MAX_BITS = 4096
"""size of the largest integer; about 1,233 digits"""
MAX_DEPTH = 260
"""nested operations: a sum of as many numbers as MAX_LENGTH has room for is one"""

CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}
FUNCTIONS: Mapping[str, tuple[Callable[..., Number], int, int]] = {
    "sqrt": (math.sqrt, 1, 1),
    "abs": (abs, 1, 1),
    "round": (round, 1, 2),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "min": (min, 1, 20),
    "max": (max, 1, 20),
    "exp": (math.exp, 1, 1),
    "log": (math.log, 1, 2),
    "ln": (math.log, 1, 1),
    "log2": (math.log2, 1, 1),
    "log10": (math.log10, 1, 1),
    "sin": (math.sin, 1, 1),
    "cos": (math.cos, 1, 1),
    "tan": (math.tan, 1, 1),
    "asin": (math.asin, 1, 1),
    "acos": (math.acos, 1, 1),
    "atan": (math.atan, 1, 1),
    "radians": (math.radians, 1, 1),
    "degrees": (math.degrees, 1, 1),
}
"""what may be called, with the least and the most arguments"""

_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SPELLINGS = str.maketrans({"×": "*", "÷": "/", "−": "-", "–": "-", "·": "*", "（": "(", "）": ")", "π": "pi"})


def calculate(expression: str) -> Number:
    """The value of an arithmetic expression. ValueError, in words for the model, where it has none."""
    text = expression.translate(_SPELLINGS).strip().removesuffix("=").strip()
    if not text:
        raise ValueError("the expression is empty")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the expression may be at most {MAX_LENGTH} characters long")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError("this is no arithmetic expression") from None
    try:
        return _fitting(_value(tree.body, 0))
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the result is too large") from None


def _value(node: ast.expr, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise ValueError("the expression is nested too deeply")
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("only numbers can be calculated with")
        case ast.Constant(value=int() | float() as number):
            return _fitting(number)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, depth + 1)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left, depth + 1), _value(right, depth + 1))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _fitting(_BINARY[type(op)](_value(left, depth + 1), _value(right, depth + 1)))
        case ast.BinOp(op=ast.BitXor()):
            raise ValueError("a power is written with **, not with ^")
        case ast.Name(id=name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.Name(id=name):
            raise ValueError(f"unknown name {name[:40]}; known: {', '.join((*CONSTANTS, *FUNCTIONS))}")
        case ast.Call():
            return _called(node, depth)
    raise ValueError(f"{type(node).__name__} is no part of an arithmetic expression")


def _called(node: ast.Call, depth: int) -> Number:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        shown = node.func.id[:40] if isinstance(node.func, ast.Name) else "this"
        raise ValueError(f"{shown} is no known function; known: {', '.join(FUNCTIONS)}")
    name = node.func.id
    function, least, most = FUNCTIONS[name]
    if node.keywords or not least <= len(node.args) <= most:
        raise ValueError(f"{name} takes {least if least == most else f'{least} to {most}'} numbers")
    values = [_value(one, depth + 1) for one in node.args]
    if name == "round" and len(values) == 2:
        values[1] = _digits(values[1])
    try:
        return _fitting(function(*values))
    except ValueError:
        raise ValueError(f"{name} has no value for {', '.join(str(one)[:40] for one in values)}") from None


def _digits(value: Number) -> int:
    """The second number of round: a negative one of any size would be a power of ten of that size."""
    if not isinstance(value, int) or abs(value) > 300:
        raise ValueError("round takes a whole number of digits, at most 300")
    return value


def _power(base: Number, exponent: Number) -> Number:
    """base ** exponent, refused before it is worked out if it would be an enormous integer."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and abs(base) > 1 and base.bit_length() * exponent > 2 * MAX_BITS:
        raise ValueError("the result is too large")
    value = base**exponent
    if isinstance(value, complex):
        raise ValueError("a power of a negative number with a broken exponent has no real value")
    return _fitting(value)


def _fitting(value: Number) -> Number:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise ValueError("the result is too large")
    elif math.isnan(value) or math.isinf(value):
        raise ValueError("the result is too large")
    return value


class Calculator(Tool):
    """The calculator. `2 + 3` is 5, `100/4 + 7` is 32.0."""

    name = "calculator"
    description = (
        "Work out an arithmetic expression exactly. Operators: + - * / // % ** and parentheses. "
        f"Functions: {', '.join(FUNCTIONS)}. Constants: {', '.join(CONSTANTS)}. Angles are in radians."
    )
    aliases: ClassVar[tuple[str, ...]] = ("calculate",)
    lenient: ClassVar[bool] = True
    pure: ClassVar[bool] = True
    annotations: ClassVar[Json] = {"readOnlyHint": True, "openWorldHint": False}

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("expression", "string", "The expression, for example (3 + 5) * 2 or sqrt(16)")]

    async def call(self, arguments: Json, context: Context) -> Observation:
        """The result as text. What cannot be worked out becomes an observation that says why."""
        try:
            return Observation(str(calculate(_expression(arguments))))
        except ValueError as error:
            return Observation(f"Error: {error}.", ok=False)


def _expression(arguments: object) -> str:
    """The expression in the arguments; text protocols send it alone or as `input`."""
    if isinstance(arguments, str) and not arguments.lstrip().startswith(("{", '"')):
        return arguments
    given = lenient.arguments(arguments)
    value = given.get("expression", given.get("input", given.get("query")))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("expression must be a text")
    return value
