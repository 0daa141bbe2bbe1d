"""Lists the commands, or runs one: `python -m experiments train ...`, `cbert train ...`."""

import ast
import pathlib
import runpy
import sys

from cbert import __version__
from cbert.field_names import nearest

FOLDER = pathlib.Path(__file__).parent


def commands() -> dict[str, str]:
    """Each command and the first line of its module, none of which is imported."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    return {
        name: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        for name, text in sorted(texts.items())
        if text.rstrip().endswith("command.run(main)")
    }


def main() -> None:
    """Runs the command that the first argument names."""
    known, arguments = commands(), sys.argv[1:]
    if not arguments or arguments[0] in ("help", "--help", "-h", "-helpfull", "--helpfull"):
        width = max(map(len, known))
        print("cbert COMMAND --flag=value, or python -m experiments.COMMAND --flag=value\n")
        for name, line in known.items():
            print(f"  {name:<{width}}  {line}")
        print("\ncbert COMMAND --help lists a command's flags, cbert --version the version.")
        return
    if arguments == ["--version"]:
        print(f"cbert {__version__}")
        return
    name, *rest = arguments
    if name not in known:
        near = nearest(name, known)
        print(f"error: there is no command {name[:80]!r}; is it {near}?", file=sys.stderr)
        sys.exit(2)
    module = f"experiments.{name}"
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
