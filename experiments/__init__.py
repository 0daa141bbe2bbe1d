"""The commands, each a module: `python -m experiments` lists them."""

import os
import signal
import sys

# Ctrl-C ends a command that still imports its libraries without a traceback; `command.run`
# then handles it.
_STARTS = sys.argv[0] == "-m" or sys.argv[0].endswith("cbert")
if _STARTS and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
# By a signal's default action Linux does not end the first process of a container.
if _STARTS and os.getpid() == 1:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
