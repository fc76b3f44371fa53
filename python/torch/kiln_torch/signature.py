"""From an op's manifest to an op of torch: its schema, the shapes of its results, and what its library needs. Needs no torch.

An op of torch is an op of Kiln with its choices fixed, so that it has few arguments. These are, in order: the tensors that it reads; sizes that no
tensor shows; lengths in device memory; values without a default; optional tensors; other values. What it writes it returns, in memory of its own. A tensor that
the op reads and writes, such as a sum that it adds to, is an argument that it changes.

The first dimension of the first tensor may stand for several: rms_norm of [batch, tokens, cols] is that of [batch * tokens, cols]. So it is for all
tensors that begin with the same axis, and results have the first tensor's dimensions there.
"""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from . import expression
from .expression import Tree

TYPES = ("bf16", "f16", "f32", "f64", "e4m3", "e5m2", "i8", "u8", "i32", "i64")  # in the order of kiln.h


@dataclasses.dataclass
class Argument:
    kind: str  # tensor, axis, length, real or integer
    name: str
    optional: bool = False
    rank: int = 0
    flat: bool = False  # its first dimension may stand for several
    dense: bool = False  # results lie as it does
    mutated: bool = False
    default: str | None = None  # of a value: the schema's text; None: it must be given


@dataclasses.dataclass
class Output:
    name: str
    flat: bool
    like: int  # the argument that gives its type
    types: list[str]  # by that argument's type, in the order of TYPES
    shape: list[list[str]]  # in postfix


@dataclasses.dataclass
class Signature:
    name: str
    op: str
    words: dict[str, str]
    arguments: list[Argument]
    outputs: list[Output]
    solves: list[list[Any]]  # [axis, argument, dimension, times, plus, over, given]
    sizes: list[list[Any]]  # [run-time value, argument, dimension]

    @property
    def schema(self) -> str:
        results = ", ".join("Tensor" for _ in self.outputs)
        return f"{self.name}({', '.join(map(_declaration, self.arguments))}) -> {results if len(self.outputs) == 1 else f'({results})'}"

    def spec(self, folder: str = "") -> str:
        """For the library; src/signature.hpp has the format."""
        lines = [f"op {self.op}"] + ([f"folder {folder}"] if folder else []) + [f"word {name} {value}" for name, value in self.words.items()]
        for each in self.arguments:
            lines.append({
                "tensor": f"tensor {each.name} {each.optional:d} {each.rank} {each.flat:d} {each.dense:d} {each.mutated:d}",
                "axis": f"axis {each.name}", "length": f"length {each.name}",
            }.get(each.kind, f"{each.kind} {each.name} {each.default == 'None':d}"))
        lines += ["solve " + " ".join(str(int(part)) if isinstance(part, bool) else str(part) for part in each) for each in self.solves]
        lines += ["size " + " ".join(map(str, each)) for each in self.sizes]
        for output in self.outputs:
            types = " ".join(str(TYPES.index(each)) for each in output.types)
            lines.append(f"output {output.name} {len(output.shape)} {output.flat:d} {output.like} {types}")
            lines += ["dim " + " ".join(each) for each in output.shape]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "schema": self.schema}

    @staticmethod
    def of_json(text: Mapping[str, Any]) -> Signature:
        parts = {name: value for name, value in text.items() if name != "schema"}
        return Signature(**{**parts, "arguments": [Argument(**each) for each in text["arguments"]], "outputs": [Output(**each) for each in text["outputs"]]})


def _declaration(argument: Argument) -> str:
    if argument.kind == "tensor" and argument.mutated:
        return f"Tensor(a!) {argument.name}"
    if argument.kind in ("tensor", "length"):
        return f"Tensor? {argument.name}=None" if argument.optional else f"Tensor {argument.name}"
    if argument.kind == "axis":
        return f"SymInt {argument.name}"
    kind = "float" if argument.kind == "real" else "SymInt"
    if argument.default is None:
        return f"{kind} {argument.name}"
    return f"{kind}{'?' if argument.default == 'None' else ''} {argument.name}={argument.default}"


