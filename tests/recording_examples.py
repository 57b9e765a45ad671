"""Recordings for tests: one fixed one that holds every result type, and strategies that make others."""

import datetime
from typing import Any

from hypothesis import strategies as st

from optimbench import _stats
from optimbench.comparison import compare_measurements
from optimbench.environment import Environment
from optimbench.recordings import RecordedScript, Recording, device_slug
from optimbench.results import (
    Bandwidth,
    Comparison,
    Compilation,
    FirstCalls,
    GraphBreak,
    Measurement,
    NotMeasured,
    Recommendation,
    RecompileLog,
    Table,
)

SCRIPT = "plot_01_adam"
SHA256 = "0123456789abcdef" * 4


def environment(**changes: Any) -> Environment:
    fields: dict[str, Any] = {
        "device": "cuda",
        "device_name": "NVIDIA H200",
        "device_reason": "capability 9.0 is at least 7.0",
        "capability": "9.0",
        "memory_bytes": 150 * 10**9,
        "driver": "580.159",
        "torch": "2.11.0+cu130",
        "cuda": "13.0",
        "triton": "3.6.0",
        "python": "3.12.3",
        "cpu": "A processor",
        "cpu_count": 16,
        "num_threads": 8,
        "os": "Debian GNU/Linux 12, x86_64",
        "optimbench": "0.1.0",
        "commit": "0123456789ab",
        "date": "2026-02-03T04:05:06+00:00",
        "throttle_reasons": ("power cap",),
        "other_processes": 0,
        "world_size": 2,
        "backend": "nccl",
    }
    return Environment(**fields | changes)


def measurement(name: str, wall_s: tuple[float, ...] = (1e-4, 2e-4, 4e-4), **changes: Any) -> Measurement:
    host_s = tuple(time_s / 2 for time_s in wall_s)
    fields: dict[str, Any] = {
        "name": name,
        "device": "cuda",
        "num_threads": 8,
        "calls_per_block": 10,
        "block_times_s": wall_s,
        "median_s": _stats.median(wall_s),
        "iqr_s": _stats.interquartile_range(wall_s),
        "warm_up_calls": 5,
        "first_call_s": 3.0,
        "warm_up_s": 3.5,
        "block_host_times_s": host_s,
        "host_time_s": _stats.median(host_s),
        "kernel_time_s": 7e-5,
        "kernel_count": 2.0,
        "peak_extra_bytes": 4096,
        "least_bytes": 28_000,
        "warnings": ("scatters by 40 %",),
        "world_size": 2,
    }
    return Measurement(**fields | changes)


def recording(**changes: Any) -> Recording:
    """On an NVIDIA H200, with two scripts and every result type; no optional field is empty."""
    comparison = compare_measurements(
        [measurement("eager"), measurement("compiled", (5e-5, 9e-5, 3e-4), kernel_time_s=5e-5)],
        baseline="eager",
        not_measured=[NotMeasured(name="fused", outcome="failed", reason="no kernel")],
        seed=3,
    )
    compilation = Compilation(
        function="step",
        location="torch/optim/adam.py:213",
        is_recompile=True,
        duration_s=2.5,
        reasons=("lr of param group 0 changed from 0.01 to 0.009",),
        guards=("self.param_groups[0]['lr'] == 0.01",),
        hint="make it a tensor",
        failure="none",
        call=2,
    )
    log = RecompileLog(
        compilations=(compilation,),
        recompile_limit=8,
        over_limit=("step",),
        eager_since_call=3,
        calls=12,
        graph_breaks=(GraphBreak(reason="on purpose", count=2),),
        not_compiled="said twice",
    )
    table = Table(name="lr", columns=("step", "lr"), cells=((1, 0.01), ("last", -2.5), (None, 3)), remarks=("Why.",))
    recommendation = Recommendation(
        optimizer="Adam",
        recipe="compiled",
        comparison=comparison,
        first_calls=(FirstCalls(name="compiled", calls=5, total_s=2.5),),
        floor_s=6e-5,
        not_used=(NotMeasured(name="flat", outcome="not possible", reason="two dtypes"),),
        remarks=("Why.",),
    )
    fields: dict[str, Any] = {
        "device": "nvidia-h200",
        "scripts": {
            SCRIPT: RecordedScript(environment=environment(), source_sha256=SHA256),
            "plot_02_other": RecordedScript(environment=environment(torch="2.12.0"), source_sha256=SHA256),
        },
        "results": {
            SCRIPT: {"comparison": comparison, "log": log, "lr_table": table, "machine": environment()},
            "plot_02_other": {
                "copy": Bandwidth(device="cuda", moved_bytes=10**9, block_times_s=(0.1, 0.2, 0.4), median_s=0.2),
                "one": measurement("eager"),
                "recommendation": recommendation,
            },
        },
    }
    return Recording(**fields | changes)


