"""The plug-in for pytest, by pytests that it starts again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import PLUGIN, has, need, need_program

if TYPE_CHECKING:
    RunResult = pytest.RunResult

#: A test that succeeds, and one that writes past the end of its memory.
GOOD_AND_BAD = """
from pair import Pair

def test_good():
    assert Pair().write() == 0

def test_bad():
    print("what the test prints")
    assert Pair().write(offset=4090) == 0
"""


def run(tests: pytest.Pytester, *options: str) -> RunResult:
    """Run pytest as its user does, in a process of its own."""
    return tests.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", *options, timeout=120)


def sections(result: RunResult, test: str) -> list[str]:
    """Return the titles of the report of a test that failed."""
    text = result.stdout.str().split(f"_ {test} _")[1]
    text = re.split(r"\n(?:_{4,} |={4,} )", text)[0]
    return re.findall(r"^-{3,} (.*?) -{3,}$", text, re.MULTILINE)


def test_the_report_of_a_failure_ends_with_the_words(tests: pytest.Pytester) -> None:
    """Guards: tests get the NIC, and one that fails ends with why, after all that it printed."""
    tests.makepyfile(GOOD_AND_BAD)
    result = run(tests, "--rnic")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "rnic: [0-9]*",
            "*- rnic -*",
            "rnic: *work request 1 (RDMA WRITE) completed with status 10*",
            "*seen:*RDMA WRITE of 64 bytes*",
            "*cause:*past the region*",
            "*next:*",
        ]
    )
    assert sections(result, "test_bad") == ["Captured stdout call", "rnic"]


def test_without_the_option_nothing_happens(plain: pytest.Pytester) -> None:
    """Guards: a suite that does not ask for it is left as it is."""
    plain.makepyfile(
        """
        import os
        def test_it():
            assert "RNIC_REPORT" not in os.environ
            assert "verbs-" not in os.environ.get("LD_PRELOAD", "")
        """
    )
    result = run(plain)
    result.assert_outcomes(passed=1)
    assert "rnic:" not in result.stdout.str()


def test_any_python(plain: pytest.Pytester) -> None:
    """Guards: tests without pyverbs, by whatever Python, have the NIC, in workers as well."""
    plain.makepyfile(
        """
        import ctypes
        def test_devices():
            verbs = ctypes.CDLL("libibverbs.so.1")
            verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
            verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
            verbs.ibv_get_device_name.restype = ctypes.c_char_p
            devices = verbs.ibv_get_device_list(None)
            assert verbs.ibv_get_device_name(devices[0]) == b"rnic0"
        """
    )
    run(plain, "--rnic").assert_outcomes(passed=1)
    if has("xdist"):
        run(plain, "--rnic", "-n", "1").assert_outcomes(passed=1)


def test_each_failure_has_its_own_words(tests: pytest.Pytester) -> None:
    """Guards: a test is told of what failed during it, not of what failed before."""
    tests.makepyfile(
        """
        from pair import Pair

        def test_expected_failure():
            assert Pair().write(offset=4090) == 10

        def test_no_rdma():
            assert 1 == 2

        def test_length_77():
            assert Pair().write(offset=4090, length=77) == 0
        """
    )
    result = run(tests, "--rnic")
    result.assert_outcomes(passed=1, failed=2)
    assert sections(result, "test_no_rdma") == []
    assert sections(result, "test_length_77") == ["rnic"]
    assert "WRITE of 64 bytes" not in result.stdout.str()
    assert "WRITE of 77 bytes" in result.stdout.str()


def test_the_ini_file_turns_it_on_and_an_option_off(tests: pytest.Pytester) -> None:
    """Guards: two lines of configuration are enough, and the command line counts more."""
    tests.makeini("[pytest]\nrnic = true\nrnic_faults = drop=1%,seed=5\n")
    tests.makepyfile(
        """
        import os
        from pair import Pair
        def test_it():
            assert os.environ["RNIC_FAULTS"] == "drop=0.01,seed=5"
            assert Pair().write() == 0
        """
    )
    result = run(tests)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["rnic: *; faults drop=0.01,seed=5"])
    assert run(tests, "--no-rnic").parseoutcomes() == {"failed": 1}
    tests.makepyfile(
        "import os\ndef test_it(): assert os.environ['RNIC_FAULTS'] == 'dup=0.02,seed=6'"
    )
    run(tests, "--rnic-faults", "dup=2%,seed=6").assert_outcomes(passed=1)


def test_wrong_settings_are_said_before_any_test(plain: pytest.Pytester) -> None:
    """Guards: a mistake in the settings is an error of usage, with the next step."""
    plain.makepyfile("def test_it(): pass")
    result = run(plain, "--rnic-faults", "drop=x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*the fault specification `drop=x` cannot be read*", "*next:*"])
    result = run(plain, "--no-rnic", "--rnic-pcap", "x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_each_test_has_its_own_capture(tests: pytest.Pytester) -> None:
    """Guards: the packets of a test, and no others, are in its file; nothing else is left."""
    tests.makepyfile(
        test_a="""
        import subprocess
        import pytest
        from pair import Pair

        @pytest.mark.parametrize("length", [3, 3000])
        def test_write(length):
            assert Pair().write(length=length) == 0

        def test_nothing():
            pass

        def test_bad():
            assert Pair().write(offset=4090) == 0
        """
    )
    result = run(tests, "--rnic-pcap", "out")
    result.assert_outcomes(passed=3, failed=1)
    folder = tests.path / "out"
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "test_a-test_bad.pcap",
        "test_a-test_write[3000].pcap",
        "test_a-test_write[3].pcap",
    ]
    sizes = {name: (folder / name).stat().st_size for name in names}
    assert 3000 < sizes["test_a-test_write[3000].pcap"] < 6000 * 2 + 1000
    assert sizes["test_a-test_write[3].pcap"] < 1000
    result.stdout.fnmatch_lines([f"packets: `rnic dissect {folder}/test_a-test_bad.pcap`*"])
    import subprocess

    import rnic

    line = [rnic.find(), "dissect", str(folder / "test_a-test_write[3000].pcap")]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert "1 message, 3000 B" in said


def test_workers_of_xdist(tests: pytest.Pytester) -> None:
    """Guards: each worker has the NIC, its failures are its own, and so are its packets."""
    need(has("xdist"), "pytest-xdist")
    tests.makepyfile(
        """
        import os
        import pytest
        from pair import Pair

        @pytest.mark.parametrize("length", range(100, 108))
        def test_bad(length):
            assert os.environ["PYTEST_XDIST_WORKER"]
            assert Pair().write(offset=4090, length=length) == 0
        """
    )
    result = run(tests, "--rnic-pcap", "out", "-n", "2")
    result.assert_outcomes(failed=8)
    for length in range(100, 108):
        name = f"test_bad[{length}]"
        assert sections(result, name)[-1] == "rnic"
        text = result.stdout.str().split(f"_ {name} _")[1].split("\n____")[0]
        assert re.findall(r"WRITE of (\d+) bytes", text) == [str(length)]
    assert len(list((tests.path / "out").iterdir())) == 8


def test_a_worker_that_dies(tests: pytest.Pytester) -> None:
    """Guards: if the process of a test is killed, what the NIC saw before is told."""
    need(has("xdist"), "pytest-xdist")
    tests.makepyfile(
        """
        import os
        from pair import Pair
        def test_dies():
            Pair().write(offset=4090)
            os.abort()
        """
    )
    result = run(tests, "--rnic", "-n", "1", "--max-worker-restart", "0")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*worker 'gw0' crashed*", "*- rnic -*", "*with status 10*"])


def test_a_forked_test(tests: pytest.Pytester) -> None:
    """Guards: a test in a forked child (as of multiprocessing) has the NIC and its words."""
    tests.makepyfile(
        """
        import os
        from pair import Pair
        def test_forks():
            child = os.fork()
            if child == 0:
                os._exit(Pair().write(offset=4090))
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    result = run(tests, "--rnic")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- rnic -*", "*with status 10*", "*cause:*"])


