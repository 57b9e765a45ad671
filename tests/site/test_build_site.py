"""Complete or nothing: the script behind `nox -s docs`, killed at any moment."""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from site_builder import DATA, REPOSITORY, clean_environment, write_sources

import build_site

N_KILLS = 20
CONF = REPOSITORY / "conf"
# It starts a process in a session of its own, as a tutorial does that measures in processes of their own.
PAGE = '''"""
Title
=====

A page.
"""

import os
import subprocess

child = subprocess.Popen(["sleep", "300"], start_new_session=True)
with open(os.environ["PIDS"], "a") as file:
    print(os.getpid(), child.pid, file=file)
print("build", os.environ["NUMBER"])
'''
BUILD = f"""
import sys
sys.path.insert(0, {str(CONF)!r})
from pathlib import Path
import build_site
build_site.build(Path("build/html").absolute(), root=Path.cwd())
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_sources(tmp_path, DATA)
    for path in (tmp_path / "gallery" / "start").glob("plot_*.py"):
        path.unlink()
    (tmp_path / "gallery" / "start" / "plot_01_page.py").write_text(PAGE)
    return tmp_path


def start(root: Path, number: int) -> subprocess.Popen[str]:
    environment = clean_environment(PIDS=str(root / "pids"), NUMBER=str(number))
    with (root / "log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-c", BUILD], cwd=root, env=environment, stdout=log, stderr=log, text=True
        )


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def files(site: Path) -> set[str]:
    # A script that Sphinx has copied is named after the sum of its text; the sources do not change here.
    return {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file() and path.stat().st_size}


def built(site: Path) -> int:
    """The number of the build that the page is from."""
    found = re.search(r"build (\d+)", (site / "tutorials/start/plot_01_page.html").read_text())
    assert found
    return int(found[1])


def test_killed_at_any_moment_there_is_a_complete_site_and_no_process(root: Path) -> None:
    site = root / "build" / "html"
    started = time.monotonic()
    assert start(root, 0).wait() == 0, (root / "log").read_text()
    whole_s, complete = time.monotonic() - started, files(site)
    assert len(complete) > 20
    chance, moments = random.Random(0), []
    for number in range(1, N_KILLS + 1):
        (root / "pids").unlink(missing_ok=True)
        build = start(root, number)
        if number % 2:  # Anywhere.
            wait_until(lambda: build.poll() is not None, chance.uniform(0, whole_s))  # noqa: B023
        else:  # About where the new site takes the place of the old one.
            wait_until(lambda: any(site.with_name("html.new").glob("wheels/*")) or build.poll() is not None, 60)  # noqa: B023
            wait_until(lambda: build.poll() is not None, chance.uniform(0, 0.6))  # noqa: B023
        ended = build.poll() is not None
        build.send_signal(signal.SIGKILL if number % 3 else signal.SIGTERM)
        build.wait()
        moments.append("done" if ended else "killed")
        for line in (root / "pids").read_text().splitlines() if (root / "pids").exists() else []:
            page, child = map(int, line.split())
            assert wait_until(lambda: is_gone(page), 5), "the page goes on"  # noqa: B023
            if number % 3 == 0:
                assert wait_until(lambda: is_gone(child), 5), "what it has started goes on"  # noqa: B023
            elif not is_gone(child):  # SIGKILL leaves nobody who could end it.
                os.kill(child, signal.SIGKILL)
        assert files(site) == complete, number
        assert built(site) <= number
    assert moments.count("killed") > N_KILLS / 2, moments
    assert start(root, 999).wait() == 0, (root / "log").read_text()
    assert files(site) == complete
    assert built(site) == 999
    assert sorted(path.name for path in (root / "build").iterdir()) == [".lock", "doctrees", "html"]


def test_two_folders_change_places_at_once_or_not_at_all(tmp_path: Path) -> None:
    code = f"""
import itertools, shutil, sys
sys.path.insert(0, {str(CONF)!r})
from pathlib import Path
import build_site
fresh, target, old = map(Path, ("html.new", "html", "html.old"))
for number in itertools.count():
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    fresh.mkdir()
    for name in "abc":
        (fresh / name).write_text(str(number))
    build_site._exchange(fresh, target, old)
    print(number, flush=True)
