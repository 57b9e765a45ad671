"""Call a function in a forked process, so that nothing it does can end or change the process that calls.

What it writes to the console still gets there. Where it does not return, there is its reason, and its last words.
"""

import contextlib
import faulthandler
import gc
import os
import pickle
import re
import selectors
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import IO, Any, NamedTuple, NoReturn

from optimbench_site.processes import all_ended_afterwards, die_with

# Bytes of its output that are kept.
_KEPT = 20_000
# Seconds between two looks at whether it has ended.
_LOOK_S = 0.05
# Seconds that a process past its limit has for writing down where it is.
_LAST_WORDS_S = 2.0
# What faulthandler writes when a process dies, and when it is asked where it is.
_STACK = re.compile(
    r"^(?:Fatal Python error: .*\n\n)?(?:Current thread .*|Stack) \(most recent call first\):\n", re.MULTILINE
)


class Ended(NamedTuple):
    """How a call ended.

    Attributes:
        answer: What the function returned.
        problem: Why there is no answer, in words, or "".
        output: The end of what was written: by the function, to the console, and by a traceback.
        stack: The files and lines where it was, the innermost last, as far as they are known.
    """

    answer: Any = None
    problem: str = ""
    output: str = ""
    stack: tuple[tuple[str, int], ...] = ()


def call(function: Callable[[Callable[[str], None]], Any], limit_s: float, tick: Callable[[], None]) -> Ended:
    """Call the function in a process of its own; it and all that it has started are gone afterwards.

    Args:
        function: Gets a function that keeps text as the last words. What it returns must be picklable.
        limit_s: Seconds until it is ended.
        tick: Called again and again while it runs.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    console, console_end = os.pipe()
    words, words_end = os.pipe()
    try:
        with tempfile.TemporaryFile() as file:
            with all_ended_afterwards():
                child = _fork()
                if child == 0:
                    _be_child(function, parent, console_end, words_end, file)
                os.close(console_end)
                os.close(words_end)
                reader = _Reader(console, words)
                status = _wait(child, limit_s, reader, tick)
            while reader.read(0):  # Nobody is left who could write more.
                pass
            return _ended(status, limit_s, reader.kept.decode(errors="replace"), file)
    finally:
        os.close(console)
        os.close(words)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns where there are threads. Those of numpy's library stop and start around a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class _Reader:
    """Passes on what comes through one pipe to the console, and keeps the end of what comes through either."""

    def __init__(self, console: int, words: int) -> None:
        self.kept = b""
        self._selector = selectors.DefaultSelector()
        for pipe in (console, words):
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ, data=pipe == console)

    def read(self, timeout_s: float) -> bool:
        """Read once, and say whether something had come."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            data = os.read(key.fd, 65536)
            if not data:  # Closed.
                self._selector.unregister(key.fd)
            elif key.data:
                sys.stderr.write(data.decode(errors="replace"))
                sys.stderr.flush()
            self.kept = (self.kept + data)[-_KEPT:]
        return bool(ready)


def _wait(child: int, limit_s: float, reader: _Reader, tick: Callable[[], None]) -> int | None:
    """The exit status as `os.waitpid` gives it, or None past the limit."""
    end = time.monotonic() + limit_s
    asked = False
    while True:
        reader.read(_LOOK_S)
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return None if asked else status
        if time.monotonic() > end:
            if asked:
                return None
            os.kill(child, signal.SIGUSR1)  # faulthandler writes where it is, in whatever code it hangs.
            asked, end = True, end + _LAST_WORDS_S
        tick()


def _be_child(
    function: Callable[[Callable[[str], None]], Any], parent: int, console: int, words: int, file: IO[bytes]
) -> NoReturn:
    try:
        # What there is stays: to look through it would copy all of the parent's memory.
        gc.freeze()
        os.setsid()
        die_with(parent)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(console, 1)
        os.dup2(console, 2)
        faulthandler.enable(file=2, all_threads=False)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=False)
        pickle.dump(_answer(function, words), file)
        file.flush()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - nothing may get out of here into a copy of the parent's code.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _answer(function: Callable[[Callable[[str], None]], Any], words: int) -> Ended:
    def say(text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(words, data) :]

    try:
        return Ended(function(say))
    except SystemExit as error:  # Where it was says it all.
        text = "".join(traceback.format_tb(error.__traceback__))
        return Ended(problem=f"asked to exit with status {error.code!r}", stack=frames_of(text))
    except BaseException as error:  # noqa: BLE001 - reported by the parent.
        problem, text = traceback.format_exception_only(error)[-1].strip(), traceback.format_exc()
        return Ended(problem=problem, output=text, stack=frames_of(text))


def frames_of(text: str) -> tuple[tuple[str, int], ...]:
    """The files and lines of a traceback."""
    return tuple((name, int(line)) for name, line in re.findall(r'^  File "(.+)", line (\d+)', text, re.MULTILINE))


def _ended(status: int | None, limit_s: float, kept: str, file: IO[bytes]) -> Ended:
    if status == 0:
        file.seek(0)
        with contextlib.suppress(EOFError):
            ended: Ended = pickle.load(file)
            return ended._replace(output=kept + ended.output)
    if status is None:
        problem = f"had not ended after {limit_s:g} s"
    elif os.WIFSIGNALED(status):
        problem = f"died of {signal.Signals(os.WTERMSIG(status)).name}"
        if os.WTERMSIG(status) == signal.SIGKILL:
            problem += ", as a process does when the system's memory is short"
    else:
        problem = f"ended its process with status {os.waitstatus_to_exitcode(status)}"
    output, *dumps = _STACK.split(kept)
    # faulthandler writes the innermost first.
    return Ended(problem=problem, output=output, stack=frames_of(dumps[-1] if dumps else "")[::-1])


def is_barred_from_gpu() -> bool:
    """Whether processes forked from this one could not use a GPU, since this one has used its driver through torch."""
    import torch

    child = _fork()
    if child == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    return os.waitpid(child, 0)[1] != 0
