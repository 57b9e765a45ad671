"""What a device's recordings said over time, kept small: one file a device, one entry a day.

A recording is replaced by the next one. Its medians and counts stay in `docs/recordings/history/DEVICE.json`, so that a
page can draw them by date and version. The bound is `MOST_ENTRIES` entries and `MOST_BYTES` a file: the oldest entries
go first. A file is read without trust, as recordings are.
"""

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from optimbench import Bandwidth, Comparison, Environment, Measurement, Recommendation, RecompileLog, Recording, Result
from optimbench.errors import RecordingError
from optimbench.recordings._checks import check_date, check_name, check_values
from optimbench.recordings._files import write_whole

FORMAT_VERSION = 1
# More than a year of one recording a week.
MOST_ENTRIES = 60
MOST_BYTES = 1_000_000
_MOST_SCRIPTS = 200
_MOST_VALUES = 500
_LONGEST_MESSAGE = 500
_LEAST_S, _MOST_S = 1e-12, 1e7
# Characters of a script's SHA-256 that tell its versions apart.
_SHA_LENGTH = 12


class Time(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One step's or copy's time, as a list in the file: its lines stay short and their changes readable.

    Attributes:
        variable: The result's name in its script.
        row: The step's name, or "" for a copy.
        wall_s: Median wall time, seconds.
        iqr_s: Its interquartile range, seconds.
        kernel_s: The kernels' own time, seconds, or None on a CPU.
    """

    variable: str
    row: str
    wall_s: float
    iqr_s: float = 0.0
    kernel_s: float | None = None


class Count(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a recompile log counted.

    Attributes:
        variable: The result's name in its script.
        compiles: Successful compiles.
        recompiles: Those that a failed guard had caused.
    """

    variable: str
    compiles: int
    recompiles: int


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One script of one entry.

    Attributes:
        source: The beginning of the script's SHA-256.
        times: Its times.
        counts: Its compile counts.
    """

    source: str
    times: tuple[Time, ...] = ()
    counts: tuple[Count, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was recorded on one day.

    Attributes:
        date: When its newest script ran: ISO 8601 with a time zone.
        label: The device's name.
        versions: Of torch, CUDA, the driver, triton and this package, by name, where they are known.
        runs: By script.
    """

    date: str
    label: str
    versions: dict[str, str]
    runs: dict[str, Run]

    @property
    def day(self) -> str:
        """The date without the time of day."""
        return self.date[:10]


class History(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All entries of one device, the oldest first."""

    device: str
    entries: tuple[Entry, ...] = ()
    format_version: int = FORMAT_VERSION


def extended(history: History, recording: Recording) -> History:
    """The history with a recording in it; each script goes to the entry of the day it was run on."""
    entries = {entry.day: entry for entry in history.entries}
    dates = {name: _utc(script.environment.date) for name, script in recording.scripts.items()}
    for name in sorted(dates, key=lambda name: dates[name]):
        script = recording.scripts[name]
        day = dates[name][:10]
        run = Run(
            source=script.source_sha256[:_SHA_LENGTH],
            times=tuple(_times(recording.results[name])),
            counts=tuple(_counts(recording.results[name])),
        )
        before = entries[day].runs if day in entries else {}
        entries[day] = Entry(
            date=dates[name],
            label=recording.label,
            versions=_versions(script.environment),
            runs=before | {name: run},
        )
    newest = tuple(entries[day] for day in sorted(entries))[-MOST_ENTRIES:]
    while len(newest) > 1 and len(_encode(History(device=recording.device, entries=newest))) > MOST_BYTES:
        newest = newest[1:]
    return History(device=recording.device, entries=newest)


def load_history(path: Path, device: str) -> History:
    """Read and check a file; one that does not exist is an empty history.

    Raises:
        RecordingError: It is not as it must be.
    """
    if not path.is_file():
        return History(device=device)
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    try:
        return _decode(data, device)
    except (msgspec.MsgspecError, RecordingError, RecursionError) as error:
        raise RecordingError(f"history/{path.name}: {str(error)[:_LONGEST_MESSAGE]}") from None


def load_histories(folder: Path) -> list[History]:
    """The histories beside the recordings in a folder, by device.

    Raises:
        RecordingError: One of them is not as it must be.
    """
    return [load_history(path, path.stem) for path in sorted((folder / "history").glob("*.json"))]


def save_history(history: History, path: Path) -> None:
    """Write a history, whole or not at all.

    Raises:
        RecordingError: It holds something that `load_history` refuses.
    """
    _check(history, path.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(_encode(history), path)


def _decode(data: bytes, device: str) -> History:
    if len(data) > MOST_BYTES:
        raise RecordingError(f"more than {MOST_BYTES} bytes")
    raw = msgspec.json.decode(data)
    check_values(raw)
    history = msgspec.convert(raw, History)
    _check(history, device)
    return history


def _encode(history: History) -> bytes:
    text = msgspec.json.format(msgspec.json.encode(history, order="sorted"), indent=1).decode()
    # A time is one line: a list that holds no other, each item a text or a number. No text has a line end in it.
    return (re.sub(r"\[\n\s+[^\[\]{}]*?\n\s+\]", _on_one_line, text) + "\n").encode()


def _on_one_line(found: re.Match[str]) -> str:
    return json.dumps(json.loads(found[0]), ensure_ascii=False)


def _times(results: dict[str, Result]) -> Iterator[Time]:
    for variable, result in sorted(results.items()):
        compared = result.comparison if isinstance(result, Recommendation) else result
        if isinstance(compared, Bandwidth):
            yield Time(variable, "", _short(compared.median_s))
        rows = compared.rows if isinstance(compared, Comparison) else [compared]
        for row in rows:
            if isinstance(row, Measurement):
                kernel_s = None if row.kernel_time_s is None else _short(row.kernel_time_s)
                yield Time(variable, row.name, _short(row.median_s), _short(row.iqr_s), kernel_s)


def _counts(results: dict[str, Result]) -> Iterator[Count]:
    for variable, result in sorted(results.items()):
        if isinstance(result, RecompileLog):
            yield Count(variable, result.n_compiles, result.n_recompiles)


def _utc(date: str) -> str:
    """A date in any time zone and any form of ISO 8601 in one of each."""
    return datetime.datetime.fromisoformat(date).astimezone(datetime.UTC).isoformat(timespec="seconds")


def _short(time_s: float) -> float:
    """Four significant digits: more than a picture shows, and a third of the file."""
    return float(f"{time_s:.4g}")


def _versions(machine: Environment) -> dict[str, str]:
    names = ("torch", "cuda", "driver", "triton", "optimbench")
    return {name: value for name in names if (value := getattr(machine, name)) is not None}


def _check(history: History, device: str) -> None:
    if history.format_version != FORMAT_VERSION:
        raise RecordingError(f"format_version: is {history.format_version} (expected {FORMAT_VERSION})")
    if history.device != device:
        raise RecordingError(f"device: is {history.device[:40]!a} (expected the file's name)")
    _check_number(len(history.entries), MOST_ENTRIES, "entries")
    for index, entry in enumerate(history.entries):
        where = f"entries[{index}]"
        check_date(entry.date, f"{where}.date")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", entry.day):
            raise RecordingError(f"{where}.date: is {entry.date!a} (expected year-month-day)")
        _check_number(len(entry.runs), _MOST_SCRIPTS, f"{where}.runs")
        for name, run in entry.runs.items():
            _check_run(run, f"{where}.runs.{name}")
    days = [entry.day for entry in history.entries]
    if days != sorted(set(days)):
        raise RecordingError("entries: are not one a day, the oldest first")


def _check_run(run: Run, where: str) -> None:
    if not re.fullmatch(rf"[0-9a-f]{{{_SHA_LENGTH}}}", run.source):
        raise RecordingError(f"{where}.source: is no part of a SHA-256")
    _check_number(len(run.times) + len(run.counts), _MOST_VALUES, where)
    for time in run.times:
        check_name(time.variable, where)
        for time_s, least_s in ((time.wall_s, _LEAST_S), (time.iqr_s, 0), (time.kernel_s or 0, 0)):
            if not least_s <= time_s <= _MOST_S:
                raise RecordingError(f"{where}.times: is {time_s} s (expected {least_s:g} to {_MOST_S:g})")
    for count in run.counts:
        check_name(count.variable, where)
        if not 0 <= count.recompiles <= count.compiles <= 10**6:
            raise RecordingError(f"{where}.counts: {count.recompiles} recompiles of {count.compiles} compiles")


def _check_number(number: int, most: int, where: str) -> None:
    if number > most:
        raise RecordingError(f"{where}: {number} (expected at most {most})")
