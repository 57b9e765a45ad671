"""Which device to measure on, and why."""

from typing import NamedTuple

import torch

from optimbench.errors import CompilerNotFoundError, DeviceError, InvalidArgumentError

__all__ = ["PickedDevice", "missing_compiler", "pick_device", "require_cuda"]

# Inductor's CUDA backend is triton, which needs Volta or newer.
LEAST_CAPABILITY = (7, 0)


class PickedDevice(NamedTuple):
    """A device and the reason for it, as `pick_device` gives them.

    Attributes:
        device: The device to measure on.
        reason: Why, in words, to be shown beside the numbers.

    Example:
        >>> import optimbench as ob
        >>> picked = ob.pick_device()
        >>> picked.device.type in ("cuda", "cpu") and len(picked.reason) > 0
        True
    """

    device: torch.device
    reason: str


def pick_device() -> PickedDevice:
    """The current CUDA device if torch.compile can use it, else the CPU; and the reason in words.

    Example:
        >>> import optimbench as ob
        >>> device, reason = ob.pick_device()
        >>> device.type in ("cuda", "cpu")
        True
    """
    problem = _cuda_problem()
    if problem is not None:
        return PickedDevice(torch.device("cpu"), problem)
    index = torch.cuda.current_device()
    major, minor = torch.cuda.get_device_capability(index)
    needed = ".".join(map(str, LEAST_CAPABILITY))
    reason = f"{torch.cuda.get_device_name(index)} has compute capability {major}.{minor} ({needed} is needed)"
    return PickedDevice(torch.device("cuda", index), reason)


def require_cuda() -> torch.device:
    """The current CUDA device, where nothing but a GPU will do.

    Raises:
        DeviceError: There is no CUDA device that torch.compile can use; the message says why.

    Example:
        >>> import optimbench as ob
        >>> try:
        ...     found = ob.require_cuda().type
        ... except ob.DeviceError as error:
        ...     found = f"a CUDA device is required: {str(error) != ''}"
        >>> found in ("cuda", "a CUDA device is required: True")
        True
    """
    problem = _cuda_problem()
    if problem is not None:
        raise DeviceError(f"a CUDA device is required: {problem}")
    return torch.device("cuda", torch.cuda.current_device())


def usable_device(device: torch.device | str) -> torch.device:
    """The CPU, or a CUDA device that is there: what can be measured.

    Raises:
        InvalidArgumentError: It is neither the CPU nor a CUDA device.
        DeviceError: There is no such CUDA device.
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        found = torch.device("meta")
    if found.type not in ("cpu", "cuda") or (found.type == "cpu" and found.index):
        raise InvalidArgumentError(f"device is {str(device)!r} (expected a CUDA device or the CPU)")
    # Torch keeps an index in one byte: "cuda:256" would be the first device, and "cuda:999" one below zero.
    is_other = isinstance(device, str) and str(found) != device
    if found.type == "cuda" and (is_other or not 0 <= (found.index or 0) < torch.cuda.device_count()):
        why = _cuda_problem() or f"torch sees {torch.cuda.device_count()}"
        raise DeviceError(f"there is no CUDA device {device}: {why}")
    return found


def missing_compiler(error: Exception) -> CompilerNotFoundError | None:
    """The error to raise instead where Inductor failed because it found no C++ compiler, else None."""
    from torch._inductor.exc import InvalidCxxCompiler

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, InvalidCxxCompiler) or InvalidCxxCompiler.__name__ in str(cause):
            return CompilerNotFoundError(
                "torch.compile needs a C++ compiler on a CPU and finds none:"
                " install one (for example g++) or name it in the environment variable CXX"
            )
        cause = cause.__cause__ or getattr(cause, "inner_exception", None)
    return None


def _cuda_problem() -> str | None:
    """Why CUDA cannot be used, or None if it can."""
    if torch.version.cuda is None:
        return "this build of torch has no CUDA"
    if not torch.cuda.is_available():
        return f"torch is built for CUDA {torch.version.cuda}, but no CUDA device or driver is usable"
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) < LEAST_CAPABILITY:
        name, needed = torch.cuda.get_device_name(), ".".join(map(str, LEAST_CAPABILITY))
        return f"{name} has compute capability {major}.{minor}, and torch.compile needs {needed}"
    return None
