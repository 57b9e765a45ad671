"""A build after an edit executes only what the edit can have changed.

sphinx-gallery executes a tutorial again when any of its text has changed, and only then. Here it is the code that
counts: a tutorial whose prose was edited keeps the outputs of its last run, and one whose parts of the package have
changed is executed again. What it printed about its own lines, such as their numbers, is then that of the last run;
`nox -s docs` keeps nothing and executes all.
"""

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.ext.autosummary import process_generate_options
from sphinx.util import logging
from sphinx_gallery import gen_rst

from optimbench_site import sources

ENDING = ".outputs.json"
# Beside the generated pages, as they are: removed with them.
_LAST_PACKAGE = ".package"
_LAST_REFERENCE = ".reference"

logger = logging.getLogger(__name__)


def can_keep(script: Path, target: Path, gallery_conf: dict[str, Any]) -> bool:
    """Whether a tutorial need not be executed: its code and its parts of the package are those of its last run."""
    if gallery_conf["run_stale_examples"]:
        return False
    file_conf, blocks = gen_rst.py_source_parser.split_code_and_text_blocks(str(script))
    return _kept(script, target, _code(blocks, file_conf)) is not None


def mark_stale(app: Sphinx) -> None:
    """Have the tutorials executed again whose parts of the package have changed since their last run."""
    conf = app.config.sphinx_gallery_conf
    scripts, pages = (Path(app.srcdir, conf[name]) for name in ("examples_dirs", "gallery_dirs"))
    last, now = pages / _LAST_PACKAGE, _digest(sorted(sources.PACKAGE.rglob("*.py")))
    if not pages.is_dir() or (last.is_file() and last.read_text() == now):
        return
    for path in sorted(pages.rglob(f"*{ENDING}")):
        target = path.with_name(path.name.removesuffix(ENDING) + ".py")
        script = scripts / target.relative_to(pages)
        if script.is_file() and json.loads(path.read_text())["package"] != sources.fingerprint(script):
            logger.info("the package has changed: %s is executed again", script.stem)
            # Without its sum, a tutorial counts as changed.
            target.with_name(f"{target.name}.md5").unlink(missing_ok=True)
    last.write_text(now)


def skip_reference(app: Sphinx, config: Config) -> None:
    """Write the pages of the reference again only where something they are made from has changed.

    Writing them imports all that they describe, which takes longer than all the rest of a build after an edit.
    """
    folder = Path(app.srcdir, "api")
    templates = [path for name in config.templates_path for path in Path(name).rglob("*.rst")]
    now = _digest([*sorted(sources.PACKAGE.rglob("*.py")), *sorted(folder.glob("*.rst")), *sorted(templates)])
    last = folder / "generated" / _LAST_REFERENCE
    if last.is_file() and last.read_text() == now:
        for listener in app.events.listeners["builder-inited"]:
            if listener.handler is process_generate_options:
                app.disconnect(listener.id)
                return
    last.parent.mkdir(parents=True, exist_ok=True)
    last.write_text(now)


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _code(blocks: Sequence[Any], file_conf: dict[str, Any]) -> str:
    """SHA-256 of all that is executed, and of the settings that say how."""
    said = [json.dumps(file_conf, sort_keys=True, default=str)]
    said += [block.content for block in blocks if block.type == "code"]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()


def _kept(script: Path, target: Path, code: str) -> dict[str, Any] | None:
    """What is kept of a tutorial's last run, or None where it cannot be used."""
    path = target.with_suffix(ENDING)
    if not path.is_file():
        return None
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept if (kept["code"], kept["package"]) == (code, sources.fingerprint(script)) else None


def _keeping(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Around sphinx-gallery's function that executes the blocks of a tutorial."""

    @functools.wraps(execute)
    def execute_or_keep(blocks: Any, script_vars: dict[str, Any], gallery_conf: Any, file_conf: Any) -> Any:
        if not script_vars["execute_script"]:
            return execute(blocks, script_vars, gallery_conf, file_conf)
        script, target = Path(script_vars["src_file"]), Path(script_vars["target_file"])
        code = _code(blocks, file_conf)
        kept = None if gallery_conf["run_stale_examples"] else _kept(script, target, code)
        if kept is not None:
            return _as_if_executed(kept, blocks, script_vars)
        # While it runs, its figures and results are neither those of the last run nor those of this one.
        target.with_suffix(ENDING).unlink(missing_ok=True)
        package = sources.fingerprint(script)
        outputs, elapsed_s = execute(blocks, script_vars, gallery_conf, file_conf)
        if script_vars.get("passing"):
            new = {
                "code": code,
                "package": package,
                "outputs": [text for block, text in zip(blocks, outputs, strict=True) if block.type == "code"],
                "elapsed_s": elapsed_s,
                "images": len(script_vars["image_path_iterator"]),
                "memory": script_vars["memory_delta"],
            }
            # Under another name at first: a kill leaves no half file.
            unfinished = target.with_suffix(f"{ENDING}.new")
            unfinished.write_text(json.dumps(new), encoding="utf-8")
            unfinished.replace(target.with_suffix(ENDING))
        return outputs, elapsed_s

    return execute_or_keep


def _as_if_executed(kept: dict[str, Any], blocks: Any, script_vars: dict[str, Any]) -> tuple[list[str], float]:
    """What the execution gave, and the same traces of it in the variables and beside the page."""
    outputs = iter(kept["outputs"])
    images = script_vars["image_path_iterator"]
    for _ in range(kept["images"]):
        next(images)
    script_vars |= {"example_globals": {}, "memory_delta": kept["memory"], "passing": True, "kept": True}
    sum_of_run = gen_rst.get_md5sum(script_vars["target_file"], mode="t")
    Path(f"{script_vars['target_file']}.md5").write_text(sum_of_run)
    return [next(outputs) if block.type == "code" else "" for block in blocks], kept["elapsed_s"]


def _names_kept(find: Callable[..., Any]) -> Callable[..., Any]:
    """Around the function that finds the names in a tutorial's code: what they were is known only in its process."""

    @functools.wraps(find)
    def find_or_keep(gallery_conf: Any, script_vars: dict[str, Any], blocks: Any, node: Any, target: Path) -> Any:
        if script_vars.get("kept"):
            return gen_rst._read_cached_backrefs(gallery_conf, target)
        return find(gallery_conf, script_vars, blocks, node, target)

    return find_or_keep


def setup(app: Sphinx) -> dict[str, bool]:
    """Put ourselves around two functions of sphinx-gallery, and before all that is done with the tutorials."""
    app.setup_extension("sphinx_gallery.gen_gallery")
    app.setup_extension("sphinx.ext.autosummary")
    gen_rst.execute_script = _keeping(inspect.unwrap(gen_rst.execute_script))
    gen_rst._get_backreferences = _names_kept(inspect.unwrap(gen_rst._get_backreferences))
    app.connect("builder-inited", mark_stale, priority=60)
    # Before the event at which they are written: who is called then is settled when it begins.
    app.connect("config-inited", skip_reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
