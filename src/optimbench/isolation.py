"""Run a measurement in a process of its own: compiled or CUDA code that crashes then costs its row, not the rest."""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Union, cast

import msgspec

from optimbench.environment import Environment
from optimbench.errors import InvalidArgumentError
from optimbench.results import NotMeasured, Result

__all__ = ["run_all_isolated", "run_isolated", "turn"]

# The environment is named since it is among the subclasses only once its module is imported.
_ANY_RESULT: Any = Union[tuple({Environment, *Result.__subclasses__()})]  # noqa: UP007 - known only when this runs.
# What Python's faulthandler writes of the code that ran when a signal came: the innermost function comes first.
_STACK = re.compile(r"\n\n(?:Current thread|Thread) 0x")
_CRASHED_IN = re.compile(r'Current thread .*\n\s*File ".*?([^/"]+/[^/"]+)", line (\d+) in (\S+)')
# Written to standard error, by a process that waits and by one whose turn has come.
_WAITING, _TIMED = "waiting for its turn to be timed", "being timed"
_LOOK_S = 1.0  # How often we look for them.


def run_isolated(name: str, arguments: Sequence[str], *, time_limit_s: float = 600.0) -> Result | NotMeasured:
    """Run `python -m optimbench ARGUMENTS --json` in a new process and return its result.

    What the process started and left behind ends with it, unless that moved to a process group of its own.

    Args:
        name: What a missing result calls itself.
        arguments: Of the command line, without `--json`.
        time_limit_s: Seconds until the process is ended.

    Returns:
        The result. Where there is none, what happened instead ("crashed" with the signal's name, "timed out" or
        "failed"); the reason is where Python was when the signal came, else the last line on standard error.

    Raises:
        InvalidArgumentError: The time limit is not positive.

    Example:
        >>> import optimbench as ob
        >>> machine = ob.run_isolated("machine", ["env"])
        >>> machine.device in ("cuda", "cpu")
        True
    """
    return _run(name, _command(arguments), time_limit_s)


def run_all_isolated(
    jobs: Mapping[str, Sequence[str]],
    *,
    at_once: int = 1,
    time_limit_s: float = 600.0,
    progress: Callable[[str], object] | None = None,
) -> dict[str, Result | NotMeasured]:
    """Run `python -m optimbench compare` several times: compiling side by side, timed one at a time.

    Args:
        jobs: The arguments of each, as for `run_isolated`, by name.
        at_once: How many processes there are at a time; they share the processors for Inductor's compile processes.
        time_limit_s: Seconds until a process is ended; waiting for its turn does not count.
        progress: Called with a name when its process has ended, from the thread that watched it.

    Returns:
        What `run_isolated` returns, by name, in the order of `jobs`.

    Raises:
        InvalidArgumentError: `at_once` or the time limit is not positive.

    Example:
        >>> import optimbench as ob
        >>> jobs = {name: ["compare", "--optimizer", name, "--recipes", "foreach"] for name in ("Adam", "NAdam")}
        >>> found = ob.run_all_isolated(jobs, at_once=2, time_limit_s=0.01)  # Much too short on purpose.
        >>> {name: result.outcome for name, result in found.items()}
        {'Adam': 'timed out', 'NAdam': 'timed out'}
    """
    if at_once < 1:
        raise InvalidArgumentError(f"at_once is {at_once} (expected at least 1)")
    interrupted = threading.Event()
    n_threads = max(1, len(os.sched_getaffinity(0)) // at_once)
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": str(n_threads), **os.environ}

    def run(name: str) -> Result | NotMeasured:
        # Opened anew for each process, since a lock belongs to an open file; shared before even its imports begin.
        with open(turns.name, "rb") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_SH)
            arguments = [*jobs[name], "--turn", str(file.fileno())]
            found = _run(name, _command(arguments), time_limit_s, environment, file.fileno(), stop=interrupted)
        if progress is not None:
            progress(name)
        return found

    with tempfile.NamedTemporaryFile(prefix="optimbench-") as turns, ThreadPoolExecutor(at_once) as threads:
        try:
            return dict(zip(jobs, threads.map(run, jobs), strict=True))
        except BaseException:
            interrupted.set()  # Else the threads, and we for them, would wait for what runs.
            raise


@contextlib.contextmanager
def turn(lock: int) -> Iterator[None]:
    """Hold the lock that `run_all_isolated` gave to this process alone, once all others have let go of theirs.

    It is held until the process has ended: what this does after it was timed would disturb the next one.
    """
    print(_WAITING, file=sys.stderr, flush=True)
    # The shared lock is dropped before the exclusive one is granted: those that wait do not wait for each other.
    fcntl.flock(lock, fcntl.LOCK_EX)
    print(_TIMED, file=sys.stderr, flush=True)
    yield


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-X", "faulthandler", "-m", "optimbench", *arguments, "--json"]


def _run(
    name: str,
    command: Sequence[str],
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    *inherited: int,
    stop: threading.Event | None = None,
) -> Result | NotMeasured:
    if not limit_s > 0:
        raise InvalidArgumentError(f"time_limit_s is {limit_s} (expected a positive number of seconds)")
    # Files, not pipes: a process left behind that holds a pipe open would keep us waiting for its end.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files: Any = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
        child = subprocess.Popen(command, **files, env=environment, pass_fds=inherited, start_new_session=True)
        status, left_s = None, limit_s
        try:
            while status is None and left_s > 0 and not (stop and stop.is_set()):
                start_s = time.monotonic()
                try:
                    status = child.wait(min(left_s, _LOOK_S))
                except subprocess.TimeoutExpired:
                    said = _text(err)
                    if _WAITING not in said or _TIMED in said:
                        left_s -= time.monotonic() - start_s
        finally:
            # Its session is a process group, which outlives it for as long as a process is left in it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        answer, said = _text(out), _text(err)
    if status == 0:
        try:
            return cast(Result, msgspec.json.decode(answer, type=_ANY_RESULT))
        except msgspec.DecodeError as error:
            return NotMeasured(name=name, outcome="failed", reason=f"its answer is not a result: {error}")
    lines = _STACK.split(said)[0].splitlines() or ["it wrote no message"]
    reason = lines[-1].strip().removeprefix("optimbench: ")
    if status is None:
        return NotMeasured(name=name, outcome="timed out", reason=f"ended after {limit_s:g} s: {reason}")
    if status > 0:
        return NotMeasured(name=name, outcome="failed", reason=reason)
    if found := _CRASHED_IN.search(said):
        reason = f"it was in {found[3]} ({found[1]}, line {found[2]})"
    names = {known.value: known.name for known in signal.Signals}
    return NotMeasured(name=name, outcome=f"crashed ({names.get(-status, -status)})", reason=reason)


def _text(file: IO[bytes]) -> str:
    # Not `read`: the process that writes shares our place in the file.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace").strip()
