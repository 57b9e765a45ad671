"""What the driver says of a GPU: version, throttling, who else is on it. Works without nvidia-ml-py too."""

import os
from typing import Any

import msgspec

# Reasons that lower the clocks under load. The others (idle, a clock set by an application or by the user,
# the display) are states of a healthy GPU and say nothing against a measurement.
_THROTTLE_REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "software thermal slowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's view of one GPU at one moment.

    Attributes:
        driver: The driver's version, or None where it cannot be asked.
        throttle_reasons: Why the clocks are lower than they could be, in words.
        other_processes: Compute processes on the GPU besides this one, or None where that is not told.
    """

    driver: str | None = None
    throttle_reasons: tuple[str, ...] = ()
    other_processes: int | None = None


def read_gpu_state(uuid: str) -> GpuState:
    """Ask the driver about the GPU with this UUID; an empty state without nvidia-ml-py or driver."""
    try:
        import pynvml
    except ImportError:
        return GpuState()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return GpuState()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        return GpuState(
            driver=_text(pynvml.nvmlSystemGetDriverVersion()),
            throttle_reasons=_throttle_reasons(pynvml, handle),
            other_processes=_other_processes(pynvml, handle),
        )
    except pynvml.NVMLError:
        return GpuState()
    finally:
        pynvml.nvmlShutdown()


def _throttle_reasons(pynvml: Any, handle: Any) -> tuple[str, ...]:
    try:
        bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    except pynvml.NVMLError:
        return ()
    return tuple(words for name, words in _THROTTLE_REASONS.items() if bits & getattr(pynvml, name, 0))


def _other_processes(pynvml: Any, handle: Any) -> int | None:
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return None
    # Inside a container the driver may report this process under another id, or none at all: then one
    # process is taken to be this one.
    others = [process for process in processes if process.pid != os.getpid()]
    return len(others) if len(others) < len(processes) else max(0, len(others) - 1)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
