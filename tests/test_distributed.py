"""Steps that several processes take together."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import optimbench as ob
from optimbench import _machine_load, distributed
from optimbench._machine_load import LoadMeter
from optimbench.distributed import _of_all_ranks, compare_ranks
from optimbench.errors import InvalidArgumentError, NoGradientError, RankError
from optimbench.launching import run_ranks
from recording_examples import measurement

SLOW_S, FAST_S = 0.02, 0.001


def measure_uneven_steps() -> list[ob.Comparison]:
    """One step is slow on rank 1, one talks to the others, and one fails on rank 1 after a while."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    parameter = torch.nn.Parameter(torch.ones(8))
    parameter.grad = torch.ones(8)
    calls = 0

    def uneven() -> None:
        time.sleep(SLOW_S if rank == 1 else FAST_S)

    def talking() -> None:
        dist.all_reduce(torch.ones(1))

    def failing() -> None:
        nonlocal calls
        calls += 1
        if rank == 1 and calls == 9:
            raise ValueError("no more")

    steps = {
        "uneven": uneven,
        "talking": talking,
        "failing": failing,
        "Adam": torch.optim.Adam([parameter], foreach=True).step,
    }
    found: list[Any] = [None] * 2
    dist.all_gather_object(found, compare_ranks(steps, baseline="uneven", min_run_time_s=0.1))
    dist.destroy_process_group()
    return found


def test_the_slowest_rank_counts_and_a_failure_on_one_is_one_on_all() -> None:
    first, second = run_ranks(measure_uneven_steps, n_ranks=2, time_limit_s=120).result
    assert first == second
    assert {row.name for row in first.rows} == {"uneven", "talking", "Adam"}
    assert min(first.row("uneven").block_times_s) >= SLOW_S
    assert {row.world_size for row in first.rows} == {2}
    assert "Medians of the slowest of 2 ranks on cpu" in str(first)
    [missing] = first.not_measured
    assert (missing.name, missing.outcome, missing.reason) == ("failing", "failed", "rank 1: ValueError: no more")


@pytest.fixture
def group_of_one() -> Iterator[None]:
    dist.init_process_group("gloo", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def do_nothing() -> None:
    pass


def test_without_a_group() -> None:
    with pytest.raises(RankError, match="there is no process group"):
        compare_ranks({"a": do_nothing}, baseline="a")


@pytest.mark.usefixtures("group_of_one")
def test_arguments_and_failures_of_a_group_of_one() -> None:
    with pytest.raises(InvalidArgumentError, match="baseline 'b' is not among"):
        compare_ranks({"a": do_nothing}, baseline="b")
    for seconds in ("nan", "inf", "0"):
        with pytest.raises(InvalidArgumentError, match="min_run_time_s is"):
            compare_ranks({"a": do_nothing}, baseline="a", min_run_time_s=float(seconds))
    with pytest.raises(InvalidArgumentError, match="step 'a' is of type int"):
        compare_ranks({"a": 1}, baseline="a")  # type: ignore[dict-item]
    with pytest.raises(NoGradientError, match="'a'"):
        compare_ranks({"a": torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1).step}, baseline="a")
    with pytest.raises(RankError, match="rank 0: ZeroDivisionError"):
        compare_ranks({"a": lambda: 1 // 0}, baseline="a", min_run_time_s=0.01)


def test_the_largest_of_what_ranks_measured_apart_and_all_their_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    # What two GPUs would say; none is at hand.
    common: dict[str, Any] = {"block_times_s": (1.0, 2.0, 3.0), "median_s": 2.0, "iqr_s": 1.0}
    hosts = ((0.3, 0.1, 0.2), 0.2), ((0.1, 0.4, 0.3), 0.3)
    said = ("noisy", "hot"), ("noisy",)
    ranks = [
        measurement(
            "a",
            **common,
            block_host_times_s=blocks,
            host_time_s=median,
            kernel_time_s=0.1 + number,
            kernel_count=5.0 - number,
            peak_extra_bytes=100 * number,
            warnings=warnings,
            world_size=1,
        )
        for number, ((blocks, median), warnings) in enumerate(zip(hosts, said, strict=True))
    ]
    monkeypatch.setattr(distributed, "_from_all", lambda _: ranks)
    merged = _of_all_ranks(ranks[0])
    assert merged.block_host_times_s == (0.3, 0.4, 0.3)
    assert merged.host_time_s == 0.3
    assert (merged.kernel_time_s, merged.kernel_count, merged.peak_extra_bytes) == (1.1, 5.0, 100)
    assert merged.warnings == ("noisy", "rank 0: hot")
    assert merged.world_size == 2


def test_ranks_are_not_other_processes_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    busy_s, used_s = iter([10.0, 12.0, 12.0]), 0.0
    monkeypatch.setattr(_machine_load, "_busy_s", lambda: next(busy_s))
    meter = LoadMeter(lambda: used_s)
    alone = meter.others_share()
    assert alone is not None
    assert alone > 0
    used_s = 2.0
    assert meter.others_share() == 0.0