times_s = st.floats(1e-9, 1e5)
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,30}", fullmatch=True)
# Whatever a reason or a name of a step may be, as long as it is text and no path.
texts = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="/~:\\"), max_size=30)
counts = st.integers(0, 10**6)


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def measurements(draw: st.DrawFn, name: str = "step", n_blocks: int | None = None) -> Measurement:
    n = n_blocks or draw(st.integers(1, 6))
    blocks_s = draw(st.tuples(*[times_s] * n))
    host_s = draw(_optional(st.tuples(*[times_s] * n)))
    return measurement(
        name,
        blocks_s,
        block_host_times_s=host_s,
        host_time_s=None if host_s is None else _stats.median(host_s),
        first_call_s=draw(times_s),
        warm_up_s=draw(times_s),
        warm_up_calls=draw(counts),
        kernel_time_s=draw(_optional(times_s)),
        kernel_count=draw(_optional(st.floats(0, 1e4))),
        peak_extra_bytes=draw(_optional(counts)),
        # So few that any time that is drawn can move them at any bandwidth that is drawn.
        least_bytes=draw(_optional(st.just(1))),
        cold_cache=draw(st.booleans()),
        world_size=draw(st.integers(1, 8)),
        warnings=tuple(draw(st.lists(texts, max_size=2))),
    )


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    names_of_rows = draw(st.lists(texts.filter(str.strip), min_size=1, max_size=4, unique=True))
    n_blocks = draw(st.integers(1, 6))
    rows = [draw(measurements(name, n_blocks)) for name in names_of_rows]
    return compare_measurements(rows, baseline=draw(st.sampled_from(names_of_rows)), seed=draw(counts))


compilations = st.builds(
    Compilation,
    function=texts,
    location=texts,
    is_recompile=st.booleans(),
    duration_s=_optional(times_s),
    reasons=st.lists(texts, max_size=2).map(tuple),
    guards=st.lists(texts, max_size=2).map(tuple),
    hint=texts,
    failure=texts,
    call=_optional(counts),
)
logs = st.builds(
    RecompileLog,
    compilations=st.lists(compilations, max_size=3).map(tuple),
    recompile_limit=counts,
    over_limit=st.lists(texts, max_size=2).map(tuple),
    eager_since_call=_optional(counts),
    calls=_optional(counts),
    graph_breaks=st.lists(st.builds(GraphBreak, reason=texts, count=counts), max_size=2).map(tuple),
    not_compiled=texts,
)
cells = st.none() | texts | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
tables = st.integers(0, 4).flatmap(
    lambda width: st.builds(
        Table,
        name=texts,
        columns=st.tuples(*[texts] * width),
        cells=st.lists(st.tuples(*[cells] * width), max_size=4).map(tuple),
        remarks=st.lists(texts, max_size=2).map(tuple),
    )
)
bandwidths = st.lists(times_s, min_size=1, max_size=5).flatmap(
    lambda block_times_s: st.builds(
        Bandwidth,
        device=st.sampled_from(["cpu", "cuda"]),
        # What a memory can move in the time.
        moved_bytes=st.integers(
            max(1, int(1e9 * _stats.median(block_times_s))), max(1, int(1e13 * _stats.median(block_times_s)))
        ),
        block_times_s=st.just(tuple(block_times_s)),
        median_s=st.just(_stats.median(block_times_s)),
    )
)
dates = st.datetimes(datetime.datetime(2020, 1, 1), datetime.datetime(2025, 1, 1), timezones=st.just(datetime.UTC)).map(
    lambda date: date.isoformat(timespec="seconds")
)
environments = st.builds(
    environment,
    torch=texts,
    driver=_optional(texts),
    memory_bytes=_optional(counts),
    commit_is_dirty=st.booleans(),
    throttle_reasons=st.lists(texts, max_size=2).map(tuple),
    other_processes=_optional(counts),
    world_size=st.integers(1, 8),
    backend=_optional(texts),
    date=dates,
)
recommendations = st.builds(
    lambda comparison, **fields: Recommendation(comparison=comparison, recipe=comparison.baseline, **fields),
    comparison=comparisons(),
    optimizer=texts,
    first_calls=st.lists(st.builds(FirstCalls, name=texts, calls=st.integers(1, 9), total_s=times_s), max_size=2).map(
        tuple
    ),
    floor_s=_optional(times_s),
    remarks=st.lists(texts, max_size=2).map(tuple),
)
RESULTS: dict[str, st.SearchStrategy[Any]] = {
    "Measurement": measurements(),
    "Comparison": comparisons(),
    "RecompileLog": logs,
    "Table": tables,
    "Bandwidth": bandwidths,
    "Environment": environments,
    "Recommendation": recommendations,
}


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Recordings of one device with up to three scripts."""
    device = {"device": draw(st.sampled_from(["cpu", "cuda"])), "device_name": draw(texts)}
    scripts = {
        name: RecordedScript(
            environment=environment(**device, date=draw(dates)),
            source_sha256=f"{draw(st.integers(0, 2**256 - 1)):064x}",
        )
        for name in draw(st.lists(names, max_size=3, unique=True))
    }
    any_result = st.one_of(list(RESULTS.values()))
    return Recording(
        device=device_slug(environment(**device)),
        scripts=scripts,
        results={name: draw(st.dictionaries(names, any_result, max_size=2)) for name in scripts},
    )
