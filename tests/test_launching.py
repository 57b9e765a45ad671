"""Functions in several processes: what they print and return, and which rank is named when one does not end well."""

import inspect
import os
import signal
import time
from datetime import timedelta
from math import hypot as length
from pathlib import Path

import pytest
import torch.distributed as dist

import optimbench as ob
from optimbench._program import program_of
from optimbench.errors import InvalidArgumentError, RankError
from optimbench.launching import _RUN_ID, RanksDone, _failed, _hung, _Said, run_ranks

# Long enough for three Pythons to import torch on a busy machine.
LIMIT_S = 120.0
# What a hung rank may take, its start included.
SHORT_LIMIT_S = 30.0
GREETING = "hello"


def start() -> int:
    """Join the others; the rank."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    dist.barrier()
    return dist.get_rank()


def report() -> tuple[str, ob.Environment, str]:
    print(f"{GREETING} from rank {start()} of {dist.get_world_size()}")
    machine = ob.collect_environment()
    dist.destroy_process_group()
    return os.environ["MASTER_ADDR"], machine, os.environ[_RUN_ID]


def kill_rank_1() -> None:
    if start() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def raise_on_rank_1() -> None:
    if start() == 1:
        raise KeyError("lost")
    dist.barrier()


def hang_on_rank_1() -> None:
    if start() == 1:
        spin()
    dist.barrier()


def spin() -> None:
    time.sleep(600)


def running() -> set[str]:
    """The environments of all processes that torchrun has started and that are left."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found |= {word for word in path.read_text(errors="replace").split("\0") if word.startswith(f"{_RUN_ID}=")}
        except OSError:
            continue
    return found


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_every_rank_is_heard_and_rank_0_returns(n_ranks: int) -> None:
    done = run_ranks(report, n_ranks=n_ranks, time_limit_s=LIMIT_S)
    assert isinstance(done, RanksDone)
    assert done.outputs == tuple(f"hello from rank {rank} of {n_ranks}\n" for rank in range(n_ranks))
    address, machine, run_id = done.result
    assert address == "127.0.0.1"
    assert (machine.world_size, machine.backend) == (n_ranks, "gloo")
    assert f"{n_ranks} rank{'' if n_ranks == 1 else 's'} (gloo)" in machine.label
    assert f"{_RUN_ID}={run_id}" not in running()


def test_a_process_alone_has_no_ranks() -> None:
    machine = ob.collect_environment()
    assert (machine.world_size, machine.backend) == (1, None)
    assert "rank" not in machine.label


def test_a_killed_rank_is_named() -> None:
    with pytest.raises(RankError, match=r"^rank 1 was ended by SIGKILL"):
        run_ranks(kill_rank_1, n_ranks=2, time_limit_s=LIMIT_S)


def test_a_rank_that_raises_is_named_with_its_exception() -> None:
    with pytest.raises(RankError, match=r"^rank 1 failed: KeyError: 'lost'"):
        run_ranks(raise_on_rank_1, n_ranks=2, time_limit_s=LIMIT_S)


def test_a_hung_rank_is_named_with_the_function_it_was_in() -> None:
    before = running()
    begin = time.monotonic()
    with pytest.raises(RankError, match=r"^rank 1 hung in spin .*; rank 0 waited for the others in barrier .* 30 s$"):
        run_ranks(hang_on_rank_1, n_ranks=2, time_limit_s=SHORT_LIMIT_S)
    assert SHORT_LIMIT_S <= time.monotonic() - begin < LIMIT_S
    assert running() <= before


def test_who_failed_is_told_in_the_order_it_happened() -> None:
    said = "  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 5)\n  rank      : 1 (local_rank: 1)\n  exitcode  : "
    ranks = [
        _Said("", "[rank0]: RuntimeError: closed by peer\n", 2.0),
        _Said("", "[rank1]: ValueError: bad\nW late", 1.0),
    ]
    expected = "rank 1 failed: ValueError: bad; then rank 0 failed: RuntimeError: closed by peer"
    assert _failed(ranks, f"{said}1 (pid: 6)\n") == expected
    ranks[1] = _Said("", "", 3.0)
    assert _failed(ranks, f"{said}-11 (pid: 6)\n").startswith("rank 1 was ended by SIGSEGV; then rank 0")
    assert _failed(ranks, "ImportError: no torch") == "torchrun failed: ImportError: no torch"


def test_ranks_that_tell_nothing() -> None:
    assert (
        _hung([_Said("", "", 0.0)], 2.0) == "no rank had started, or told where it was, when the time of 2 s was over"
    )


@pytest.mark.parametrize(("name", "value"), [("n_ranks", 0), ("time_limit_s", 0.0), ("time_limit_s", float("nan"))])
def test_impossible_numbers(name: str, value: float) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is"):
        run_ranks(report, **{"n_ranks": 2, name: value})  # type: ignore[arg-type]


NUMBER, WORDS, MANY = 3, "it's", [1, 2]


def inner(x: float) -> float:
    return length(x * NUMBER, 4.0)


def outer() -> tuple[float, str, str]:
    return sum(inner(x) for x in (1.0,)), WORDS, inspect.cleandoc("  a")


def uses_a_list() -> int:
    return len(MANY)


def test_a_program_has_what_a_function_uses() -> None:
    names: dict[str, object] = {}
    program = program_of(outer)
    exec(program, names)
    assert names["main"]() == outer() == (5.0, "it's", "a")  # type: ignore[operator]
    assert "MANY" not in program


def test_what_a_program_cannot_hold() -> None:
    with pytest.raises(InvalidArgumentError, match="MANY is a list"):
        program_of(uses_a_list)
    around = 3
    with pytest.raises(InvalidArgumentError, match="uses variables of the function around it"):
        program_of(lambda: around)
    with pytest.raises(InvalidArgumentError, match="expected a function"):
        program_of(print)
    names: dict[str, object] = {"__name__": __name__}
    exec("def typed(): pass", names)
    with pytest.raises(InvalidArgumentError, match="the source of typed is not known"):
        program_of(names["typed"])  # type: ignore[arg-type]
