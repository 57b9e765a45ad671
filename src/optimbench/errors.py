"""Every error that optimbench raises.

Each leaf is an `OptimBenchError` and also the built-in error that fits, so `except ValueError` works too.
A message says what is wrong, where, what was got and what was expected.
"""

__all__ = [
    "CaptureError",
    "CompilerNotFoundError",
    "DeviceError",
    "InvalidArgumentError",
    "NoGradientError",
    "OptimBenchError",
    "RankError",
    "RecipeError",
    "RecordingError",
    "StaleGradientError",
]


class OptimBenchError(Exception):
    """The base of all errors of optimbench.

    Example:
        >>> import optimbench as ob
        >>> try:
        ...     ob.make_parameters("no such workload")
        ... except ob.OptimBenchError as error:
        ...     print(type(error).__name__)
        InvalidArgumentError
    """


class InvalidArgumentError(OptimBenchError, ValueError):
    """An argument is not what the function can work with.

    Example:
        >>> import optimbench as ob
        >>> ob.make_parameters("many_small", scale=2)
        Traceback (most recent call last):
            ...
        optimbench.errors.InvalidArgumentError: scale is 2 (expected more than 0 and at most 1)
    """


class NoGradientError(OptimBenchError, ValueError):
    """No parameter has a gradient, so a step would do nothing and its time would mean nothing.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(4))
        >>> ob.measure(torch.optim.SGD([weight]).step, name="SGD")
        Traceback (most recent call last):
            ...
        optimbench.errors.NoGradientError: ...
    """


class RecipeError(OptimBenchError, ValueError):
    """A recipe cannot be used with this optimizer on this device; the message says why.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(4))
        >>> ob.build_step(torch.optim.LBFGS([weight]), "compiled")
        Traceback (most recent call last):
            ...
        optimbench.errors.RecipeError: recipe 'compiled' cannot be used: torch disables torch.compile for LBFGS
    """


class RecordingError(OptimBenchError, ValueError):
    """A recording cannot be read; the message names the place inside the file.

    Example:
        >>> import optimbench as ob
        >>> ob.load_recording("gone.json")
        Traceback (most recent call last):
            ...
        optimbench.errors.RecordingError: gone.json: is no file
    """


class DeviceError(OptimBenchError, RuntimeError):
    """There is no device that can do what was asked.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> try:
        ...     device = ob.require_cuda()
        ... except ob.DeviceError as error:
        ...     device = torch.device("cpu")  # The error says why.
        >>> device.type in ("cuda", "cpu")
        True
    """


class CompilerNotFoundError(OptimBenchError, RuntimeError):
    """Inductor needs a C++ compiler on this machine and found none.

    Example:
        >>> import optimbench as ob
        >>> def take_first(step):
        ...     try:
        ...         step()
        ...     except ob.CompilerNotFoundError:
        ...         print("install g++, or use a recipe that is not compiled")
        >>> take_first(lambda: None)
    """


class CaptureError(OptimBenchError, RuntimeError):
    """Recompiles cannot be captured now, for example inside another capture.

    Example:
        >>> import optimbench as ob
        >>> with ob.capture_recompiles() as capture:
        ...     capture.log
        Traceback (most recent call last):
            ...
        optimbench.errors.CaptureError: the block has not ended: read capture.log after the with statement
    """


class RankError(OptimBenchError, RuntimeError):
    """One of several processes failed, hung or cannot be told from the others; the message names its rank.

    Example:
        >>> import optimbench as ob
        >>> ob.compare_ranks({"sum": lambda: sum(range(99))}, baseline="sum")
        Traceback (most recent call last):
            ...
        optimbench.errors.RankError: ...
    """


class StaleGradientError(OptimBenchError, RuntimeError):
    """A gradient moved or vanished after a CUDA graph had been captured on its memory.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(4))
        >>> optimizer = torch.optim.SGD([weight], lr=0.5)
        >>> step = ob.build_step(optimizer, "flat_fused")
        >>> weight.sum().backward()
        >>> step()
        >>> optimizer.zero_grad()  # It sets gradients to None; step.zero_grad() keeps them where they are.
        >>> step()
        Traceback (most recent call last):
            ...
        optimbench.errors.StaleGradientError: ...
    """
