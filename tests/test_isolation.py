"""What becomes of a process that crashes, hangs or fails, and of those that run side by side."""

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from optimbench import isolation
from optimbench.errors import InvalidArgumentError
from optimbench.isolation import _run, run_all_isolated, run_isolated
from optimbench.results import Comparison, NotMeasured, Result

# Long enough for a Python to start on a busy machine.
LIMIT_S = 60.0
TINY = ["compare", "--device", "cpu", "--tensors", "1", "--scale", "0.001", "--min-run-time", "0.02"]


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]


def end_of(code: str, *arguments: object, limit_s: float = LIMIT_S) -> tuple[str, str]:
    """The outcome and the reason of a process that gives no result."""
    found = _run("it", python(code, *arguments), limit_s)
    assert isinstance(found, NotMeasured)
    assert found.name == "it"
    return found.outcome, found.reason


def wait_for_the_end_of(pid: int) -> bool:
    """Whether a process ends within some seconds; one that nobody has waited for yet has ended too."""
    state = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL"])
def test_crash(name: str) -> None:
    code = """
        import os, signal, sys
        print("on my way", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    """
    assert end_of(code, name) == (f"crashed ({name})", "on my way")


def test_signal_without_a_name() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 1)"
    outcome, reason = end_of(code)
    assert outcome.startswith("crashed (")
    assert outcome[9:-1].isdigit()
    assert reason == "it wrote no message"


def test_crash_tells_the_function_without_absolute_paths(tmp_path: Path) -> None:
    script = tmp_path / "optim" / "nadam.py"
    script.parent.mkdir()
    script.write_text("import ctypes\n\n\ndef update():\n    ctypes.string_at(0)\n\n\nupdate()\n")
    found = _run("it", [sys.executable, "-X", "faulthandler", str(script)], LIMIT_S)
    assert isinstance(found, NotMeasured)
    assert found.outcome == "crashed (SIGSEGV)"
    # The innermost function is that of ctypes itself.
    assert found.reason.startswith("it was in string_at (ctypes/__init__.py, line ")


def test_crash_in_a_place_without_a_file() -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", "import ctypes, numpy; ctypes.CDLL(None).abort()"]
    found = _run("it", command, LIMIT_S)
    assert found == NotMeasured(name="it", outcome="crashed (SIGABRT)", reason="Fatal Python error: Aborted")


def test_failure() -> None:
    code = """
        import sys
        print("first", "optimbench: last", sep="\\n", file=sys.stderr)
        sys.exit(3)
    """
    assert end_of(code) == ("failed", "last")
    assert end_of("raise KeyError('lost')") == ("failed", "KeyError: 'lost'")
    assert end_of("import os; os._exit(1)") == ("failed", "it wrote no message")


@pytest.mark.parametrize("answer", ["", "hello", '{"type": "table"}', '{"type": "unheard of"}', "[1]"])
def test_answer_that_is_no_result(answer: str) -> None:
    outcome, reason = end_of("import sys; print(sys.argv[1])", answer)
    assert outcome == "failed"
    assert reason.startswith("its answer is not a result: ")


def test_time_limit_ends_also_what_the_process_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = """
        import pathlib, subprocess, sys, time
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        part = pathlib.Path(sys.argv[1] + ".part")
        part.write_text(str(started.pid))
        part.rename(sys.argv[1])
        print("busy", file=sys.stderr, flush=True)
        time.sleep(600)
    """
    start = time.monotonic()
    limit_s = 5.0
    assert end_of(code, told, limit_s=limit_s) == ("timed out", "ended after 5 s: busy")
    assert limit_s <= time.monotonic() - start < LIMIT_S
    assert wait_for_the_end_of(int(told.read_text()))


def test_what_a_process_leaves_behind_does_not_keep_us_waiting() -> None:
    code = """
        import subprocess, sys
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(left.pid, file=sys.stderr)
        sys.exit(1)
    """
    start = time.monotonic()
    outcome, pid = end_of(code, limit_s=2 * LIMIT_S)
    assert outcome == "failed"
    assert time.monotonic() - start < LIMIT_S
    assert wait_for_the_end_of(int(pid))


