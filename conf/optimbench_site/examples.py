"""What happens around a tutorial: the same state before each, and no quiet exit.

A page must give the same counts alone and in any order, so everything that one page may leave behind is put
back: compiled code, torch's logging and settings, random numbers, CUDA memory. matplotlib's defaults are
sphinx-gallery's own business.
"""

import functools
import gc
import importlib
import os
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx_gallery import gen_rst

SEED = 0


def reset_state(gallery_conf: dict[str, Any], fname: str | None) -> None:  # noqa: ARG001 - given by sphinx-gallery.
    """Put back the state that one tutorial shares with the next; called before and after each."""
    import numpy as np
    import torch

    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - a tutorial may use the global generator.
    torch.manual_seed(SEED)
    torch._dynamo.reset()
    # reset() leaves the counts of what was compiled.
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
    _restore_settings()
    if "TORCH_LOGS" not in os.environ:
        # Without arguments: torch's defaults, written to the console and to no tutorial's page.
        torch._logging.set_logs()  # type: ignore[attr-defined]
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


@functools.cache
def _settings() -> dict[str, tuple[Any, dict[str, Any]]]:
    """torch.compile's settings as they are when this is first called, which is before the first tutorial."""
    modules = [importlib.import_module(f"torch.{name}.config") for name in ("_dynamo", "_inductor")]
    return {module.__name__: (module, module.get_config_copy()) for module in modules}


def _restore_settings() -> None:
    for module, wanted in _settings().values():
        for name, value in module.get_config_copy().items():
            if value != wanted[name]:
                setattr(module, name, wanted[name])


def setup(app: Sphinx) -> dict[str, bool]:
    """Refuse an exit from a tutorial: it would end the build with the tutorial's own status and no site."""
    app.setup_extension("sphinx_gallery.gen_gallery")
    gen_rst.execute_script = _refusing_exit(gen_rst.execute_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _refusing_exit(execute: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(execute, "__wrapped__"):  # A second build in the same process.
        return execute

    @functools.wraps(execute)
    def execute_or_fail(blocks: Any, script_vars: dict[str, Any], *rest: Any) -> Any:
        try:
            return execute(blocks, script_vars, *rest)
        except SystemExit as error:
            script = script_vars["src_file"]
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == script]
            where = f"{Path(script).name}:{lines[-1] if lines else '?'}"
            raise ExtensionError(
                f"{where} asked to exit with status {error.code!r} (expected a tutorial that runs to its end)"
            ) from error

    return execute_or_fail
