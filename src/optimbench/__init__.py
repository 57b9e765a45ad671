"""Measure one step of a PyTorch optimizer: wall, host and kernel time apart, and every recompile in words.

Names are imported when first used, so that `import optimbench` takes milliseconds and needs no torch.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from optimbench.devices import PickedDevice as PickedDevice
    from optimbench.devices import pick_device as pick_device
    from optimbench.devices import require_cuda as require_cuda
    from optimbench.environment import Environment as Environment
    from optimbench.environment import collect_environment as collect_environment
    from optimbench.errors import OptimBenchError as OptimBenchError
    from optimbench.recompiles import capture_recompiles as capture_recompiles
    from optimbench.results import Comparison as Comparison
    from optimbench.results import Measurement as Measurement
    from optimbench.results import RecompileLog as RecompileLog
    from optimbench.results import Table as Table
    from optimbench.timing import compare as compare
    from optimbench.timing import measure as measure

_MODULE_OF = {
    **dict.fromkeys(["PickedDevice", "pick_device", "require_cuda"], "devices"),
    **dict.fromkeys(["Environment", "collect_environment"], "environment"),
    **dict.fromkeys(["OptimBenchError"], "errors"),
    **dict.fromkeys(["capture_recompiles"], "recompiles"),
    **dict.fromkeys(["Comparison", "Measurement", "RecompileLog", "Table"], "results"),
    **dict.fromkeys(["compare", "measure"], "timing"),
}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - sorted() gives a list.


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'optimbench' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"optimbench.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