def test_programs_of_a_test(tests: pytest.Pytester) -> None:
    """Guards: programs that a test starts have the NIC, and their failures are the test's."""
    need_program("ib_write_bw")
    tests.makepyfile(
        """
        import subprocess
        from wait import wait_for_listener

        def pair(*options):
            line = ["ib_write_bw", "-x", "0", "-n", "100", "-p", "18732", *options]
            server = subprocess.Popen(line)
            wait_for_listener(18732)
            client = subprocess.run([*line, "127.0.0.1"], timeout=60)
            return client.returncode, server.wait(60)

        def test_bandwidth():
            assert pair() == (0, 0)

        def test_nobody_there():
            subprocess.run(["ibv_rc_pingpong", "-g", "77"], check=True)
        """
    )
    result = run(tests, "--rnic", "-v")
    result.assert_outcomes(passed=1, failed=1)


def test_crash_of_teardown_and_setup(tests: pytest.Pytester) -> None:
    """Guards: what fails in a fixture is told with the fixture's failure, once."""
    tests.makepyfile(
        """
        import pytest
        from pair import Pair

        @pytest.fixture
        def early():
            assert Pair().write(offset=4090, length=11) == 0

        @pytest.fixture
        def late():
            yield
            assert Pair().write(offset=4090, length=22) == 0

        def test_early(early):
            pass

        def test_late(late):
            assert Pair().write(offset=4090, length=33) == 0
        """
    )
    result = run(tests, "--rnic")
    result.assert_outcomes(failed=1, errors=2)
    text = result.stdout.str()
    assert re.findall(r"WRITE of (\d+) bytes", text) == ["11", "22", "33"]


