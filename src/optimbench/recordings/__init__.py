"""Results with the machine they came from, kept as one JSON file a device.

A file is read without trust: it may come from a stranger's machine. Everything in it is checked before any of it is
used, and an error names the place inside the file. Neither reading nor comparing needs torch.
"""

from optimbench.recordings._differences import Difference, differences
from optimbench.recordings._files import load_recording, load_recordings, save_recording
from optimbench.recordings._recording import RecordedScript, Recording, device_slug, source_sha256
from optimbench.recordings._regressions import HOST_THRESHOLD, THRESHOLD, Regressions, find_regressions

__all__ = [
    "HOST_THRESHOLD",
    "THRESHOLD",
    "Difference",
    "RecordedScript",
    "Recording",
    "Regressions",
    "device_slug",
    "differences",
    "find_regressions",
    "load_recording",
    "load_recordings",
    "save_recording",
    "source_sha256",
]
