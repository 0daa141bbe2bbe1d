"""The public names and their signatures as text: `python -m tests.interface` prints it."""

import dataclasses
import inspect
import re

import cbert


def text() -> str:
    """A line for each public name, and below a class its fields and methods."""
    lines = [line for name in sorted(cbert.__all__) for line in _lines(name)]
    # Which module a type comes from is nobody's concern.
    return re.sub(r"\b(?:[a-zA-Z_]\w*\.)+(?=[a-zA-Z_])", "", "\n".join(lines)) + "\n"


def _lines(name: str) -> list[str]:
    value = getattr(cbert, name)
    if not inspect.isclass(value):
        return [f"{name}{inspect.signature(value)}"]
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    lines = [f"class {name}({', '.join(base.__name__ for base in value.__bases__)})"]
    for field in fields:
        if not field.name.startswith("_"):
            has = field.default is not dataclasses.MISSING
            default = f" = {field.default!r}" if has else ""
            lines.append(f"    {field.name}: {inspect.formatannotation(field.type)}{default}")
    for method, function in vars(value).items():
        if inspect.isfunction(function) and not method.startswith("_"):
            lines.append(f"    {method}{inspect.signature(function)}")
    return lines


if __name__ == "__main__":
    print(text(), end="")
