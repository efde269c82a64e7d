"""``pytest --rnic``: the tests, their child processes and the workers of pytest-xdist get the NIC.

The loader puts the NIC's library into a process when it starts, so pytest starts itself again, once
and before it has loaded any ``conftest.py``. What the NIC records of failures goes to a file for
each worker. A test that fails gets what was recorded since it began, in the words of
``rnic explain --report``. The packets of a worker go to one file, too, and what a test adds to it
becomes that test's own capture.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from . import _program
from ._program import RnicError

if TYPE_CHECKING:
    from typing import Any, Generator

    import pluggy

#: The process that has started itself again already; its number stays the same.
STARTED = "RNIC_PYTEST_STARTED"
#: Bytes in front of the first packet of a capture file.
PCAP_HEADER = 24
#: File names may have 255 bytes.
LONGEST_NAME = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and the settings of the same names."""
    group = parser.getgroup("rnic", "rnic, an RDMA NIC made of software")
    group.addoption(
        "--rnic",
        action="store_true",
        default=None,
        help="give the NIC to the tests, their child processes and the workers of pytest-xdist",
    )
    group.addoption(
        "--no-rnic",
        action="store_false",
        dest="rnic",
        default=None,
        help="do not, even if the configuration file says so",
    )
    group.addoption(
        "--rnic-faults",
        metavar="SPEC",
        help="damage what the tests send, by any of drop=1%%,dup=1%%,reorder=5%%,corrupt=1%%,"
        "delay=10us,seed=42; implies --rnic",
    )
    group.addoption(
        "--rnic-pcap",
        metavar="DIR",
        help="write the packets of each test to a file of its own in DIR; implies --rnic",
    )
    parser.addini("rnic", "give the NIC to the tests, as --rnic does", type="bool", default=False)
    parser.addini("rnic_faults", "as --rnic-faults", default="")
    parser.addini("rnic_pcap", "as --rnic-pcap, relative to the root directory", default="")


class Wishes(NamedTuple):
    """What options and the configuration file ask for."""

    on: bool
    faults: str | None
    pcap: Path | None


