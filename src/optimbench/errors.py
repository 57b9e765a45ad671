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
    """The base of all errors of optimbench."""


class InvalidArgumentError(OptimBenchError, ValueError):
    """An argument is not what the function can work with."""


class NoGradientError(OptimBenchError, ValueError):
    """No parameter has a gradient, so a step would do nothing and its time would mean nothing."""


class RecipeError(OptimBenchError, ValueError):
    """A recipe cannot be used with this optimizer on this device; the message says why."""


class RecordingError(OptimBenchError, ValueError):
    """A recording cannot be read; the message names the place inside the file."""


class DeviceError(OptimBenchError, RuntimeError):
    """There is no device that can do what was asked."""


class CompilerNotFoundError(OptimBenchError, RuntimeError):
    """Inductor needs a C++ compiler on this machine and found none."""


class CaptureError(OptimBenchError, RuntimeError):
    """Recompiles cannot be captured now, for example inside another capture."""


class RankError(OptimBenchError, RuntimeError):
    """One of several processes failed, hung or cannot be told from the others; the message names its rank."""


class StaleGradientError(OptimBenchError, RuntimeError):
    """A gradient moved or vanished after a CUDA graph had been captured on its memory."""
