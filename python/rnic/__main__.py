"""``python -m rnic`` is the program ``rnic``."""

from __future__ import annotations

import os
import sys

from ._program import RnicError, find


def main() -> None:
    """Become the program."""
    try:
        program = find()
    except RnicError as error:
        sys.exit(str(error))
    os.execv(program, ["rnic", *sys.argv[1:]])  # noqa: S606


if __name__ == "__main__":
    main()
