"""What happens around a tutorial: each is executed in a process of its own, forked from one that executes none.

So each starts in the same state, alone or after others, in any order: compiled code, torch's logging and settings,
memory on the GPU. And none can take the build with it: where one raises, exits, dies or hangs, the others are executed,
then the build fails before it has written a page, and says what happened where.
"""

import functools
import importlib
import inspect
import mmap
import os
import random
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx_gallery import gen_rst

from optimbench_site.kept_outputs import can_keep
from optimbench_site.page_process import Ended, call, frames_of, is_barred_from_gpu

SEED = 0
# Seconds that one tutorial may take. On two CPU cores the longest takes about two minutes.
LIMIT_VARIABLE = "OPTIMBENCH_PAGE_LIMIT_S"
DEFAULT_LIMIT_S = 600.0
# Seconds between two signs of life.
_SIGN_OF_LIFE_S = 30.0
# Lines of a tutorial's output in the report.
_LINES = 15
# Importing these takes seconds and changes nothing else, so it is done once, not in every process.
_IMPORTED_ONCE = ("matplotlib.pyplot", "torch._dynamo", "torch._inductor.compile_fx")

logger = logging.getLogger(__name__)


def seed(gallery_conf: dict[str, Any], fname: str | None) -> None:  # noqa: ARG001 - given by sphinx-gallery.
    """Give each tutorial the same random numbers; called before each, in its process."""
    import numpy as np
    import torch

    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - a tutorial may use the global generator.
    torch.manual_seed(SEED)


