"""The module: the environment, commands, and how it finds the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import need_program, wait_for_listener

import rnic
from rnic import _program


def test_version_is_that_of_the_program() -> None:
    """Guards: module and program are of one release."""
    line = subprocess.run([rnic.find(), "--version"], capture_output=True, text=True, check=True)
    assert line.stdout.split()[-1] == rnic.version


def test_env_gives_a_child_the_nic() -> None:
    """Guards: a child with `rnic.env()` sees the device, without `rnic run`."""
    need_program("ibv_devices")
    seen = subprocess.run(
        ["ibv_devices"], env=rnic.env(), capture_output=True, text=True, check=True
    )
    assert "rnic0" in seen.stdout


def test_env_adds_to_what_is_there() -> None:
    """Guards: the environment is kept, what was preloaded stays, and nested calls add nothing."""
    base = {"A": "1", "LD_PRELOAD": "/x.so", "PATH": os.environ["PATH"]}
    once = rnic.env(faults="drop=1%,seed=3", base=base)
    assert once["A"] == "1"
    assert once["LD_PRELOAD"].endswith(":/x.so")
    assert once["RNIC_FAULTS"] == "drop=0.01,seed=3"
    again = rnic.env(base=once)
    assert again == once
    assert base == {"A": "1", "LD_PRELOAD": "/x.so", "PATH": os.environ["PATH"]}


@pytest.mark.parametrize("faults", ["nonsense", "drop=101%", ""])
def test_what_makes_no_sense_is_refused_in_words(faults: str) -> None:
    """Guards: a wrong setting is an error with the cause and the next step."""
    with pytest.raises(rnic.RnicError, match=r"(?s)cannot be read.*next:"):
        rnic.env(faults=faults)


def test_a_file_that_is_no_capture_is_left_alone(tmp_path: Path) -> None:
    """Guards: a wrong path for packets destroys nothing."""
    file = tmp_path / "main.c"
    file.write_text("int main;")
    with pytest.raises(rnic.RnicError, match="is not a capture"):
        rnic.env(pcap=file)
    assert file.read_text() == "int main;"


def test_run_and_command() -> None:
    """Guards: `run` is subprocess.run with its arguments, and passes on status and output."""
    done = rnic.run(["sh", "-c", "echo out; exit 3"], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (3, "out\n")
    with pytest.raises(subprocess.CalledProcessError):
        rnic.run(["false"], check=True)
    line = rnic.command([Path("/bin/true")], faults="drop=1%", seed=7, quiet=True)
    assert line[1:] == ["run", "--faults=drop=1%", "--seed=7", "--quiet", "--", "/bin/true"]
    assert subprocess.run(line, check=True).returncode == 0


def test_perftest_and_its_packets(tmp_path: Path) -> None:
    """Guards: a server by `env` and a client by `run` meet, with faults and a capture."""
    need_program("ib_send_lat")
    capture = tmp_path / "client.pcap"
    arguments = ["ib_send_lat", "-x", gid_of_loopback(), "-n", "50", "-p", "18731"]
    with subprocess.Popen(arguments, env=rnic.env(), stdout=subprocess.PIPE, text=True) as server:
        wait_for_listener(18731)
        client = rnic.run(
            [*arguments, "127.0.0.1"],
            faults="drop=1%,seed=1",
            pcap=capture,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        server.communicate(timeout=60)
        assert server.returncode == 0
    assert client.returncode == 0, client.stdout
    assert "t_typical" in client.stdout
    assert capture.stat().st_size > 24
    said = subprocess.run([rnic.find(), "dissect", str(capture)], capture_output=True, check=True)
    assert b"SEND" in said.stdout


def gid_of_loopback() -> str:
    """Return the index of the GID of 127.0.0.1."""
    import json

    answer = subprocess.run([rnic.find(), "devices", "--json"], capture_output=True, check=True)
    text = json.loads(answer.stdout)
    for device in text["devices"]:
        for port in device["ports"]:
            for gid in port["gids"]:
                if "127.0.0.1" in (gid.get("address"), gid.get("ip")):
                    return str(gid["index"])
    raise AssertionError(text)


def test_explain_begins_where_it_is_told(tmp_path: Path) -> None:
    """Guards: what was recorded before a byte of the report is not told again."""
    report = tmp_path / "report"
    process = '{"record":"process","process":1,"pid":5,"program":"py"}\n'
    opened = '{"record":"opened","process":1,"ns":1}\n'
    verb = '{"record":"verb","process":1,"ns":9,"verb":"ibv_%s","errno":22,"reason":"a reason"}\n'
    first = process + opened + verb % "one"
    report.write_text(first + verb % "two")
    words = rnic.explain(report, len(first), "test_it")
    assert words.startswith("rnic: test_it failed; no work request had failed")
    assert "py (pid 5)" in words
    assert "ibv_two" in words
    assert "ibv_one" in rnic.explain(report) + (tmp_path / "report").read_text()
    assert rnic.explain(report, len(first + verb % "two")) == ""
    with pytest.raises(rnic.RnicError, match="cannot read the report file"):
        rnic.explain(tmp_path / "none")


def test_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards: RNIC_BIN counts first, and a script of that name is not taken for the program."""
    program = rnic.find()
    link = tmp_path / "other"
    link.symlink_to(program)
    monkeypatch.setenv("RNIC_BIN", str(link))
    assert rnic.find() == str(Path(program).resolve())
    monkeypatch.setenv("RNIC_BIN", str(tmp_path / "none"))
    with pytest.raises(rnic.RnicError, match="RNIC_BIN"):
        rnic.find()
    monkeypatch.delenv("RNIC_BIN")
    monkeypatch.setattr(_program, "_folders", lambda: iter([str(tmp_path)]))
    script = tmp_path / "rnic"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(rnic.RnicError, match="not here"):
        rnic.find()
    script.unlink()
    script.symlink_to(program)
    assert rnic.find() == str(script)


def test_the_module_is_the_program() -> None:
    """Guards: `python -m rnic` is `rnic`."""
    line = [sys.executable, "-m", "rnic", "--version"]
    answer = subprocess.run(line, capture_output=True, text=True, check=True)
    assert answer.stdout == f"rnic {rnic.version}\n"
