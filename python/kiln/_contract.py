"""An op's description as text."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def contract_of(description: dict[str, Any]) -> str:
    lines = [f"{description['op']}: {description['summary']}"]
    if description["contract"]:
        lines += ["", description["contract"].strip()]
    lines += ["", "Tensors; sizes and strides, in elements, are read from them:"] + [_tensor(each) for each in description["tensors"]]
    strides = {stride for each in description["tensors"] for stride in each["strides"]}
    values = [each for each in description["runtime"] if each["name"] not in strides]
    if values:
        lines += ["", "Values:"] + [_value(each) for each in values]
    if description["selections"]:
        lines += ["", "Types and choices:"] + [_selection(each) for each in description["selections"]]
    lines += ["", "Axes:"] + [_axis(each) for each in description["axes"]]
    return "\n".join(lines)


def _tensor(tensor: dict[str, Any]) -> str:
    notes = ["writes" if tensor["output"] else "reads"]
    if tensor["optional"]:
        notes.append("optional")
    if tensor["when"]:
        notes.append(f"where {tensor['when']}")
    return f"    {tensor['name']}: {tensor['type']} [{', '.join(tensor['shape'])}], strides [{', '.join(tensor['strides'])}]; {', '.join(notes)}"


def _value(value: dict[str, Any]) -> str:
    default = "" if value["default"] is None else f" = {value['default']}"
    bound = value["bound"] or ""  # a whole number's lowest value alone, else a phrase
    if bound and value["type"][0] != "f" and " to " not in bound and not bound.startswith("at most"):
        bound += " or more"
    return f"    {value['name']}: {value['type']}{default}" + (f", {bound}" if bound else "")


def _selection(selection: dict[str, Any]) -> str:
    return f"    {selection['name']}: {', '.join(selection['values'])}; {selection['default']} by default"


def _axis(axis: dict[str, Any]) -> str:
    step = "" if axis["multiple_of"] == 1 else f", a multiple of {axis['multiple_of']}"
    return f"    {axis['name']}: {axis['min']} to {axis['max']}{step}" + ("; may be a tensor of one i32" if axis["on_device"] else "")