class Pages:
    """The tutorials of one build."""

    def __init__(self) -> None:
        """None yet."""
        self.total = self.done = 0
        self.reports: list[str] = []
        self.original: Callable[..., Any] = inspect.unwrap(gen_rst.generate_file_rst)
        # The first and the last line of the block that is being executed, written in the tutorial's process.
        self._block = mmap.mmap(-1, struct.calcsize("ii"))

    def count(self, app: Sphinx) -> None:
        """Find out how many there are, and whether they can be executed from here."""
        conf = app.config.sphinx_gallery_conf
        scripts = (app.srcdir / conf["examples_dirs"]).rglob("*.py")
        self.total = sum(gen_rst.executable_script(str(path), conf) for path in scripts)
        limit_s()  # Fail over it now.

    def generate(self, fname: Any, target_dir: Any, src_dir: Any, gallery_conf: dict[str, Any]) -> Any:
        """What sphinx-gallery calls for each tutorial; what it would return itself."""
        script, target = Path(os.path.normpath(Path(src_dir, fname))), Path(target_dir, fname)
        plainly = functools.partial(self.original, fname, target_dir, src_dir)
        if not gen_rst.executable_script(str(script), gallery_conf):
            return _apart(functools.partial(plainly, gallery_conf))
        self.done += 1
        page = f"{script.parent.name}/{script.stem}"
        sum_of_last_run = Path(f"{target}.md5")
        if not gallery_conf["run_stale_examples"] and _is_current(script, sum_of_last_run, target):
            self._say(page, "unchanged")
            return _apart(functools.partial(plainly, gallery_conf))
        # sphinx-gallery writes the first before it writes the second: a kill between them must not leave a page that
        # counts as finished.
        sum_of_last_run.unlink(missing_ok=True)
        target.with_suffix(".rst").unlink(missing_ok=True)
        if can_keep(script, target, gallery_conf):
            self._say(page, "same code, so its outputs are kept")
            return _apart(functools.partial(plainly, gallery_conf))
        _import_once()
        self._block[:] = bytes(len(self._block))
        clock = _Clock(lambda so_far_s: self._say(page, f"{self._lines()}, {so_far_s:.0f} s so far"))
        with tempfile.TemporaryDirectory(prefix="tutorial-") as temporary:
            execute = functools.partial(self._execute, functools.partial(plainly, gallery_conf), temporary)
            ended = call(execute, limit_s(), clock.tick)
        if not ended.problem:
            answer, records = ended.answer
            text = answer[-1].get("formatted_exception", "")
            for record in records:
                if not text:  # What else is said of a failure is in our report.
                    logger.handle(record)
            ended = _raised(ended, text) if text else ended
        self._say(page, f"{clock.seconds():.1f} s{', FAILED' if ended.problem else ''}")
        if not ended.problem:
            return answer
        report = self._report(page, script, ended)
        self.reports.append(report)
        logger.info("%s", report)
        # A page without output takes its place, so that sphinx-gallery goes on.
        *rest, found = _apart(functools.partial(plainly, {**gallery_conf, "plot_gallery": False}))
        return *rest, {**found, "formatted_exception": report}

    def fail(self, app: Sphinx) -> None:  # noqa: ARG002 - given by Sphinx.
        """Called when all have been executed and no page has been written.

        Raises:
            ExtensionError: Some have failed; the message says which, where and why.
        """
        if self.reports:
            head = f"{len(self.reports)} of {self.total} tutorials failed, so no page is written:"
            raise ExtensionError("\n\n".join([head, *self.reports]))

    def _execute(self, generate: Callable[[], Any], temporary: str, say: Callable[[str], None]) -> Any:
        """Runs in the tutorial's process."""
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        cache_dir()  # From here on it is where it is now, for all tutorials.
        # Other temporary files go with the tutorial, however it ends.
        tempfile.tempdir = os.environ["TMPDIR"] = temporary
        write, execute = gen_rst._LoggingTee.write, gen_rst.execute_code_block

        def write_and_say(tee: Any, text: str) -> None:
            say(text)
            write(tee, text)

        def execute_block(compiler: Any, block: Any, *rest: Any) -> Any:
            if block.type == "code":
                code = block.content.rstrip("\n")
                first = block.lineno + len(code) - len(code.lstrip("\n"))
                self._block[:] = struct.pack("ii", first, block.lineno + code.count("\n"))
            return execute(compiler, block, *rest)

        gen_rst._LoggingTee.write, gen_rst.execute_code_block = write_and_say, execute_block
        return _collected(generate)

    def _lines(self) -> str:
        first, last = struct.unpack("ii", self._block[:])
        return f"lines {first} to {last}" if first else "before its first block"

    def _report(self, page: str, script: Path, ended: Ended) -> str:
        at = [line for name, line in ended.stack if name == str(script)]
        where = f"{page}.py, {self._lines()}" + (f", at line {at[-1]}" if at else "")
        said = [f"    | {line}" for line in ended.output.rstrip().splitlines()[-_LINES:]]
        problem = ended.problem + (f" ({LIMIT_VARIABLE} sets the limit)" if "had not ended" in ended.problem else "")
        return "\n".join([f"{where}: {problem}", *(said or ["    (it had written nothing)"])])

    def _say(self, page: str, how: str) -> None:
        # On a terminal sphinx-gallery's own line has no end yet.
        logger.info("%s%d of %d: %s, %s", "\n" if sys.stdout.isatty() else "", self.done, self.total, page, how)


def _apart(generate: Callable[[], Any]) -> Any:
    """Make a page that executes nothing, in a process of its own where torch can use a GPU.

    For its links sphinx-gallery imports what the page names, and those imports may bar from the GPU what is forked
    later.
    """
    import torch

    if torch.version.cuda is None:
        return generate()
    _import_once()  # Else each would import the same.
    ended = call(lambda _: _collected(generate), limit_s(), lambda: None)
    if ended.problem:
        raise ExtensionError(f"{ended.problem}\n{ended.output}")
    answer, records = ended.answer
    for record in records:
        logger.handle(record)
    return answer


