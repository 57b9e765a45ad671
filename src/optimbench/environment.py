"""The machine that a result came from: device, versions, commit and date."""

import datetime
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from optimbench import _format
from optimbench._gpu_state import GpuState, read_gpu_state
from optimbench.results import Result

__all__ = ["Environment", "collect_environment"]

# Names the commit where the sources were copied without their git folder, as onto a GPU machine.
COMMIT_VARIABLE = "OPTIMBENCH_COMMIT"


class Environment(Result, tag="environment", frozen=True, kw_only=True):
    """Where a result was measured. Holds no host name, no user name and no path.

    Attributes:
        device: "cuda" or "cpu".
        device_name: The GPU's name, or the processor's on a CPU.
        device_reason: Why this device was picked, in words.
        capability: CUDA compute capability, for example "9.0"; None on a CPU.
        memory_bytes: Bytes of the GPU's memory, or None on a CPU.
        driver: Version of the GPU's driver, or None where it is not known.
        torch: Version of torch.
        cuda: Version of CUDA that torch was built with, or None.
        triton: Version of triton, or None where it is not installed.
        python: Version of Python.
        cpu: The processor's name.
        cpu_count: Processors this process may use.
        num_threads: CPU threads torch computes with.
        os: Operating system and architecture.
        optimbench: Version of this package.
        commit: Commit of the sources, twelve characters, or None where it is not known.
        commit_is_dirty: Whether tracked files differed from that commit.
        date: When it was collected: ISO 8601, UTC, to the second.
        throttle_reasons: Why the GPU's clocks were lowered, in words.
        other_processes: Other processes on the GPU, or None where that is not known.
        world_size: Processes that measured together.
        backend: What connects them, as `torch.distributed` names it, for example "nccl"; None for a process alone.

    Example:
        >>> import optimbench as ob
        >>> machine = ob.collect_environment()
        >>> machine.label == f"{machine.device_name} · {machine.date[:10]} · torch {machine.torch}"
        True
    """

    caption = "Machine"

    device: str
    device_name: str
    device_reason: str
    torch: str
    python: str
    cpu: str
    cpu_count: int
    num_threads: int
    os: str
    optimbench: str
    date: str
    capability: str | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    triton: str | None = None
    commit: str | None = None
    commit_is_dirty: bool = False
    throttle_reasons: tuple[str, ...] = ()
    other_processes: int | None = None
    world_size: int = 1
    backend: str | None = None

    @property
    def label(self) -> str:
        """Device, date and torch in one line, for example "NVIDIA H200 · 2026-01-31 · torch 2.11.0"."""
        ranks = "" if self.backend is None else f" · {self._ranks}"
        return f"{self.device_name}{ranks} · {self.date[:10]} · torch {self.torch}"

    @property
    def _ranks(self) -> str:
        return f"{self.world_size} rank{'' if self.world_size == 1 else 's'} ({self.backend})"

    def headers_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """A row a property that is known."""
        memory = None if self.memory_bytes is None else _format.byte_count(self.memory_bytes)
        capability = None if self.capability is None else f"compute capability {self.capability}"
        details = ", ".join(part for part in (memory, capability) if part)
        dirty = " with local changes" if self.commit_is_dirty else ""
        rows = [
            ("device", f"{self.device_name}{f' ({details})' if details else ''}"),
            ("picked because", self.device_reason),
            ("processes", None if self.backend is None else self._ranks),
            ("driver", self.driver),
            ("torch", self.torch),
            ("CUDA", self.cuda),
            ("triton", self.triton),
            ("Python", self.python),
            ("processor", f"{self.cpu}, {self.cpu_count} usable, {self.num_threads} torch threads"),
            ("system", self.os),
            ("optimbench", self.optimbench),
            ("commit", None if self.commit is None else self.commit + dirty),
            ("date", self.date),
        ]
        return ["what", "value"], [[what, value] for what, value in rows if value is not None]

    def notes(self) -> list[str]:
        """What was wrong with the GPU at that moment."""
        said = []
        if self.throttle_reasons:
            said.append(f"The clocks were lowered ({', '.join(self.throttle_reasons)}): let it cool, measure again.")
        if self.other_processes:
            said.append(f"{self.other_processes} other processes were on the GPU: measure on one that is free.")
        return said


def collect_environment(repository: Path | None = None) -> Environment:
    """Describe this machine as it is now.

    Args:
        repository: A git checkout whose commit is named; by default the one this package lies in, if any.
            The environment variable OPTIMBENCH_COMMIT names the commit where the checkout has no git folder.

    Returns:
        The device that `pick_device` picks, versions, commit and date.

    Example:
        >>> import optimbench as ob
        >>> ob.collect_environment().device in ("cuda", "cpu")
        True
    """
    import torch

    from optimbench import __version__
    from optimbench.devices import pick_device

    device, reason = pick_device()
    cpu = _cpu_name()
    in_group = torch.distributed.is_available() and torch.distributed.is_initialized()
    commit, is_dirty = _commit(repository or Path(__file__).parent)
    gpu, name, capability, memory_bytes = GpuState(), cpu, None, None
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gpu = read_gpu_state(str(properties.uuid))
        name, memory_bytes = properties.name, properties.total_memory
        capability = f"{properties.major}.{properties.minor}"
    return Environment(
        device=device.type,
        device_name=name,
        device_reason=reason,
        capability=capability,
        memory_bytes=memory_bytes,
        driver=gpu.driver,
        torch=str(torch.__version__),  # A string of its own class, which msgspec does not encode.
        cuda=torch.version.cuda,
        triton=_triton_version(),
        python=platform.python_version(),
        cpu=cpu,
        cpu_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        num_threads=torch.get_num_threads(),
        os=_os_name(),
        optimbench=__version__,
        commit=commit,
        commit_is_dirty=is_dirty,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        throttle_reasons=gpu.throttle_reasons,
        other_processes=gpu.other_processes,
        world_size=torch.distributed.get_world_size() if in_group else 1,
        backend=torch.distributed.get_backend() if in_group else None,
    )


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    return platform.processor() or platform.machine()


def _os_name() -> str:
    # The distribution's own name, without the kernel's release, which can tell where a machine stands.
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = platform.system()
    return f"{system}, {platform.machine()}"


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def _commit(folder: Path) -> tuple[str | None, bool]:
    given = os.environ.get(COMMIT_VARIABLE)
    if given:
        return given[:12], False
    git = shutil.which("git")
    if git is None:
        return None, False
    # An ignored folder inside some other checkout, for example a virtual environment, has no commit of ours.
    if _git(git, folder, "check-ignore", "-q", ".") == "":
        return None, False
    commit = _git(git, folder, "rev-parse", "HEAD")
    status = _git(git, folder, "status", "--porcelain", "--untracked-files=no")
    return (commit[:12], bool(status)) if commit else (None, False)


def _git(git: str, folder: Path, *words: str) -> str | None:
    done = subprocess.run([git, *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
