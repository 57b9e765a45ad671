"""Recordings on disk: written whole or not at all."""

import contextlib
import getpass
import os
import re
import secrets
import socket
from pathlib import Path

from optimbench.errors import RecordingError
from optimbench.recordings._decoding import MAX_FILE_BYTES, decode, encode
from optimbench.recordings._recording import Recording

# Names that machines and accounts share all over the world, and that results may hold as words.
_TELLS_NOTHING = {"build", "builder", "docker", "localhost", "nobody", "root", "runner", "ubuntu", "user"}
_SHORTEST_NAME = 4


def load_recording(path: Path | str) -> Recording:
    """Read a recording and check everything in it.

    A field that has a default may be missing: the file may be older than the field. Unknown fields are refused.

    Args:
        path: The file, as `save_recording` writes it.

    Raises:
        RecordingError: The file cannot be read, is too large, or something in it is not as it must be; the message
            names the place, for example "results.plot_01_adam.comparison.rows[2].median_s".

    Example:
        >>> import pathlib, tempfile
        >>> import optimbench as ob
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "my-gpu.json")
        ...     ob.save_recording(ob.Recording(device="my-gpu", scripts={}, results={}), path)
        ...     ob.load_recording(path).device
        'my-gpu'
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise RecordingError(f"{path.name}: is no file")
        with path.open("rb") as file:
            # One byte more than is allowed tells that there is more, without reading all of it.
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise RecordingError(f"{path.name}: {error.strerror}") from error
    try:
        return decode(data)
    except RecordingError as error:
        raise RecordingError(f"{path.name}: {error}") from None


def load_recordings(folder: Path | str) -> list[Recording]:
    """Read all recordings in a folder, sorted by device; a folder that does not exist holds none.

    Raises:
        RecordingError: One of them is not as it must be, or its file is not named after its device.
    """
    recordings = []
    for path in sorted(Path(folder).glob("*.json")):
        recording = load_recording(path)
        if path.stem != recording.device:
            raise RecordingError(f"{path.name}: device: is {recording.device!r} (expected the file's name)")
        recordings.append(recording)
    return recordings


def save_recording(recording: Recording, path: Path | str) -> None:
    """Write a recording; whoever reads the file finds the old content or the new one, whole.

    Args:
        recording: Its results may not hold a path, or the name of this machine or user.
        path: The file, in a folder that is there.

    Raises:
        RecordingError: The recording holds something that `load_recording` refuses, or this machine's or user's name.

    Example:
        >>> import pathlib, tempfile
        >>> import optimbench as ob
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "my-gpu.json")
        ...     ob.save_recording(ob.Recording(device="my-gpu", scripts={}, results={}), path)
        ...     path.read_text().split()[:3]
        ['{', '"device":', '"my-gpu",']
    """
    path = Path(path)
    try:
        data = encode(recording)
        decode(data)
        _refuse_names(data.decode())
    except RecordingError as error:
        raise RecordingError(f"{path.name} is not written: {error}") from None
    write_whole(data, path)


def write_whole(data: bytes, path: Path) -> None:
    """Write a file; whoever reads it finds the old content or the new one."""
    # In the same folder, so that replacing is one step of the file system. tempfile would make it private.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with fresh.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _refuse_names(text: str) -> None:
    names = {"the name of this machine": socket.gethostname()}
    # An account may have no name, for example in a container.
    with contextlib.suppress(OSError, KeyError):
        names["the name of this user"] = getpass.getuser()
    for what, name in names.items():
        if len(name) < _SHORTEST_NAME or name.lower() in _TELLS_NOTHING:
            continue
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE):
            raise RecordingError(f"it holds {what}, {name!r}")
