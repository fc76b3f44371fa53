"""Sizes of manifests, such as 'ceil_div(cols, 128)': read, with words of types and choices put in, and written in postfix.

The language is that of src/manifest/expression.hpp; sizes are 0 or more, so that division rounds down.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Union

Tree = Union[int, str, tuple]  # a number, a name, or an operation with its operands
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "f64": 8, "e4m3": 1, "e5m2": 1, "i8": 1, "u8": 1, "i32": 4, "i64": 8}
_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))
_TOKEN = re.compile(r'\s*(?:(\d+)|([A-Za-z_]\w*)|"([^"]*)"|(\|\||&&|[=!<>]=|[-+*/%<>!?:(),]))')


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = [match.groups() for match in _TOKEN.finditer(text)]
        self.at = 0

    def symbol(self, *expected: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at][3] in expected:
            self.at += 1
            return self.tokens[self.at - 1][3]
        return None

    def ternary(self) -> Tree:
        condition = self.level(0)
        if not self.symbol("?"):
            return condition
        first = self.ternary()
        self.symbol(":")
        return ("?", condition, first, self.ternary())

    def level(self, depth: int) -> Tree:
        if depth == len(_LEVELS):
            return self.unary()
        tree = self.level(depth + 1)
        while operation := self.symbol(*_LEVELS[depth]):
            tree = (operation, tree, self.level(depth + 1))
        return tree

    def unary(self) -> Tree:
        if operation := self.symbol("!", "-"):
            return ("not" if operation == "!" else "negative", self.unary())
        if self.symbol("("):
            tree = self.ternary()
            self.symbol(")")
            return tree
        number, name, word, _ = self.tokens[self.at]
        self.at += 1
        if number is not None:
            return int(number)
        if word is not None:
            return ("word", word)
        if not self.symbol("("):
            return name
        arguments = [self.ternary()]
        while self.symbol(","):
            arguments.append(self.ternary())
        self.symbol(")")
        return (name, *arguments)


def parse(text: str) -> Tree:
    return _Reader(text).ternary()


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a // b, "%": lambda a, b: a % b,
    "ceil_div": lambda a, b: (a + b - 1) // b, "round_up": lambda a, b: (a + b - 1) // b * b, "min": min, "max": max,
    "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), ">": lambda a, b: int(a > b), ">=": lambda a, b: int(a >= b),
}


def fold(tree: Tree, words: Mapping[str, str]) -> Tree:
    """The tree with what is known put in. What depends on a word that is not known stays."""
    if not isinstance(tree, tuple):
        return tree
    operation = tree[0]
    if operation == "word":
        return tree
    if operation == "sizeof":
        name = words.get(tree[1], tree[1])
        return BYTES.get(name, tree)
    if operation in ("==", "!=") and isinstance(tree[2], tuple) and tree[2][0] == "word":
        return int((words[tree[1]] == tree[2][1]) == (operation == "==")) if tree[1] in words else tree
    operands = [fold(each, words) for each in tree[1:]]
    if operation == "?":
        return (operands[1] if operands[0] else operands[2]) if isinstance(operands[0], int) else ("?", *operands)
    if operation in ("&&", "||"):
        decided = operation == "||"
        if any(isinstance(each, int) and bool(each) == decided for each in operands):
            return int(decided)
        rest = [each for each in operands if not isinstance(each, int)]
        return int(not decided) if not rest else rest[0] if len(rest) == 1 else (operation, *rest)
    if operation in ("not", "negative") and isinstance(operands[0], int):
        return int(not operands[0]) if operation == "not" else -operands[0]
    if operation in ("==", "!=") and all(isinstance(each, int) for each in operands):
        return int((operands[0] == operands[1]) == (operation == "=="))
    if operation in OPERATIONS and all(isinstance(each, int) for each in operands):
        value = operands[0]
        for each in operands[1:]:
            value = OPERATIONS[operation](value, each)
        return value
    return (operation, *operands)


def postfix(tree: Tree) -> list[str]:
    """Raises ValueError for what sizes of results may not hold, such as a condition that is not known."""
    if not isinstance(tree, tuple):
        return [str(tree)]
    if tree[0] not in ("+", "-", "*", "/", "ceil_div", "round_up", "min", "max"):
        raise ValueError(tree[0])
    tokens = postfix(tree[1])
    for each in tree[2:]:
        tokens += [*postfix(each), tree[0]]
    return tokens


def names(tree: Tree) -> set[str]:
    if isinstance(tree, tuple):
        return set() if tree[0] == "word" else set().union(*(names(each) for each in tree[1:]))
    return {tree} if isinstance(tree, str) else set()


def linear(tree: Tree) -> tuple[str, int, int, int] | None:
    """(axis, times, plus, over) where the tree is axis * times + plus, or axis / over."""
    if isinstance(tree, str):
        return tree, 1, 0, 1
    if not isinstance(tree, tuple) or tree[0] not in ("+", "*", "/") or len(tree) != 3:
        return None
    left, right = tree[1:]
    if isinstance(left, int) and tree[0] != "/":
        left, right = right, left
    found = linear(left) if isinstance(right, int) else None
    if found is None:
        return None
    axis, times, plus, over = found
    if tree[0] == "/":
        return (axis, 1, 0, right) if (times, plus, over) == (1, 0, 1) else None
    if over != 1:
        return None
    return (axis, times, plus + right, 1) if tree[0] == "+" else (axis, times * right, plus * right, 1)
