"""Run a function in several processes of this machine with torchrun, and say which of them failed."""

import contextlib
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from optimbench._program import program_of
from optimbench.errors import InvalidArgumentError, RankError

__all__ = ["RanksDone", "run_ranks"]

# One process that ends by itself makes torchrun end the others and itself; that takes it this long at most, seconds.
_GRACE_S = 40.0
# How torchrun reports a process that failed, in its last words.
_FAILURE = re.compile(r"^\s*rank\s*:\s*(\d+) .*\n\s*exitcode\s*:\s*(-?\d+)", re.MULTILINE)
# What faulthandler writes of the thread that a signal came to: the innermost function comes first.
_STOPPED_IN = re.compile(r'Current thread .*\n\s*File ".*?([^/"]+/[^/"]+/[^/"]+)", line (\d+) in (\S+)')
# Functions in which a rank waits for the others: torch's collectives, and what waits for their kernels.
_WAITING = re.compile(r"distributed/|synchronize$")
# torch puts the rank before each line of an exception.
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
# The last line of a traceback; a library may warn after it.
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")
# torchrun gives its processes the run's id and their rank by these.
_RUN_ID, _RANK = "TORCHELASTIC_RUN_ID", "RANK"


# What the script does after it has defined `main`; rank 0 keeps the result.
_LAST_LINES = """
if __name__ == "__main__":
    import os
    import pickle

    result = main()
    if os.environ["RANK"] == "0":
        with open("result.pickle", "wb") as file:
            pickle.dump(result, file)
"""


class RanksDone(NamedTuple):
    """What several processes gave.

    Attributes:
        outputs: What each rank wrote to standard output, by rank.
        result: What the function returned on rank 0.

    Example:
        >>> import optimbench as ob
        >>> done = ob.RanksDone(outputs=("from rank 0", "from rank 1"), result=2)
        >>> done.outputs[1]
        'from rank 1'
    """

    outputs: tuple[str, ...]
    result: Any


class _Said(NamedTuple):
    """What one rank wrote, and when it last wrote to standard error (seconds)."""

    out: str
    err: str
    err_time_s: float


def run_ranks(main: Callable[[], object], *, n_ranks: int, time_limit_s: float = 600.0) -> RanksDone:
    """Call a function in several processes, which `torchrun` starts, and return what they printed.

    The function is written to a script, with what it uses: functions of the same module, imported names, numbers and
    texts. So it may be one of a notebook. It calls `torch.distributed.init_process_group` itself, and finds its rank in
    the environment. The processes find each other at 127.0.0.1, so the machine's name need not resolve. They run in a
    temporary folder, with this process's environment, and with one CPU thread each unless OMP_NUM_THREADS says
    otherwise, which is torchrun's own rule. When this returns or raises, all of them have ended.

    Args:
        main: A function without arguments.
        n_ranks: How many processes.
        time_limit_s: Seconds until all are ended.

    Returns:
        What each rank wrote to standard output, and what the function returned on rank 0.

    Raises:
        InvalidArgumentError: The function cannot be written to a script, or a number is not positive.
        RankError: A rank failed, was ended by a signal or did not end in time. The message names it, and says what it
            raised, or in which function it was when the time was over.

    Example:
        >>> import optimbench as ob
        >>> def greet():
        ...     import os
        ...     print("from rank", os.environ["RANK"])
        >>> ob.run_ranks(greet, n_ranks=1).outputs[0].strip()
        'from rank 0'
    """
    if n_ranks < 1:
        raise InvalidArgumentError(f"n_ranks is {n_ranks} (expected at least 1)")
    if not time_limit_s > 0:
        raise InvalidArgumentError(f"time_limit_s is {time_limit_s} (expected a positive number of seconds)")
    run_id = f"optimbench-{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory(prefix="optimbench-") as name:
        folder = Path(name)
        script = folder / "worker.py"
        script.write_text(f"{program_of(main)}\n{_LAST_LINES}", encoding="utf-8")
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={n_ranks}"]
        # --standalone would tell the others this machine's name in place of an address.
        command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
        command += [f"--rdzv-id={run_id}", f"--log-dir={folder / 'logs'}", "--redirects=3", str(script)]
        status, said = _run(command, folder, run_id, time_limit_s)
        ranks = _said_by_rank(folder / "logs", n_ranks)
        if status is None:
            raise RankError(_hung(ranks, time_limit_s))
        if status:
            raise RankError(_failed(ranks, said))
        # Written by the function itself, so it can be trusted as much.
        result = pickle.loads((folder / "result.pickle").read_bytes())
    return RanksDone(tuple(rank.out for rank in ranks), result)


