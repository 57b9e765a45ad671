"""Build the site from nothing, executing the tutorials. Only a complete site replaces the one that is there.

`nox -s docs` calls it. The whole site goes to build/html; one with some of the tutorials, or with all in reverse order,
goes to a folder of its own beside it.
"""

import argparse
import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from optimbench_site.processes import all_ended_afterwards, die_with

ROOT = Path(__file__).parents[1]
# What sphinx-gallery and autosummary write between the sources. Removed before every build, so that each tutorial is
# executed and none that was deleted keeps its page.
GENERATED = ("docs/tutorials", "docs/api/generated", "build/doctrees")
# From linux/fs.h and fcntl.h.
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
# Seconds that what is left of a killed build may take to end.
_LOCK_S = 5.0


class BuildError(Exception):
    """There is no new site, and the old one is as it was."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which tutorials are executed."""
    parser.add_argument(
        "--section", action="append", default=[], metavar="NAME", help="only the tutorials of a section"
    )
    parser.add_argument("--only", action="append", default=[], metavar="SCRIPT", help="only this tutorial")


def chosen_scripts(options: argparse.Namespace, root: Path = ROOT) -> list[str]:
    """The names of the chosen tutorials, in the order of their sections; all of them if none were chosen.

    Raises:
        BuildError: There is no such section or tutorial.
    """
    sections: dict[str, list[str]] = {}
    for path in sorted((root / "gallery").glob("*/plot_*.py")):
        sections.setdefault(path.parent.name, []).append(path.stem)
    scripts = [name for names in sections.values() for name in names]
    for kind, asked, known in (("section", options.section, list(sections)), ("tutorial", options.only, scripts)):
        if unknown := sorted(set(asked) - set(known)):
            raise BuildError(f"no {kind} {', '.join(unknown)} (there are {', '.join(known)})")
    if not options.section and not options.only:
        return scripts
    chosen = {*options.only, *(name for section in options.section for name in sections[section])}
    return [name for name in scripts if name in chosen]


def sphinx_options(options: argparse.Namespace, root: Path = ROOT) -> list[str]:
    """What Sphinx is to be told so that it executes the chosen tutorials."""
    if not options.section and not options.only:
        return []
    names = "|".join(map(re.escape, chosen_scripts(options, root)))
    return ["-D", rf"sphinx_gallery_conf.filename_pattern=/({names})\.py$"]


def build(target: Path, words: Sequence[str] = (), root: Path = ROOT) -> None:
    """Build the site of `root` into a folder; `words` are options for Sphinx.

    However this ends, the folder holds a complete site or what it held before. No process is left, unless this one is
    killed by SIGKILL: then what a tutorial has started in a session of its own may go on.

    Raises:
        BuildError: Sphinx failed, or another build is running.
    """
    fresh, old = (target.with_name(target.name + ending) for ending in (".new", ".old"))
    with only_build(root) as lock:
        if old.exists() and not target.exists():  # The last build was killed between two renames.
            old.rename(target)
        for folder in [*(root / name for name in GENERATED), fresh, old]:
            _remove(folder, root)
        command = [sys.executable, "-m", "sphinx", "-W", "-n", "-c", str(ROOT / "conf"), "-d", "build/doctrees", *words]
        try:
            status = _run([*command, "docs", str(fresh)], root, lock)
            # Written at the end: without it, something has ended Sphinx with a status that looks fine.
            if status or not (fresh / "results.json").is_file():
                raise BuildError(f"Sphinx ended with status {status} and no complete site; {target} is as it was")
            _exchange(fresh, target, old)
        finally:
            for folder in (fresh, old):
                shutil.rmtree(folder, ignore_errors=True)
    print(f"The site is {target / 'index.html'}")


def _run(command: Sequence[str], root: Path, lock: int) -> int:
    parent = os.getpid()
    with all_ended_afterwards():
        # In a session of its own: the terminal's Ctrl-C comes to us, and we end it with all that it has started. It
        # holds the lock, too, so that none starts a build beside what is left of a killed one.
        process = subprocess.Popen(
            command,
            cwd=root,
            start_new_session=True,
            preexec_fn=lambda: die_with(parent),  # noqa: PLW1509 - there is one thread.
            pass_fds=[lock],
        )
        return process.wait()


@contextlib.contextmanager
def only_build(root: Path) -> Iterator[int]:
    """Hold the lock of the builds in `root`, of which there is one at a time.

    Raises:
        BuildError: Another one holds it, or nothing can be written there.
    """
    try:
        (root / "build").mkdir(exist_ok=True)
        file = (root / "build" / ".lock").open("w")
    except OSError as error:
        raise BuildError(f"there can be no build in {root / 'build'}: {error}") from error
    with file:
        end = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise BuildError("another build of this site is running") from None
                time.sleep(0.05)
        yield file.fileno()


def _remove(folder: Path, root: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:  # What stays would be taken for new.
        raise BuildError(f"{folder.relative_to(root)} cannot be removed: {error}") from error


def _exchange(fresh: Path, target: Path, old: Path) -> None:
    """Put the fresh site in place; the old one is then in one of the other two folders."""
    if not target.exists():
        fresh.rename(target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, bytes(fresh), _AT_FDCWD, bytes(target), _RENAME_EXCHANGE) == 0:
        return
    if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))
    # This file system cannot exchange two names. The next build repairs what a kill between these lines leaves.
    target.rename(old)
    fresh.rename(target)


def require_cuda() -> None:
    """Refuse to go on without a GPU.

    Raises:
        BuildError: There is none that can be used; the message says why.
    """
    # In a process of its own, since a process that has looked at the GPU holds memory there.
    code = (
        "import optimbench as ob, sys\ntry: print(ob.require_cuda())\nexcept ob.OptimBenchError as e: sys.exit(str(e))"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BuildError(f"--require-cuda: {done.stderr.strip()}")


def main(words: Sequence[str] | None = None) -> int:
    """Run, and give the exit status."""
    parser = argparse.ArgumentParser(prog="nox -s docs --", description=__doc__)
    add_options(parser)
    parser.add_argument("--reverse", action="store_true", help="execute the tutorials from the last to the first")
    parser.add_argument("--require-cuda", action="store_true", help="refuse to do so on a CPU")
    options = parser.parse_args(words)
    name = "part" if options.section or options.only else "html"
    reverse = ["-D", "optimbench_reverse=1"] if options.reverse else []
    try:
        words = [*sphinx_options(options), *reverse]
        if options.require_cuda:
            require_cuda()
        build(ROOT / "build" / (f"{name}-reversed" if options.reverse else name), words)
    except BuildError as error:
        print(f"not built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