def test_interrupted_caller_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def interrupt(child: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        children.append(child)
        if timeout is not None:
            raise KeyboardInterrupt
        return wait(child)

    wait = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _run("it", python("import time; time.sleep(600)"), LIMIT_S)
    assert wait_for_the_end_of(children[0].pid)


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan")])
def test_impossible_limit(limit_s: float) -> None:
    with pytest.raises(InvalidArgumentError, match="time_limit_s is"):
        run_isolated("it", ["env"], time_limit_s=limit_s)


def test_success() -> None:
    found = run_isolated("sgd", [*TINY, "--optimizer", "SGD", "--recipes", "fused", "fused_cudagraph"])
    assert isinstance(found, Comparison), found
    assert [row.name for row in found.rows] == ["eager", "fused"]
    assert [(missing.name, missing.outcome) for missing in found.not_measured] == [("fused_cudagraph", "not possible")]


def test_every_result_is_known_in_a_process_that_imported_nothing_else() -> None:
    code = "import optimbench; print(type(optimbench.run_isolated('it', ['env'])).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Environment\n"


def test_refused_arguments() -> None:
    assert run_isolated("adam", ["compare", "--scale", "2", "--device", "cpu"]) == NotMeasured(
        name="adam", outcome="failed", reason="scale is 2.0 (expected more than 0 and at most 1)"
    )


def test_several_processes() -> None:
    ended: list[str] = []
    kinds = {"closure": "LBFGS", "sparse": "SparseAdam", "unknown": "Adieu"}
    jobs = {name: [*TINY, "--optimizer", kind, "--recipes", "fused", "compiled"] for name, kind in kinds.items()}
    found = run_all_isolated(jobs, at_once=2, progress=ended.append)
    assert list(found) == list(jobs)
    assert sorted(ended) == sorted(jobs)
    missing = found.pop("unknown")
    assert isinstance(missing, NotMeasured)
    assert "invalid choice: 'Adieu'" in missing.reason
    reasons = {name: _reasons(comparison) for name, comparison in found.items()}
    assert reasons["closure"]["compiled"] == "torch disables torch.compile for LBFGS"
    assert reasons["sparse"]["compiled"] == "torch disables torch.compile for SparseAdam"


def _reasons(found: Result | NotMeasured) -> dict[str, str]:
    assert isinstance(found, Comparison), found
    assert found.row("eager").median_s > 0
    return {missing.name: missing.reason for missing in found.not_measured}


def test_nobody_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="at_once is 0"):
        run_all_isolated({"it": ["env"]}, at_once=0)


# Gets ready, waits for its turn and is timed, and tells so.
TAKE_TURN = """
    import sys, time
    from optimbench.isolation import turn
    log, name, ready_s, timed_s = open(sys.argv[1], "a", buffering=1), sys.argv[2], *map(float, sys.argv[3:5])
    time.sleep(ready_s)
    log.write(f"{name} is ready\\n")
    with turn(int(sys.argv[sys.argv.index("--turn") + 1])):
        log.write(f"{name} begins\\n")
        time.sleep(timed_s)
    time.sleep(0.1)
    log.write(f"{name} ends\\n")
    print('{"type": "table", "name": "t", "columns": [], "cells": []}')
"""


def take_turns(
    monkeypatch: pytest.MonkeyPatch, log: Path, ready_s: Sequence[float], timed_s: float, limit_s: float = LIMIT_S
) -> dict[str, str]:
    """What becomes of processes that get ready and are timed for so many seconds."""
    monkeypatch.setattr(isolation, "_command", lambda arguments: python(TAKE_TURN, *arguments))
    jobs = {f"{index}": [str(log), f"{index}", str(s), str(timed_s)] for index, s in enumerate(ready_s)}
    found = run_all_isolated(jobs, at_once=len(jobs), time_limit_s=limit_s)
    return {name: end.outcome if isinstance(end, NotMeasured) else "done" for name, end in found.items()}


def test_processes_get_ready_together_and_are_timed_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    assert set(take_turns(monkeypatch, log, [0, 0.3, 0.6], 0.2).values()) == {"done"}
    lines = log.read_text().splitlines()
    assert all(line.endswith("is ready") for line in lines[:3])
    assert len(lines) == 9
    for begins, ends in zip(lines[3::2], lines[4::2], strict=True):
        assert begins.removesuffix(" begins") == ends.removesuffix(" ends")


def test_waiting_for_a_turn_does_not_count_and_a_hung_process_does_not_take_the_others_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The last one never gets ready, so the others wait until it is ended; then each of them takes its time.
    ends = take_turns(monkeypatch, tmp_path / "log", [0, 0, 600], timed_s=2, limit_s=5)
    assert ends == {"0": "done", "1": "done", "2": "timed out"}


# Waits for its turn, says something while it does, and then is timed; for so many seconds each.
WAIT = """
    import sys, time
    from optimbench.isolation import _TIMED, _WAITING
    waiting_s, timed_s = map(float, sys.argv[1:])
    print(_WAITING, "a warning of a library", sep="\\n", file=sys.stderr, flush=True)
    time.sleep(waiting_s)
    print(_TIMED, file=sys.stderr, flush=True)
    time.sleep(timed_s)
    print('{"type": "table", "name": "t", "columns": [], "cells": []}')
"""


def test_waiting_does_not_count_whatever_is_said_meanwhile() -> None:
    assert not isinstance(_run("it", python(WAIT, 12, 0), 4.0), NotMeasured)


def test_a_process_that_had_its_turn_has_its_limit_once() -> None:
    start = time.monotonic()
    assert end_of(WAIT, 0, 600, limit_s=8.0)[0] == "timed out"
    assert 8.0 <= time.monotonic() - start < 14.0


def test_an_interrupted_caller_of_several_leaves_none(tmp_path: Path) -> None:
    caller = f"""
        from optimbench import isolation
        sleep = "import os, sys, time; print(os.getpid(), file=open(sys.argv[1], 'w')); time.sleep(600)"
        isolation._command = lambda arguments: [{sys.executable!r}, "-c", sleep, *arguments]
        isolation.run_all_isolated({{name: [f"{tmp_path}/{{name}}"] for name in "abc"}}, at_once=2)
    """
    process = subprocess.Popen(python(caller), stderr=subprocess.PIPE, text=True)
    told = [tmp_path / name for name in "ab"]
    while not all(file.exists() and file.read_text().endswith("\n") for file in told):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert all(wait_for_the_end_of(int(file.read_text())) for file in told)
    assert not (tmp_path / "c").exists()
