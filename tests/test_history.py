"""The history of a device: what goes in, how much is kept, and what is refused."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import record as record_script
from optimbench import RecordedScript, Recording, RecordingError, load_recording, save_recording
from optimbench_site import history as history_module
from optimbench_site.history import (
    MOST_BYTES,
    MOST_ENTRIES,
    History,
    Time,
    extended,
    load_histories,
    load_history,
    save_history,
)
from recording_examples import SCRIPT, environment, measurement, recording

FIRST = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
DEVICE = "nvidia-h200"


def on_day(day: int, wall_s: float = 2e-4, **machine: Any) -> Recording:
    """A recording made so many days after the first."""
    fields = {"throttle_reasons": (), "date": (FIRST + datetime.timedelta(days=day)).isoformat()}
    where = environment(**fields | machine)
    made = recording()
    scripts = {
        name: RecordedScript(environment=where, source_sha256=made.scripts[name].source_sha256) for name in made.scripts
    }
    results = dict(made.results, plot_02_other={"one": measurement("eager", (wall_s / 2, wall_s, 2 * wall_s))})
    return msgspec.structs.replace(made, scripts=scripts, results=results)


def after(*recordings: Recording) -> History:
    made = History(device=DEVICE)
    for each in recordings:
        made = extended(made, each)
    return made


def test_an_entry_holds_medians_counts_and_versions() -> None:
    (entry,) = after(recording()).entries
    assert entry.day == "2026-02-03"
    assert entry.label == "NVIDIA H200"
    assert entry.versions["driver"] == "580.159"
    times = entry.runs[SCRIPT].times
    assert times == (
        Time("comparison", "eager", 2e-4, 1.5e-4, 7e-5),
        Time("comparison", "compiled", 9e-5, 1.25e-4, 5e-5),
    )
    other = entry.runs["plot_02_other"].times
    assert Time("copy", "", 0.2) in other
    assert {time.variable for time in other} == {"copy", "one", "recommendation"}
    (count,) = entry.runs[SCRIPT].counts
    assert (count.variable, count.compiles, count.recompiles) == ("log", 0, 0)


def test_days_are_kept_apart_and_one_day_once() -> None:
    made = after(on_day(7, 3e-4), on_day(0, 2e-4), on_day(7, 4e-4))
    assert [entry.day for entry in made.entries] == ["2026-01-01", "2026-01-08"]
    assert [entry.runs["plot_02_other"].times[0].wall_s for entry in made.entries] == [2e-4, 4e-4]
    assert after(on_day(0), on_day(0)) == after(on_day(0))


def test_a_day_is_one_in_utc_however_it_was_written() -> None:
    made = after(on_day(0, date="2026-02-03T01:00:00+02:00"), on_day(0, date="20260204T010000+0000"))
    assert [entry.date for entry in made.entries] == ["2026-02-02T23:00:00+00:00", "2026-02-04T01:00:00+00:00"]


def test_a_script_that_is_recorded_alone_goes_to_its_own_day() -> None:
    old, new = on_day(0, 2e-4), on_day(9, 3e-4).only(["plot_02_other"])
    made = extended(after(old), old.merged_with(new))
    assert [sorted(entry.runs) for entry in made.entries] == [[SCRIPT, "plot_02_other"], ["plot_02_other"]]


def test_the_oldest_entries_go_first() -> None:
    made = after(*[on_day(day) for day in range(MOST_ENTRIES + 5)])
    assert len(made.entries) == MOST_ENTRIES
    assert made.entries[0].day == "2026-01-06"


def test_a_file_stays_below_a_megabyte(tmp_path: Path) -> None:
    rows = {f"v{index}": measurement("a name of a step, " * 40, (1e-4, 2e-4, 4e-4)) for index in range(90)}
    made = History(device=DEVICE)
    for day in range(30):
        large = on_day(day)
        made = extended(made, msgspec.structs.replace(large, results={SCRIPT: dict(rows), "plot_02_other": {}}))
    assert 1 < len(made.entries) < 30
    assert made.entries[-1].day == "2026-01-30"
    save_history(made, tmp_path / f"{DEVICE}.json")
    assert MOST_BYTES / 2 < (tmp_path / f"{DEVICE}.json").stat().st_size <= MOST_BYTES
    assert load_history(tmp_path / f"{DEVICE}.json", DEVICE) == made


def test_a_year_of_this_site_is_small(tmp_path: Path) -> None:
    stored = load_recording(Path(record_script.__file__).parents[1] / "docs" / "recordings" / f"{DEVICE}.json")
    made = History(device=DEVICE)
    for week in range(MOST_ENTRIES):
        date = (FIRST + datetime.timedelta(weeks=week - MOST_ENTRIES)).isoformat()
        scripts = {
            name: msgspec.structs.replace(run, environment=msgspec.structs.replace(run.environment, date=date))
            for name, run in stored.scripts.items()
        }
        made = extended(made, msgspec.structs.replace(stored, scripts=scripts))
    assert len(made.entries) == MOST_ENTRIES
    save_history(made, tmp_path / f"{DEVICE}.json")
    assert load_history(tmp_path / f"{DEVICE}.json", DEVICE) == made


def test_the_file_survives_and_a_time_is_a_line(tmp_path: Path) -> None:
    made = after(on_day(0), on_day(1))
    path = tmp_path / "history" / f"{DEVICE}.json"
    save_history(made, path)
    assert load_histories(tmp_path) == [made]
    assert '\n      ["comparison", "eager", 0.0002, 0.00015, 7e-05],\n' in path.read_text()
    assert load_history(tmp_path / "nothing.json", "nothing") == History(device="nothing")
    assert load_histories(tmp_path / "nothing") == []


def test_the_stored_histories_can_be_read_and_hold_their_recordings() -> None:
    folder = Path(record_script.__file__).parents[1] / "docs" / "recordings"
    histories = {history.device: history for history in load_histories(folder)}
    for path in folder.glob("*.json"):
        stored = load_recording(path)
        assert extended(histories[stored.device], stored) == histories[stored.device]
    assert len(histories) == len(list(folder.glob("*.json")))


def _changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    raw = json.loads(msgspec.json.encode(after(on_day(0), on_day(1))))
    change(raw)
    return json.dumps(raw).encode()


def _times(raw: dict[str, Any]) -> Any:
    return raw["entries"][0]["runs"][SCRIPT]["times"]


REFUSED: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"<html>", "malformed"),
    "nothing": (b"", "truncated"),
    "deep": (b"[" * 100_000, "recursion"),
    "large": (b" " * (MOST_BYTES + 1), f"more than {MOST_BYTES} bytes"),
    "another version": (_changed(lambda raw: raw.update(format_version=2)), "format_version: is 2"),
    "another device": (_changed(lambda raw: raw.update(device="../x")), "device: is '../x'"),
    "an unknown field": (_changed(lambda raw: raw.update(colour="blue")), "colour"),
    "the same day twice": (_changed(lambda raw: raw["entries"].append(raw["entries"][1])), "one a day"),
    "too many days": (_changed(lambda raw: raw.update(entries=raw["entries"][:1] * 61)), "61 (expected at most 60)"),
    "a day to come": (
        _changed(lambda raw: raw["entries"][1].update(date="2999-01-01T00:00:00+00:00")),
        "lies in the future",
    ),
    "a date that is none": (_changed(lambda raw: raw["entries"][0].update(date="yesterday")), "'yesterday'"),
    "a week's date": (
        _changed(lambda raw: raw["entries"][0].update(date="2020-W01-1T00:00:00+00:00")),
        "year-month-day",
    ),
    "a negative time": (_changed(lambda raw: _times(raw)[0].__setitem__(2, -1e-4)), "-0.0001"),
    "a time of zero": (_changed(lambda raw: _times(raw)[0].__setitem__(2, 0)), "is 0.0 s"),
    "a time without end": (_changed(lambda raw: _times(raw)[0].__setitem__(4, 1e300)), "1e+300 s"),
    "a text for a time": (_changed(lambda raw: _times(raw)[0].__setitem__(2, "fast")), "Expected `float`"),
    "a field too many": (_changed(lambda raw: _times(raw)[0].append(1)), "length"),
    "a script's name that climbs": (
        _changed(lambda raw: raw["entries"][0]["runs"].update({"../x": {"source": "0" * 12}})),
        "cannot be used",
    ),
    "a result's name in HTML": (_changed(lambda raw: _times(raw)[0].__setitem__(0, "<b>")), "cannot be used"),
    "a step's name with a line end": (_changed(lambda raw: _times(raw)[0].__setitem__(1, "a\x1b[31m")), "U+001B"),
    "a path": (_changed(lambda raw: raw["entries"][0].update(label="/home/jo/x")), "path of a machine"),
    "a wrong hash": (
        _changed(lambda raw: raw["entries"][0]["runs"][SCRIPT].update(source="../../etc/pa")),
        "no part of a SHA-256",
    ),
    "more recompiles than compiles": (
        _changed(lambda raw: raw["entries"][0]["runs"][SCRIPT].update(counts=[["log", 1, 2]])),
        "2 recompiles of 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused(name: str, tmp_path: Path) -> None:
    content, said = REFUSED[name]
    path = tmp_path / f"{DEVICE}.json"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        load_history(path, DEVICE)
    message = str(caught.value)
    assert message.startswith(f"history/{DEVICE}.json: ")
    assert said in message
    assert len(message) < 600


def test_recording_again_keeps_what_was_measured_before(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"

    def record(new: Recording) -> int:
        save_recording(new, tmp_path / "results.json")
        return record_script.main(["--results", str(tmp_path / "results.json"), "--folder", str(folder)])

    # The first was stored before there was a history.
    folder.mkdir()
    save_recording(on_day(0, 2e-4), folder / f"{DEVICE}.json")
    assert record(on_day(7, 3e-4)) == 0
    assert record(on_day(14, 4e-4)) == 0
    (history,) = load_histories(folder)
    assert [entry.runs["plot_02_other"].times[0].wall_s for entry in history.entries] == [2e-4, 3e-4, 4e-4]
    assert load_recording(folder / f"{DEVICE}.json") == on_day(14, 4e-4)
    # A damaged history is not written over, and neither is the recording.
    path = folder / "history" / f"{DEVICE}.json"
    path.write_text("{}")
    assert record(on_day(21)) == 1
    assert path.read_text() == "{}"
    assert load_recording(folder / f"{DEVICE}.json") == on_day(14, 4e-4)


def test_a_write_that_fails_leaves_the_old_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"{DEVICE}.json"
    save_history(after(on_day(0)), path)
    before = path.read_bytes()
    monkeypatch.setattr(history_module, "MOST_ENTRIES", 1)
    with pytest.raises(RecordingError, match=r"2 \(expected at most 1\)"):
        save_history(after(on_day(0)).__class__(device=DEVICE, entries=after(on_day(0)).entries * 2), path)
    assert path.read_bytes() == before