"""
    chance, exchanged = random.Random(1), 0
    for _ in range(N_KILLS):
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as changing:
            assert changing.stdout
            assert changing.stdout.readline() == "0\n"
            time.sleep(chance.uniform(0, 0.1))
            changing.kill()
            last = len(changing.stdout.read().splitlines())
        (there,) = {(tmp_path / "html" / name).read_text() for name in "abc"}
        assert int(there) in (last, last + 1), "the one before the kill, or the one that it came after"
        exchanged += last
    assert exchanged > N_KILLS


def test_a_build_that_was_killed_between_two_renames_is_repaired(root: Path) -> None:
    old = root / "build" / "html.old"
    old.mkdir(parents=True)
    (old / "index.html").write_text("the old one")
    (root / "gallery" / "start" / "plot_01_page.py").write_text(PAGE + "\nraise RuntimeError\n")
    assert start(root, 1).wait() != 0
    assert [path.name for path in (root / "build" / "html").iterdir()] == ["index.html"]
    assert not old.exists()
    assert "BuildError: Sphinx ended with status 2 and no complete site" in (root / "log").read_text()


def test_one_build_at_a_time(root: Path) -> None:
    first = start(root, 1)
    assert wait_until((root / "build" / "html.new").exists, 60)
    (root / "log").rename(root / "log.first")
    assert start(root, 2).wait() != 0
    assert "another build of this site is running" in (root / "log").read_text()
    assert first.wait() == 0, (root / "log.first").read_text()
    assert built(root / "build" / "html") == 1


def test_what_was_generated_before_and_cannot_be_removed_is_not_taken_for_new(root: Path) -> None:
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    (root / "docs" / "tutorials").symlink_to(elsewhere)
    assert start(root, 1).wait() != 0
    assert "BuildError: docs/tutorials cannot be removed: " in (root / "log").read_text()
    assert not (root / "pids").exists(), "a tutorial was executed"


def test_a_folder_that_cannot_be_written_is_named(root: Path) -> None:
    (root / "build").write_text("in the way")
    assert start(root, 1).wait() != 0
    assert re.search("BuildError: there can be no build in .*build", (root / "log").read_text())


def chosen(*words: str) -> list[str]:
    parser = argparse.ArgumentParser()
    build_site.add_options(parser)
    return build_site.chosen_scripts(parser.parse_args(words))


def test_sections_and_tutorials_are_chosen_by_name() -> None:
    sections = {path.parent.name for path in (REPOSITORY / "gallery").glob("*/plot_*.py")}
    measure = [path.stem for path in sorted((REPOSITORY / "gallery" / "measure").glob("plot_*.py"))]
    first = "plot_01_compiling_the_optimizer_step"
    assert chosen("--section", "measure") == measure
    assert sorted(chosen("--section", "measure", "--only", first)) == sorted([*measure, first])
    assert chosen("--only", first) == [first]
    assert sorted(chosen()) == sorted(chosen(*[word for name in sections for word in ("--section", name)]))
    with pytest.raises(build_site.BuildError, match=r"no section nowhere \(there are .*measure"):
        chosen("--section", "nowhere")
    with pytest.raises(build_site.BuildError, match=r"no tutorial plot_0 \(there are .*plot_01"):
        chosen("--only", "plot_0")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The folders and options of the builds that the command line leads to; none is executed."""
    found: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(build_site, "build", lambda target, words: found.append((target.name, words)))
    return found


def test_only_the_whole_site_goes_where_the_whole_site_is(asked: list[tuple[str, list[str]]]) -> None:
    for words in ([], ["--section", "measure"], ["--only", "plot_06b_flatten_then_compile"], ["--reverse"]):
        assert build_site.main(words) == 0
    assert build_site.main(["--reverse", "--section", "start"]) == 0
    assert [name for name, _ in asked] == ["html", "part", "part", "html-reversed", "part-reversed"]
    assert asked[0][1] == []
    [_, pattern] = asked[2][1]
    assert re.search(pattern.partition("=")[2], "/gallery/make_it_fast/plot_06b_flatten_then_compile.py")
    assert not re.search(pattern.partition("=")[2], "/gallery/make_it_fast/plot_06_the_ways_to_step.py")
    assert asked[3][1] == ["-D", "optimbench_reverse=1"]


@pytest.mark.parametrize("words", [["--section", "nowhere"], ["--only", "plot_99"]])
def test_nothing_is_built_for_a_name_that_is_none(asked: list[tuple[str, list[str]]], words: list[str]) -> None:
    assert build_site.main(words) == 1
    assert asked == []


def test_without_a_gpu_require_cuda_fails_before_anything_is_executed() -> None:
    done = subprocess.run(
        [sys.executable, str(CONF / "build_site.py"), "--require-cuda"],
        env=clean_environment(CUDA_VISIBLE_DEVICES=""),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert re.fullmatch(r"not built: --require-cuda: .*CUDA.*\n", done.stderr), done.stderr
    assert done.stdout == ""


def test_what_a_killed_build_leaves_is_no_part_of_the_next(root: Path) -> None:
    for name in ("docs/tutorials/start/plot_99_gone.rst", "docs/api/generated/gone.rst", "build/html.new/gone.html"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("Gone\n====\n")
    assert start(root, 1).wait() == 0, (root / "log").read_text()
    assert not [name for name in files(root / "build" / "html") if "gone" in name]
    shutil.rmtree(root / "build")
