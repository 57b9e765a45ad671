"""The README's picture and what it says of it, from a stored recording: a README cannot ask for one when it is read.

    python conf/readme.py

draws both again; `nox -s record` does too. A test fails where they are not those of the recording.
"""

import html
import re
import sys
import textwrap
from pathlib import Path

from optimbench import load_recording
from optimbench_site.headline import SCRIPT, headline, save
from optimbench_site.pictures import INK

ROOT = Path(__file__).parents[1]
RECORDING = "docs/recordings/nvidia-h200.json"
PICTURE = "docs/readme/adam-step-{theme}.svg"
_BEGIN, _END = "<!-- Written by conf/readme.py. -->", "<!-- Until here. -->"
_WIDTH = 120


def update(root: Path = ROOT) -> None:
    """Draw the pictures, and write the README's part that shows them.

    Raises:
        LookupError: The recording lacks the values.
        ValueError: The README has no place for them.
    """
    recording = load_recording(root / RECORDING)
    shown = headline(recording)
    (root / PICTURE).parent.mkdir(exist_ok=True)
    for theme in INK:
        save(shown, root / PICTURE.format(theme=theme), theme=theme)
    machine = recording.scripts[SCRIPT].environment
    words = textwrap.fill(html.escape(shown.words()), _WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = [
        _BEGIN,
        "<picture>",
        f'<source media="(prefers-color-scheme: dark)" srcset="{PICTURE.format(theme="dark")}">',
        f'<img src="{PICTURE.format(theme="light")}" alt="\n{words}">',
        "</picture>",
        "",
        f"Measured on {machine.date[:10]}: {recording.label}, torch {machine.torch}.",
        _END,
    ]
    path = root / "README.md"
    place = re.compile(f"{re.escape(_BEGIN)}.*{re.escape(_END)}", re.DOTALL)
    text, n_places = place.subn(lambda _: "\n".join(lines), path.read_text())
    if n_places != 1:
        raise ValueError(f"README.md has {n_places} places for the picture (expected one, from {_BEGIN} to {_END})")
    path.write_text(text)


def main() -> int:
    """Update, and give the exit status."""
    update()
    return 0


if __name__ == "__main__":
    sys.exit(main())