def _run(command: Sequence[str], folder: Path, run_id: str, limit_s: float) -> tuple[int | None, str]:
    """The exit status of torchrun, or None where the time was over, and its last words."""
    # gloo asks for this machine's name unless it is given an interface; faulthandler tells where a signal came.
    environment = {"GLOO_SOCKET_IFNAME": "lo", **os.environ, "PYTHONFAULTHANDLER": "1"}
    with tempfile.TemporaryFile() as said:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": said}
        child = subprocess.Popen(command, **streams, cwd=folder, env=environment, start_new_session=True)  # type: ignore[call-overload]
        # What is ended for being late need not leave a core file.
        resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))
        status: int | None = None
        try:
            status = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end(_processes(run_id, child.pid), signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_S)
        finally:
            # Each rank has a session of its own, which would outlive torchrun.
            _end([child.pid, *_processes(run_id)], signal.SIGKILL)
            child.wait()
        said.seek(0)
        return status, said.read().decode(errors="replace")


def _processes(run_id: str, parent: int | None = None) -> Iterator[int]:
    """The processes of a run, as Linux tells them: the ranks and what they started, or only children of a process."""
    marks = {f"{_RUN_ID}={run_id}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        # It may end while we look, or belong to another user.
        with contextlib.suppress(OSError):
            is_child = parent is None or int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and marks <= set((folder / "environ").read_bytes().split(b"\0")):
                yield int(folder.name)


def _end(processes: Sequence[int] | Iterator[int], how: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, how)


def _said_by_rank(folder: Path, n_ranks: int) -> list[_Said]:
    """What torchrun has kept of each rank: RUN/attempt_0/RANK/stdout.log and stderr.log."""
    ranks = []
    for rank in range(n_ranks):
        out, err = ([*folder.glob(f"*/attempt_0/{rank}/{name}.log")] for name in ("stdout", "stderr"))
        said, raised = (paths[0].read_text(errors="replace") if paths else "" for paths in (out, err))
        ranks.append(_Said(said, raised, err[0].stat().st_mtime if err else 0.0))
    return ranks


def _hung(ranks: Sequence[_Said], limit_s: float) -> str:
    """Which ranks did not end; those that only waited for others come last."""
    busy: list[tuple[int, str]] = []
    waiting: list[tuple[int, str]] = []
    for rank, said in enumerate(ranks):
        if found := _STOPPED_IN.search(said.err):
            is_waiting = _WAITING.search(found[1]) or _WAITING.search(found[3])
            where = f"{found[3]} ({found[1].partition('/')[2]}, line {found[2]})"
            (waiting if is_waiting else busy).append((rank, where))
    if not busy and not waiting:
        return f"no rank had started, or told where it was, when the time of {limit_s:g} s was over"
    told = [f"rank {rank} hung in {where}" for rank, where in busy]
    told += [f"rank {rank} waited for the others in {where}" for rank, where in waiting]
    return f"{'; '.join(told)}; ended after {limit_s:g} s"


def _failed(ranks: Sequence[_Said], said: str) -> str:
    """Which ranks failed, the first one first: where one fails, the others lose their connections."""
    found = {int(rank): int(status) for rank, status in _FAILURE.findall(said)}
    # torchrun ends those that are left with this signal.
    found = {rank: status for rank, status in found.items() if status != -signal.SIGTERM} or found
    if not found:
        return f"torchrun failed: {_last_line(said)}"

    def order(rank: int) -> tuple[bool, float]:
        # Of those that raised, the first has written first. One that a signal ended has caused what came after.
        return found[rank] > 0, ranks[rank].err_time_s

    return "; then ".join(_end_of(rank, found[rank], ranks[rank].err) for rank in sorted(found, key=order))


def _end_of(rank: int, status: int, err: str) -> str:
    if status > 0:
        return f"rank {rank} failed: {_last_line(err)}"
    names = {known.value: known.name for known in signal.Signals}
    return f"rank {rank} was ended by {names.get(-status, -status)}"


def _last_line(text: str) -> str:
    lines = [_RANK_PREFIX.sub("", line) for line in text.strip().splitlines()]
    raised = [line for line in lines if _EXCEPTION.match(line)]
    return (raised or lines or ["it wrote no message"])[-1].strip()
