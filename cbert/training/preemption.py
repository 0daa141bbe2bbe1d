"""Preemption: signals that ask a run to save and end.

They are SIGTERM, SIGINT (Ctrl-C), and SIGUSR1 and SIGUSR2, which Slurm can send before it ends
a job.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import types
from typing import Any

from cbert import distributed

# Windows has neither SIGUSR1 nor SIGUSR2.
_NAMES = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2")
SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
# Time to finish a step and save; systems that preempt often kill after ten seconds.
SECONDS = 8.0
_NOT_SAVED = (
    "stopped without saving, because a step, a validation or compiling took more than "
    f"{SECONDS:g} s; the same command goes on from the last checkpoint\n"
)
_WAITS = "the run is saved and ends after what it computes now; interrupt again not to save it"


class Stop:
    """Notes a signal, so that the loop ends after its step; a second Ctrl-C ends at once.

    Python cannot run signal handlers while XLA compiles a program. So a thread watches for
    signals, too. If the loop has not answered within `SECONDS`, the thread ends the process,
    and the run goes on later from its last checkpoint. Who interrupts at Python's prompt or in
    a notebook would lose all variables with the process; there the thread says to wait.

    It is a context manager. It does nothing outside the main thread, or if several processes
    train together: those agree on a step through `distributed.should_stop`.

    Attributes:
      requested: Whether a signal has arrived.
      interrupted: Whether it was Ctrl-C.
    """

    def __init__(self) -> None:
        self.requested = self.interrupted = False
        self._answered = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        alone = distributed.process_count() == 1
        if not alone or threading.current_thread() is not threading.main_thread():
            return self
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._answered.set()
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._theirs.close()  # Ends the thread.

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
        self.interrupted |= number == signal.SIGINT

    def answer(self) -> None:
        """Tells the watching thread that the loop has seen the request and is about to save."""
        self._answered.set()

    def _watch(self) -> None:
        # Python complains of a signal that comes after this end of the pair is closed.
        with contextlib.suppress(OSError), self._ours:
            while received := self._ours.recv(1):
                if received[0] not in SIGNALS or self._answered.wait(SECONDS):
                    continue
                if received[0] == signal.SIGINT and hasattr(sys, "ps1"):
                    print(_WAITS, flush=True)
                    continue
                os.write(2, _NOT_SAVED.encode())
                os._exit(0)
