"""Look pinned versions up in the database of known vulnerabilities. `nox -s audit` calls it.

Exit status 1 says that some are known, 2 that nobody could tell: an audit that did not happen must not pass.
"""

import subprocess
import sys
from collections.abc import Sequence

# How pip-audit says that the database has not answered: it fails, or, being strict, refuses to leave something out.
_NOT_REACHED = ("requests.exceptions.", "could not be audited")


def main(words: Sequence[str] | None = None, command: Sequence[str] = (sys.executable, "-m", "pip_audit")) -> int:
    """Audit the requirement files, and give the exit status."""
    files = sys.argv[1:] if words is None else words
    options = ["--strict", "--disable-pip", "--no-deps", *(word for file in files for word in ("-r", file))]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode and any(sign in done.stderr for sign in _NOT_REACHED):
        last = done.stderr.strip().splitlines()[-1]
        print(f"not audited: the database of vulnerabilities cannot be reached from here ({last})", file=sys.stderr)
        return 2
    print(done.stderr, end="", file=sys.stderr)
    return min(done.returncode, 1)


if __name__ == "__main__":
    sys.exit(main())