def wishes(config: pytest.Config) -> Wishes:
    """Read them. Options count more than the file."""
    options = config.known_args_namespace
    faults = options.rnic_faults or config.getini("rnic_faults") or None
    pcap = None
    if options.rnic_pcap:
        pcap = config.invocation_params.dir / options.rnic_pcap
    elif config.getini("rnic_pcap"):
        pcap = config.rootpath / config.getini("rnic_pcap")
    on = options.rnic
    if on is None:
        on = bool(options.rnic_faults or options.rnic_pcap or config.getini("rnic"))
    elif not on and (options.rnic_faults or options.rnic_pcap):
        raise pytest.UsageError("--no-rnic and --rnic-faults or --rnic-pcap exclude each other")
    return Wishes(on, faults, pcap)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Start pytest again where the NIC is missing. Around all others: nothing has begun yet."""
    wanted = wishes(early_config)
    if wanted.on and not _program.is_in_this_process():
        try:
            start_again(early_config, wanted)
        except RnicError as error:
            raise pytest.UsageError(str(error)) from None
    yield


def start_again(config: pytest.Config, wanted: Wishes) -> None:
    """Become the same pytest, with the NIC. Return only by an error."""
    if os.environ.get(STARTED) == str(os.getpid()):
        raise RnicError(_program.why_not() or "rnic: the NIC does not get into this Python")
    if [str(arg) for arg in config.invocation_params.args] != sys.argv[1:]:
        raise RnicError(
            "rnic: a program has called pytest.main: it cannot be started again from here\n"
            "  next:  start it by `rnic run -- python PROGRAM`, and leave --rnic as it is;\n"
            "         with pytester, use runpytest_subprocess"
        )
    # `python -m pytest` and `pytest` alike: all that the interpreter was given, its options, too.
    line = Path("/proc/self/cmdline").read_bytes().split(b"\0")[1:-1]
    environment = _program.env(faults=wanted.faults)
    environment[STARTED] = str(os.getpid())
    # If a plug-in has begun to capture output, this process would print into a file for ever.
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(sys.executable, [os.fsencode(sys.executable), *line], environment)  # noqa: S606
    except OSError as error:
        raise RnicError(f"rnic: cannot start {sys.executable} again: {error.strerror}") from None


def pytest_configure(config: pytest.Config) -> None:
    """Begin to listen to the NIC."""
    wanted = wishes(config)
    if wanted.on and not config.option.help:
        config.pluginmanager.register(Nic(config, wanted), "rnic-nic")


def size(path: Path) -> int:
    """Return how long a file is: 0, if it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Nic:
    """What this process of pytest has to do with the NIC: one for each worker of pytest-xdist."""

    def __init__(self, config: pytest.Config, wanted: Wishes) -> None:
        self.config = config
        self.saved = {name: os.environ.get(name) for name in ("RNIC_REPORT", "RNIC_PCAP")}
        given: dict[str, Any] | None = getattr(config, "workerinput", None)
        if given is None:
            self.worker = "main"
            self.own_folder: str | None = tempfile.mkdtemp(prefix="rnic-pytest-")
            self.folder = Path(self.own_folder)
        else:
            self.worker = str(given["workerid"])
            self.own_folder = None
            self.folder = Path(given["rnic_folder"])
        # One that is there already is read by `rnic run`, or by another pytest, after this one.
        outer = self.saved["RNIC_REPORT"] if given is None else None
        self.report = Path(outer) if outer else self.report_of(self.worker)
        # The NIC writes to a file that is there, and makes none.
        self.report.touch()
        os.environ["RNIC_REPORT"] = str(self.report)
        self.since = 0
        self.pcap: Path | None = None
        self.live: Path | None = None
        if wanted.pcap is not None:
            wanted.pcap.mkdir(parents=True, exist_ok=True)
            self.pcap = wanted.pcap.resolve()
            self.live = self.pcap / f".{self.worker}-{os.getpid()}.pcap"
            os.environ["RNIC_PCAP"] = str(self.live)

    def report_of(self, worker: str) -> Path:
        """Return the file to which the NIC of a worker appends what fails."""
        return self.folder / f"report-{worker}"

    def beginning(self, worker: str) -> Path:
        """Return the file that says where the report of the running test begins."""
        return self.folder / f"since-{worker}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist where the folder is."""
        node.workerinput["rnic_folder"] = str(self.folder)

    def pytest_report_header(self) -> str:
        """Say that the NIC is there, and by which seed a run is repeated."""
        from . import version

        parts = [f"rnic: {version}"]
        if os.environ.get("RNIC_FAULTS"):
            parts.append(f"faults {os.environ['RNIC_FAULTS']}")
        if self.pcap is not None:
            parts.append(f"packets in {self.pcap}")
        return "; ".join(parts)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        """Note where the report of this test begins, and keep its packets."""
        self.since = size(self.report)
        self.beginning(self.worker).write_text(str(self.since))
        yield
        self.keep_packets(item.nodeid)

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
        """Let the report of a test that failed end with what the NIC knows."""
        outcome = yield
        report = outcome.get_result()
        if not report.failed:
            return
        words = self.words(self.report, self.since, item.nodeid)
        # What follows, in the teardown, is told of once.
        self.since = size(self.report)
        live = self.live
        if live is not None and size(live) > PCAP_HEADER:
            file = self.capture_of(item.nodeid)
            words += f"\npackets: `rnic dissect {file}` says what they mean"
        self.add(report, words.strip())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the words for a test whose process died: pytest-xdist and -forked report that."""
        if report.failed and report.when not in ("setup", "call", "teardown"):
            node = getattr(report, "node", None)
            worker = node.gateway.id if node is not None else self.worker
            file = self.report if worker == self.worker else self.report_of(worker)
            try:
                since = int(self.beginning(worker).read_text())
            except (OSError, ValueError):
                since = 0
            self.add(report, self.words(file, since, report.nodeid))

    def words(self, file: Path, since: int, name: str) -> str:
        """Return what the NIC knows of a failure. An error in here does not hide the test's."""
        if size(file) <= since:
            return ""
        try:
            return _program.explain(file, since, name)
        except (RnicError, OSError) as error:
            return f"rnic: cannot say more: {error}"

    def add(self, report: pytest.TestReport, words: str) -> None:
        """Add a section, where it is shown."""
        if not words:
            return
        add_section = getattr(report.longrepr, "addsection", None)
        if self.config.option.showcapture != "all" and add_section is not None:
            # Sections are shown with the captured output alone, and that is not wanted.
            add_section("rnic", words, "-")
        else:
            report.sections.append(("rnic", words))

    def capture_of(self, nodeid: str) -> Path:
        """Return the capture file of a test: its name, as far as files may be called so."""
        assert self.pcap is not None  # noqa: S101
        plain = nodeid.replace(".py::", "-").replace("::", "-").replace("/", "-")
        name = re.sub(r"[^\w.=@+\[\]-]+", "-", plain).strip(".-")
        if name != plain or len(name.encode()) > LONGEST_NAME:
            # Others may be called so as well.
            digest = hashlib.sha256(nodeid.encode()).hexdigest()[:12]
            name = f"{name.encode()[:LONGEST_NAME].decode(errors='ignore')}-{digest}"
        return self.pcap / f"{name}.pcap"

    def keep_packets(self, nodeid: str) -> None:
        """Copy what was captured since the last test, and take it out of the common file."""
        live = self.live
        if live is None:
            return
        length = size(live)
        file = self.capture_of(nodeid)
        if length <= PCAP_HEADER:
            # Of an older run, it would be taken for one of this.
            if file.exists():
                file.unlink()
            return
        with live.open("rb") as source, file.open("wb") as target:
            shutil.copyfileobj(source, target)
            copied = target.tell()
        # Processes append to it, wherever its end is. What came in the meantime goes to the next.
        if size(live) == copied:
            os.truncate(str(live), PCAP_HEADER)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave nothing behind but the captures."""
        if self.live is not None and self.live.exists():
            self.live.unlink()
        for name, value in self.saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self.own_folder is not None:
            shutil.rmtree(self.own_folder, ignore_errors=True)
