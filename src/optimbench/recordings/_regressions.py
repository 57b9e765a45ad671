"""Two recordings of a device compared from the command line: what is slower by more than is allowed."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from optimbench.errors import InvalidArgumentError
from optimbench.recordings._differences import Difference, differences
from optimbench.recordings._files import load_recording

# A kernel's time repeats within 1 % from run to run, so a tenth is much.
THRESHOLD = 1.1
# The host's part of a step wanders by up to 2x within minutes on a GPU machine, and the wall time with it.
HOST_THRESHOLD = 2.0


class Regressions(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two recordings, sorted by what a reader wants to know first.

    Attributes:
        slower: Times beyond the threshold.
        changed: Versions, scripts, counts, and what is new or gone; the same line for several scripts once.
        other: Times that clearly differ, within the threshold or for the better.
        within_noise: Times whose interval holds one.
    """

    slower: tuple[Difference, ...]
    changed: tuple[Difference, ...]
    other: tuple[Difference, ...]
    within_noise: tuple[Difference, ...]

    def __str__(self) -> str:
        lines = []
        for title, found in (
            ("Slower beyond the threshold", self.slower),
            ("Changed", self.changed),
            ("Other times that differ", self.other),
        ):
            if found:
                lines += [f"{title}:", *[f"  {difference}" for difference in found], ""]
        return "\n".join([*lines, f"{len(self.slower)} times slower, {len(self.within_noise)} times within noise."])


def find_regressions(
    old: Path | str, new: Path | str, *, threshold: float = THRESHOLD, host_threshold: float = HOST_THRESHOLD
) -> Regressions | None:
    """Compare two files.

    Args:
        old: A recording, or a folder of recordings: then the one of the new recording's device.
        new: A recording.
        threshold: The factor by which a kernel's, a copy's or on a CPU any time may be slower.
        host_threshold: The same for wall and host times on a GPU.

    Returns:
        The differences, or None where the folder holds no recording of this device.

    Raises:
        InvalidArgumentError: A threshold is below one, or the recordings are of two devices.
        RecordingError: A file cannot be read.
    """
    for name, factor in (("threshold", threshold), ("host_threshold", host_threshold)):
        if not 1 <= factor < float("inf"):
            raise InvalidArgumentError(f"{name} is {factor} (expected a factor of at least 1)")
    after = load_recording(new)
    path = Path(old)
    if path.is_dir():
        path /= f"{after.device}.json"
        if not path.exists():
            return None
    before = load_recording(path)
    if before.device != after.device:
        raise InvalidArgumentError(
            f"the recordings are of two devices, {before.device} and {after.device} (expected one)"
        )
    found = differences(before, after)
    times = [difference for difference in found if difference.ratio is not None]
    slower = [d for d in times if d.is_slower_than(threshold if d.is_steady else host_threshold)]
    noise = [d for d in times if d.ratio is not None and not (d.ratio.is_faster or d.ratio.is_slower)]
    return Regressions(
        slower=tuple(slower),
        changed=_once([difference for difference in found if difference.ratio is None]),
        other=tuple(d for d in times if d not in slower and d not in noise),
        within_noise=tuple(noise),
    )


def _once(found: Sequence[Difference]) -> tuple[Difference, ...]:
    """The same said of several scripts becomes one line."""
    places: dict[str, list[str]] = {}
    for difference in found:
        places.setdefault(difference.said, []).append(difference.where)
    return tuple(Difference(where=_listed(where), said=said) for said, where in places.items())


def _listed(places: Iterable[str]) -> str:
    first, *rest = places
    return f"{first} and {len(rest)} more" if rest else first
