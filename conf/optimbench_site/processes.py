"""Processes that end when they should: with their parent, and with everything they have started.

A tutorial may start processes of its own, in sessions of their own. The kernel gives those whose parent has ended to
the nearest ancestor that adopts orphans; so whoever adopts them can find and end them all. Linux only.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded here: between a fork and what follows there is no safe moment for it.
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Let this process be killed when its parent ends; called in the child. The id was taken before the fork."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # It has ended already.
        os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def all_ended_afterwards() -> Iterator[None]:
    """Kill every process that was started inside and still runs, also after Ctrl-C, SIGTERM or a closed terminal.

    Must be used in the main thread, since it handles signals.
    """
    before = _children()
    handlers = {number: signal.signal(number, _exit) for number in _endings()}
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        for number in handlers:  # A second signal must not stop what the first has begun.
            signal.signal(number, signal.SIG_IGN)
        _kill_children(before)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _endings() -> list[signal.Signals]:
    """The signals that end us. `nohup` has the last ignored, and then it stays so."""
    is_hung_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if is_hung_up else [])]


def _exit(number: int, frame: Any) -> NoReturn:  # noqa: ARG001 - given by Python.
    sys.exit(128 + number)  # As a shell has it.


def _kill_children(keep: Collection[int]) -> None:
    # The children of a killed process become ours, and are found in the next turn.
    while found := [pid for pid in _children() if pid not in keep]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name, in parentheses, may hold anything; state and parent follow it.
            if int(path.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(path.parent.name))
    return found
