"""The recordings of this site: the stored ones, and that of this build.

Stored recordings lie in `recordings/` of the source folder, one file a device. This build's lies script by script
beside the pages that sphinx-gallery generates, because a script that has not changed is not run again: its results are
then those of its last run, as its page is.
"""

import functools
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

from optimbench import Recording, RecordingError, load_recording, save_recording
from optimbench.recordings import device_slug, load_recordings
from optimbench_site.machine import this_machine

ENDING = ".results.json"


def stored_recordings(srcdir: Path) -> list[Recording]:
    """All stored recordings, by device.

    Raises:
        ExtensionError: One is damaged; the message names the file and the place in it.
    """
    folder = srcdir / "recordings"
    # Read once for many pages, and again when a file has changed.
    state = tuple((path.name, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.json")))
    return _loaded(folder, state)


@functools.lru_cache(maxsize=4)
def _loaded(folder: Path, state: tuple[tuple[str, int], ...]) -> list[Recording]:  # noqa: ARG001 - a part of the key.
    try:
        return load_recordings(folder)
    except RecordingError as error:
        raise ExtensionError(f"a stored recording cannot be read: recordings/{error}") from error


def results_of_script(srcdir: Path, docname: str) -> Recording | None:
    """What the script of this page gave in this build, or None where it gave nothing or was not run."""
    path = srcdir / (docname + ENDING)
    return load_recording(path) if path.is_file() else None


def this_build(srcdir: Path, config: Config) -> Recording:
    """The results of all scripts that are still in the gallery.

    Raises:
        ExtensionError: Two scripts have the same name, which is the key of a recording.
    """
    device = device_slug(this_machine())
    whole = Recording(device=device, scripts={}, results={})
    for docname in sorted(pages_with_results(srcdir, config)):
        part = results_of_script(srcdir, docname)
        if part is None or part.device != device:  # From another machine, for example in a copied folder.
            continue
        if part.scripts.keys() & whole.scripts.keys():
            raise ExtensionError(f"two scripts are named {Path(docname).name}: results are kept under that name")
        whole = whole.merged_with(part)
    return whole


def pages_with_results(srcdir: Path, config: Config) -> list[str]:
    """The pages whose scripts gave results."""
    settings = config.sphinx_gallery_conf
    scripts, pages = (srcdir / settings[name] for name in ("examples_dirs", "gallery_dirs"))
    found = [path.relative_to(pages).as_posix().removesuffix(ENDING) for path in pages.rglob(f"*{ENDING}")]
    return [f"{settings['gallery_dirs']}/{name}" for name in found if (scripts / f"{name}.py").is_file()]


def read_first(app: Sphinx) -> None:
    """Fail over a damaged file now, not after an hour of tutorials."""
    stored_recordings(app.srcdir)


def write(app: Sphinx, exception: Exception | None) -> None:
    """Put this build's recording and the stored ones into the site."""
    if exception is not None or app.builder.format != "html":
        return
    save_recording(this_build(app.srcdir, app.config), app.outdir / "results.json")
    target = app.outdir / "recordings"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for recording in stored_recordings(app.srcdir):
        name = f"{recording.device}.json"
        shutil.copyfile(app.srcdir / "recordings" / name, target / name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register; the priority is below that of sphinx-gallery, which runs the tutorials."""
    app.connect("builder-inited", read_first, priority=100)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
