"""The page of an export that says what its functions take and give, read from its own files."""

import html
import inspect
import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.export

from cbert.errors import printable
from cbert.schema import MASK_ITEM, PAD_ITEM, TEXT, UNKNOWN_ITEM, Schema

PAGE = "README.md"


def page(directory: pathlib.Path, functions: Mapping[str, Callable], schema: Schema) -> str:
    """The page as Markdown.

    Args:
      directory: The directory of the export, whose `.stablehlo` files are read.
      functions: The functions by the names of their files, for the names of their arguments.
      schema: The export's.
    """
    features: dict[str, Any] = {}
    blocks = [_introduction(schema)]
    for name, function in functions.items():
        arguments = list(inspect.signature(function).parameters)
        rows, outputs = [], [""]
        for path in _files(directory, name):
            given, made = _signature(path)
            inputs = dict(zip(arguments, given, strict=True))
            features |= inputs.pop("context", {})
            del inputs["params"]
            outputs = list(made)
            rows.append([path.name, *map(_array, [*inputs.values(), *made.values()])])
        heads = ["file", *inputs, *(f"output {name}".rstrip() for name in outputs)]
        blocks.append(f"## `{name}({', '.join(arguments)})`\n\n{_table(heads, rows)}")
    if features:
        blocks.append(_context(features, schema))
    return "\n\n".join(blocks) + "\n"


def _files(directory: pathlib.Path, function: str) -> list[pathlib.Path]:
    """The files of a function, the shortest padded length first."""
    paths = [*directory.glob(f"{function}.stablehlo"), *directory.glob(f"{function}-*")]
    return sorted(paths, key=lambda path: (len(path.name), path.name))


def _signature(path: pathlib.Path) -> tuple[Any, dict[str, Any]]:
    """The arguments of the function in a file, and its outputs by name."""
    read = jax.export.deserialize(bytearray(path.read_bytes()))
    given, _ = jax.tree.unflatten(read.in_tree, read.in_avals)
    made = jax.tree.unflatten(read.out_tree, read.out_avals)
    return given, made if isinstance(made, dict) else {"": made}


def _introduction(schema: Schema) -> str:
    codes = f"""`codes` are the places of the items of a {schema.kind} in the list `items` of
`schema.json`, from 0: {MASK_ITEM} stands for an item to predict, {UNKNOWN_ITEM} for one that is
not in the list, and {PAD_ITEM} fills up a row. `positions` says which place of a row is
predicted. The output of `logits` has a number for each item of the list."""
    if schema.kind == TEXT:
        codes = f"""`tokens` are the places of the tokens of a text in the list `items` of
`schema.json`, from 0, and {PAD_ITEM} fills up a row. `segments` are 1 for the tokens of a
second text, and 0 elsewhere. `logits` have numbers for the values of the schema's `target`, or
for the first and the last token of an answer; `token_logits` takes some of `vectors` and has a
number for each token of the list."""
    return f"""# An exported model

`cbert.load_exported` reads this directory and does all of what follows; `card.json` has the
data, the metrics, the versions and the limits of the model. Each `.stablehlo` file is a
function that `jax.export.deserialize` reads; `rows` is any number. `params` are the arrays of
`parameters.npz`, nested at the slashes in their names.

{codes}"""


def _context(features: Mapping[str, Any], schema: Schema) -> str:
    kinds = {feature.name: feature for feature in schema.features}
    rows = [
        [name, kinds[name].kind, _array(array), _row(kinds[name].missing()[0].tolist())]
        for name, array in features.items()
    ]
    return f"""## `context`

A dict from feature to array. `encode_contexts` of the schema, which
`cbert.schema.schema_file.load` reads, makes the arrays of `[{{"feature": value, ...}}, ...]`,
and fills in what is missing.

{_table(["feature", "kind", "array", "a row where it is missing"], rows)}"""


def _array(array: Any) -> str:
    return f"{array.dtype} [{', '.join(map(str, array.shape))}]"


def _row(numbers: list[float]) -> str:
    """The numbers of a row; one that is repeated is written once, with how often."""

    def runs() -> Iterator[str]:
        for number, same in itertools.groupby(numbers):
            count = len(list(same))
            yield f"{number:g}" if count == 1 else f"{number:g} × {count}"

    return ", ".join(runs())


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return html.escape(printable(text), quote=False).replace("|", "\\|")