def _collected(generate: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """What it returns, and what it says to Sphinx, which a process has to hand over."""
    collector = logging.LogCollector()
    with collector.collect():
        answer = generate()
    logging.convert_serializable(collector.logs)
    return answer, collector.logs


class _Clock:
    def __init__(self, sign_of_life: Callable[[float], None]) -> None:
        self._sign_of_life = sign_of_life
        self._start = self._last = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def tick(self) -> None:
        if time.monotonic() - self._last > _SIGN_OF_LIFE_S:
            self._last = time.monotonic()
            self._sign_of_life(self.seconds())


def limit_s() -> float:
    """Seconds that a tutorial may take.

    Raises:
        ExtensionError: The environment variable is no positive number.
    """
    text = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_LIMIT_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ExtensionError(f"{LIMIT_VARIABLE} is {text!r} (expected a positive number of seconds)")
    return seconds


def _is_current(script: Path, sum_of_last_run: Path, target: Path) -> bool:
    if not sum_of_last_run.is_file() or not target.with_suffix(".rst").is_file():
        return False
    return bool(sum_of_last_run.read_text() == gen_rst.get_md5sum(script, mode="t"))


def _raised(ended: Ended, text: str) -> Ended:
    """The same with what sphinx-gallery says of an exception."""
    # The frames are indented; the exception's own lines follow them.
    problem = next((line for line in text.splitlines()[1:] if line and not line.startswith(" ")), text)
    return Ended(problem=problem, output=f"{ended.output.rstrip()}\n{text}", stack=frames_of(text))


@functools.cache
def _import_once() -> None:
    if is_barred_from_gpu():
        raise ExtensionError("the process that builds has used the GPU, so the tutorials' processes cannot")
    # Found out in a process of its own, since it cannot be undone.
    if call(lambda _: _import_all() and not is_barred_from_gpu(), 300.0, lambda: None).answer:
        _import_all()


def _import_all() -> bool:
    # Inductor starts its compile processes when imported; each tutorial's process needs its own, started on first use.
    # And whether there is a GPU is asked of NVML: asking CUDA bars the processes that are forked later from it.
    meanwhile = {"TORCH_WARM_POOL": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    before = {name: os.environ.get(name) for name in meanwhile}
    os.environ.update(meanwhile)
    for name in _IMPORTED_ONCE:
        importlib.import_module(name)
    for name, value in before.items():
        del os.environ[name]
        if value is not None:
            os.environ[name] = value
    return True


def reverse(app: Sphinx, config: Config) -> None:  # noqa: ARG001 - given by Sphinx.
    """Turn the order of the tutorials round, before sphinx-gallery looks at it."""
    if config.optimbench_reverse:
        settings = config.sphinx_gallery_conf
        sections = [section for section in settings["subsection_order"] if section != "*"]
        settings["subsection_order"] = [*reversed(sections), "*"]
        settings["within_subsection_order"] = "optimbench_site.examples.last_name_first"


def _compare_reversed(one: str, other: str) -> int:
    return (one < other) - (one > other)


# A key to sort by.
last_name_first = functools.cmp_to_key(_compare_reversed)


def setup(app: Sphinx) -> dict[str, bool]:
    """Put ourselves around what sphinx-gallery calls for each tutorial; it has no setting for that."""
    app.setup_extension("sphinx_gallery.gen_gallery")
    for name in ("generate_file_rst", "execute_code_block", "executable_script", "get_md5sum", "_LoggingTee"):
        if not hasattr(gen_rst, name):
            raise ExtensionError(f"sphinx_gallery.gen_rst has no {name} any more")
    pages = Pages()
    # A partial object, since a method takes no attribute; by it `unwrap` finds the way back in a second build.
    gen_rst.generate_file_rst = functools.update_wrapper(functools.partial(pages.generate), pages.original)
    app.add_config_value("optimbench_reverse", default=False, rebuild="env", types=frozenset({bool}))
    app.connect("config-inited", reverse, priority=5)
    app.connect("builder-inited", pages.count, priority=50)
    app.connect("builder-inited", pages.fail, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
