"""Which part of the package may import which: downwards only."""

import ast
import pathlib
import re

import cbert

PACKAGE = pathlib.Path(cbert.__file__).parent
# A module may import its own package and lower layers.
LAYERS = [
    {"errors"},
    {*("distributed", "field_names", "files", "parallel", "processes", "ranks", "registry")}
    | {"spans", "text_table"},
    {"collectives", "config", "directories", "schema"},
    {"data", "model"},
    {"tasks"},
    {"training"},
    {"evaluation", "inference", "experiment"},
    {"report", "sweep", "serving", "benchmark", "api", "results"},
]
RANKS = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}
# These import nothing of the layers above, and any part may import them.
ANYWHERE = {"progress", "runtime"}
# Imports that break the order. This list may only become shorter.
EXCEPTIONS: set[tuple[str, str]] = set()


def imports() -> set[tuple[str, str]]:
    """Each module of the package, and each part of the package that it imports."""
    pairs = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        parts = [name.split(".") for name in imported_by(path) if name.startswith("cbert.")]
        pairs |= {(module, names[1]) for names in parts}
    return pairs


def imported_by(path: pathlib.Path) -> list[str]:
    """The full names of what a module imports."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: import from cbert by its full name"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_imports_go_downwards_only():
    breaking = set()
    for module, imported in imports():
        package = module.split(".")[0]
        if package in {"__init__", imported} or imported in ANYWHERE:
            continue
        if package in ANYWHERE or RANKS[imported] >= RANKS[package]:
            breaking.add((module, imported))
    assert breaking == EXCEPTIONS


def test_every_part_of_the_package_has_a_layer():
    parts = {path.stem for path in PACKAGE.iterdir() if path.name != "page"}
    parts -= {"__init__", "__pycache__"}
    assert parts == RANKS.keys() | ANYWHERE


def test_no_part_of_the_package_knows_the_commands_or_the_configs():
    for path in PACKAGE.rglob("*.py"):
        names = {name.split(".")[0] for name in imported_by(path)}
        assert not names & {"experiments", "configs"}, path


def test_no_text_of_the_package_names_a_flag():
    """Only the commands know flags; the package's errors name arguments and fields."""
    flag = re.compile(r"(?<![\w-])--[a-z]\w*")
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise):
                assert not flag.search(ast.unparse(node)), (path, node.lineno)