def signature_of(description: Mapping[str, Any], name: str, words: Mapping[str, str], *, omit: Iterable[str] = (), lengths: Iterable[str] = (),
                 values: Iterable[str] | None = None) -> Signature:
    """Of what `kiln ops OP --json` prints. `words`: choices, and types that are fixed; what is left out takes its default, but a type its tensor's.

    omit: optional tensors that the op does without. lengths: axes with their length in device memory. values: the run-time values that are arguments;
    all that no tensor shows unless given. Raises ValueError for a name that the op does not have there.
    """
    return _Maker(description, dict(words), set(omit), tuple(lengths)).make(name, values)


class _Maker:
    def __init__(self, description: Mapping[str, Any], words: dict[str, str], omit: set[str], lengths: tuple[str, ...]) -> None:
        self.description, self.lengths, self.op = description, lengths, description["op"]
        self.selections = {each["name"]: each for each in description["selections"]}
        for word, value in words.items():
            if word not in self.selections or value not in self.selections[word]["values"]:
                raise ValueError(f"{self.op}: {word} = {value} is no choice of it; it has {self._choices()}")
        for each in omit:
            self._check_name(each, [tensor["name"] for tensor in description["tensors"] if tensor["optional"]], "optional tensor")
        for at, each in enumerate(lengths):
            self._check_name(each, [axis["name"] for axis in description["axes"] if axis["on_device"]], "axis with a length in device memory")
            if each in lengths[:at]:
                raise ValueError(f"{self.op}: lengths names '{each}' twice")
        self.given = words
        choices = {each["name"]: each["default"] for each in description["selections"] if each["kind"] == "choice"}
        self.words = {**choices, **words}
        self.axes = {each["name"]: each for each in description["axes"]}
        self.tensors = [each for each in description["tensors"] if each["name"] not in omit and self._is_present(each)]
        self.shapes = {each["name"]: [self._fold(text) for text in each["shape"]] for each in self.tensors}
        self.inputs = [each for each in self.tensors if not each["output"] or self._is_initialised(each)]
        self.outputs = [each for each in self.tensors if each["output"] and not self._is_initialised(each)]

    def _check_name(self, name: str, known: Iterable[str], what: str) -> None:
        if name not in known:
            raise ValueError(f"{self.op}: '{name}' is no {what} of it; it has {', '.join(known) or 'none'}")

    def _choices(self) -> str:
        return "; ".join(f"{each['name']}: {', '.join(each['values'])}" for each in self.description["selections"])

    def _fold(self, text: str) -> Tree:
        return expression.fold(expression.parse(text), self.words)

    def _is_present(self, tensor: Mapping[str, Any]) -> bool:
        """What depends on a type that is not fixed is left out: its op needs the type among `words`."""
        return tensor["when"] is None or self._fold(tensor["when"]) == 1

    def _is_initialised(self, tensor: Mapping[str, Any]) -> bool:
        return tensor["initialised"] is not None and self._fold(tensor["initialised"]) == 1

    def make(self, name: str, values: Iterable[str] | None) -> Signature:
        required = [each for each in self.inputs if not each["optional"]]
        if not required:
            raise ValueError(f"{self.op}: it reads no tensor, and an op of torch needs one to know its device")
        first = self.shapes[required[0]["name"]]
        lead = first[0] if first else None
        arguments = [self._tensor(each, lead) for each in required]
        solves, sizes = self._solve(arguments)
        shown = {each[0] for each in solves}
        arguments += [Argument("axis", each) for each in self.axes if each not in shown]
        arguments += [Argument("length", each) for each in self.lengths]
        optional = [self._tensor(each, lead) for each in self.inputs if each["optional"]]
        found = self._values({each[0] for each in sizes + self._sizes(optional, 0, set())}, values)
        arguments += [each for each in found if each.default is None]
        sizes += self._sizes(optional, len(arguments), {each[0] for each in sizes})
        arguments += optional + [each for each in found if each.default is not None]
        outputs = [self._output(each, arguments, lead) for each in self.outputs]
        return Signature(name, self.op, self.given, arguments, outputs, solves, sizes)

    def _tensor(self, tensor: Mapping[str, Any], lead: Tree | None) -> Argument:
        strides = tensor["strides"]
        named = {each for each in strides if re.fullmatch(r"[a-z]\w*_stride", each)}
        dense = not tensor["output"] and any(named & set(each["strides"]) for each in self.outputs)
        shape = self.shapes[tensor["name"]]
        return Argument("tensor", tensor["name"], tensor["optional"], len(shape), bool(shape) and shape[0] == lead, dense, bool(tensor["output"]))

    def _solve(self, arguments: list[Argument]) -> tuple[list[list[Any]], list[list[Any]]]:
        solves: list[list[Any]] = []
        for given in (False, True):  # first those that kiln_bind() solves itself
            for at, argument in enumerate(arguments):
                for dimension, tree in enumerate(self.shapes[argument.name]):
                    found = expression.linear(tree)
                    if found is None or found[0] not in self.axes or any(each[0] == found[0] for each in solves):
                        continue
                    axis, times, plus, over = found
                    if (over != 1) == given and self.axes[axis]["multiple_of"] % over == 0:
                        solves.append([axis, at, dimension, times, plus, over, given])
        return solves, self._sizes(arguments, 0, set())

    def _sizes(self, arguments: list[Argument], begin: int, known: set[str]) -> list[list[Any]]:
        runtime = {each["name"] for each in self.description["runtime"]}
        sizes: list[list[Any]] = []
        for at, argument in enumerate(arguments, begin):
            for dimension, tree in enumerate(self.shapes[argument.name]):
                if isinstance(tree, str) and tree in runtime and tree not in known:
                    sizes.append([tree, at, dimension])
                    known.add(tree)
        return sizes

    def _values(self, sized: set[str], asked: Iterable[str] | None) -> list[Argument]:
        strides = {name for each in self.description["tensors"] for text in each["strides"] for name in expression.names(expression.parse(text))}
        known = {each["name"]: each for each in self.description["runtime"]}
        chosen = [each for each in known if each not in strides | sized and not known[each]["team_rank"]] if asked is None else list(asked)
        for each in chosen:
            self._check_name(each, known, "run-time value")
        return [self._value(known[each]) for each in chosen]

    def _value(self, value: Mapping[str, Any]) -> Argument:
        kind, text = ("real" if value["type"][0] == "f" else "integer"), str(value["default"])
        if value["default"] is None:
            return Argument(kind, value["name"])
        try:
            default = repr(float(text)) if kind == "real" else str(int(text))
        except ValueError:  # of sizes
            default = "None"
        return Argument(kind, value["name"], default == "None", default=default)

    def _output(self, tensor: Mapping[str, Any], arguments: list[Argument], lead: Tree | None) -> Output:
        shape = self.shapes[tensor["name"]]
        try:
            dims = [expression.postfix(each) for each in shape]
        except ValueError as error:
            raise ValueError(f"{self.op}: the shape of '{tensor['name']}' depends on '{error}', which an op of torch cannot compute") from None
        like, types = self._type(tensor["type"], arguments)
        return Output(tensor["name"], bool(shape) and shape[0] == lead, like, types, dims)

    def _type(self, name: str, arguments: list[Argument]) -> tuple[int, list[str]]:
        if name in TYPES or name in self.words:
            return 0, [self.words.get(name, name)] * len(TYPES)
        by_name = {each["name"]: each["type"] for each in self.tensors}
        for at, argument in enumerate(arguments):
            if argument.kind == "tensor" and not argument.optional and by_name[argument.name] == name:
                return at, list(TYPES)
        default = self.selections[name]["default"]
        if not default.startswith("as "):
            return 0, [default] * len(TYPES)
        source, *exceptions = default.removeprefix("as ").split(", ")
        like, types = self._type(source, arguments)
        for each in exceptions:
            to, of = each.removeprefix("but ").split(" for ")
            types[TYPES.index(of)] = to
        return like, types