def test_output_without_capture_sections(tests: pytest.Pytester) -> None:
    """Guards: `--show-capture=no` hides what tests print, not the words."""
    tests.makepyfile(GOOD_AND_BAD)
    result = run(tests, "--rnic", "--show-capture=no")
    text = result.stdout.str()
    assert "what the test prints" not in text.split("_ test_bad _")[1].split("assert")[-1]
    assert sections(result, "test_bad") == ["rnic"]


@pytest.mark.parametrize("options", [["-s"], ["--capture=sys"], ["-x", "-q"]])
def test_ways_of_capturing(tests: pytest.Pytester, options: list[str]) -> None:
    """Guards: starting again loses no output and no exit status, however output is captured."""
    tests.makepyfile(GOOD_AND_BAD)
    result = run(tests, "--rnic", *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "with status 10" in result.stdout.str()
    assert "1 failed, 1 passed" in result.stdout.str()


def test_a_program_that_calls_pytest(tests: pytest.Pytester) -> None:
    """Guards: a program is not started twice; it is told how to get the NIC, and that works."""
    import sys

    import rnic

    tests.makepyfile(GOOD_AND_BAD)
    options = [*PLUGIN, "--rnic", "-p", "no:cacheprovider"]
    script = tests.makepyfile(script=f"import pytest, sys\nsys.exit(pytest.main({options!r}))")
    result = tests.run(sys.executable, script, timeout=120)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*a program has called pytest.main*", "*next:*rnic run*"])
    result = tests.run(rnic.find(), "run", "--", sys.executable, script, timeout=120)
    result.assert_outcomes(passed=1, failed=1)
    assert sections(result, "test_bad")[-1] == "rnic"
    assert "status 10" in result.stderr.str(), "the words of rnic run"


def test_nothing_is_left_behind(tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards: reports of a run are gone when it has ended."""
    scratch = tests.mkdir("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    tests.makepyfile(GOOD_AND_BAD)
    run(tests, "--rnic", "--basetemp", str(tests.path / "base"))
    left = [path for path in Path(scratch).rglob("*") if "rnic-pytest" in str(path)]
    assert left == []
