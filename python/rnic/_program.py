"""The program ``rnic``: where it is, and what it is asked.

What a process needs to get the NIC is decided by the program alone (``rnic run --print-env``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Iterator, Mapping, Sequence, Union

    StrPath = Union[str, "os.PathLike[str]"]

#: How long the program may take to answer a question, in seconds. It takes milliseconds.
PATIENCE = 60.0


class RnicError(RuntimeError):
    """What ``rnic`` refused, in its words: what happened, the cause, what to do next."""


def _folders() -> Iterator[str]:
    """Every folder where an installer may have put the program."""
    yield sysconfig.get_path("scripts")
    for scheme in ("posix_user", "posix_prefix"):
        if scheme in sysconfig.get_scheme_names():
            yield sysconfig.get_path("scripts", scheme=scheme)
    # pip install --target and --prefix: bin lies beside the packages, or some folders above.
    packages = Path(__file__).resolve().parent.parent
    for folder in (packages, *packages.parents[:3]):
        yield str(folder / "bin")


def find() -> str:
    """Return the path of the program: ``RNIC_BIN``, else the installed one, else that of PATH."""
    named = os.environ.get("RNIC_BIN")
    if named:
        if os.access(named, os.X_OK):
            return str(Path(named).resolve())
        raise RnicError(f"rnic: RNIC_BIN names {named}, which cannot be run")
    for folder in _folders():
        program = Path(folder, "rnic")
        if _is_program(program):
            return str(program)
    found = shutil.which("rnic")
    if found and _is_program(Path(found)):
        return found
    raise RnicError(
        "rnic: the program is not here\n"
        "  cause: the wheel was not installed as a whole\n"
        "  next:  `pip install --force-reinstall rnic`, or set RNIC_BIN to its path"
    )


def _is_program(path: Path) -> bool:
    """Tell the program from a script of that name, which might come back here."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(str(path), os.X_OK)
    except OSError:
        return False


def _options(
    *,
    faults: str | None,
    pcap: StrPath | None,
    seed: int | None,
    xdp: str | None,
    stats: bool,
    lint: bool,
    quiet: bool,
) -> list[str]:
    options = []
    for name, value in (("faults", faults), ("seed", seed), ("pcap", pcap), ("xdp", xdp)):
        if value is not None:
            options.append(f"--{name}={os.fspath(value) if name == 'pcap' else value}")  # type: ignore[arg-type]
    options += [f"--{name}" for name, on in (("stats", stats), ("lint", lint)) if on]
    return options + (["--quiet"] if quiet else [])


def command(
    args: Sequence[StrPath],
    faults: str | None = None,
    pcap: StrPath | None = None,
    *,
    seed: int | None = None,
    xdp: str | None = None,
    stats: bool = False,
    lint: bool = False,
    quiet: bool = False,
) -> list[str]:
    """Return the command ``rnic run ... -- args``, for `subprocess.Popen` and the like.

    ``faults`` damages what the command sends (``"drop=1%,reorder=5%"``), repeatably with ``seed``.
    ``pcap`` is a file for its packets. ``stats`` and ``lint`` end it with counters, and with
    warnings of what fails on hardware. ``xdp`` names interfaces for AF_XDP, which needs root.
    """
    options = _options(
        faults=faults, pcap=pcap, seed=seed, xdp=xdp, stats=stats, lint=lint, quiet=quiet
    )
    return [find(), "run", *options, "--", *(os.fspath(arg) for arg in args)]


def run(
    args: Sequence[StrPath],
    faults: str | None = None,
    pcap: StrPath | None = None,
    *,
    seed: int | None = None,
    xdp: str | None = None,
    stats: bool = False,
    lint: bool = False,
    quiet: bool = False,
    **kwargs: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a command on the NIC, and wait for its end: `subprocess.run` of `command`.

    If the command fails, the last lines of its standard error say why. ``kwargs`` are those of
    `subprocess.run`.
    """
    line = command(args, faults, pcap, seed=seed, xdp=xdp, stats=stats, lint=lint, quiet=quiet)
    return subprocess.run(line, **kwargs)


def _ask(*arguments: str, env: Mapping[str, str]) -> str:
    """Return what the program prints. It does not get the NIC itself."""
    clean = {name: value for name, value in env.items() if name != "RNIC_REPORT"}
    answer = subprocess.run(
        [find(), *arguments],
        env=clean,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    if answer.returncode != 0:
        words = answer.stderr.decode(errors="replace").strip()
        raise RnicError(words or f"rnic: it ended with status {answer.returncode}")
    return answer.stdout.decode(errors="surrogateescape")


def env(
    faults: str | None = None,
    pcap: StrPath | None = None,
    *,
    seed: int | None = None,
    xdp: str | None = None,
    stats: bool = False,
    lint: bool = False,
    quiet: bool = False,
    report: StrPath | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return ``base`` (by default the own environment) with what gives a process the NIC.

    It is for ``env`` of `subprocess.run` and the like; the settings are those of `command`. The NIC
    appends failures to the file ``report``, which `explain` puts into words. An old file ``pcap``
    is emptied by each call.
    """
    options = _options(
        faults=faults, pcap=pcap, seed=seed, xdp=xdp, stats=stats, lint=lint, quiet=quiet
    )
    if report is not None:
        options.append(f"--report={os.fspath(report)}")
    whole = dict(os.environ if base is None else base)
    answer = _ask("run", "--print-env=json", *options, env=whole)
    whole.update(json.loads(answer))
    return whole


def explain(report: StrPath, since: int = 0, name: str = "the program") -> str:
    """Return why ``name`` failed, by what the NIC has recorded in the file ``report``.

    What was recorded before byte ``since`` is left out. The answer is empty if the NIC saw nothing.
    """
    return _ask(
        "explain",
        f"--report={os.fspath(report)}",
        f"--from={since}",
        f"--name={name}",
        env=os.environ,
    ).strip()


def is_in_this_process() -> bool:
    """Tell whether the NIC's library is loaded."""
    try:
        maps = Path("/proc/self/maps").read_text(errors="surrogateescape")
    except OSError:
        return False
    loaded = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/")}
    first = Path(os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":")[0])
    # The folder of names that `rnic run` makes.
    ours = first.parent.name.startswith("verbs-") and os.path.realpath(str(first)) in loaded
    return ours or any("librnic_verbs" in Path(path).name for path in loaded)


def why_not() -> str:
    """Return why the NIC does not get into this Python, in the program's words."""
    line = [find(), "run", "--quiet", "--", sys.executable, "-c", ""]
    answer = subprocess.run(line, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    return answer.stderr.decode(errors="replace").strip()
