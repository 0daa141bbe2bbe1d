"""How every command starts and ends: a user's mistake is one line and exit code 2."""

import os
import sys
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, flags, logging

from cbert import runtime
from cbert.errors import UserError


def run(main: Callable[[], None]) -> None:
    """Parses the flags and calls `main`, which takes nothing: it reads `flags.FLAGS`."""

    def guarded(arguments: list[str]) -> None:
        try:
            if len(arguments) > 1:
                raise UserError(
                    f"unexpected argument {arguments[1]!r}; flags look like --name=value"
                )
            main()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            print(
                "interrupted; a run goes on with the same command", file=sys.stderr, flush=True
            )
            # A step may still be computing: Python's own end would crash under its threads.
            os._exit(130)
        except (UserError, OSError) as error:
            fail(error)

    logging.set_verbosity(logging.ERROR)
    runtime.set_up()
    app.run(guarded, flags_parser=_parse)


def _parse(arguments: list[str]) -> list[str]:
    """Flags and config overrides; what is wrong with either ends in one line."""
    try:
        return flags.FLAGS(arguments)
    except (flags.Error, UserError) as error:
        fail(error)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fail(f"a --config override was refused: {error.args[0] if error.args else error}")
    except (OSError, ImportError, SyntaxError) as error:
        fail(f"the --config file cannot be loaded: {error}")


def fail(error: object) -> None:
    """Prints one line and ends the process with exit code 2."""
    line = " ".join(str(error).split())
    print(f"error: {line}", file=sys.stderr)
    sys.exit(2)
