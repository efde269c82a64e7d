"""The wheel that `tools/wheel` builds: a true tag, the same bytes, and nothing wrong in it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import need, need_program

import rnic

TOOL = Path(__file__).resolve().parents[2] / "tools" / "wheel"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the program and its library, stripped."""
    need(sys.version_info >= (3, 11), "Python 3.11, which tools/wheel needs")
    need_program("strip")
    folder = tmp_path_factory.mktemp("parts")
    library = Path(rnic.env()["LD_PRELOAD"].split(":")[0]).resolve()
    for source in (Path(rnic.find()).resolve(), library):
        subprocess.run(["strip", "-o", folder / source.name, source], check=True)
    return folder / Path(rnic.find()).resolve().name, folder / library.name


def build(parts: tuple[Path, Path], out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel of both."""
    return tool(out, "--binary", str(parts[0]), "--library", str(parts[1]), *options)


def tool(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run tools/wheel."""
    line = [sys.executable, str(TOOL), "--out", str(out), *options]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def carries_its_library(program: Path, scratch: Path) -> bool:
    """Tell a release, which is one file, from a build of the workspace."""
    alone = scratch
    alone.mkdir()
    shutil.copy(program, alone / "rnic")
    environment = {"RNIC_RUNTIME_DIR": str(alone / "runtime"), "HOME": str(alone)}
    line = [str(alone / "rnic"), "run", "--print-env"]
    done = subprocess.run(line, env=environment, capture_output=True, check=False)
    return done.returncode == 0


def wheel_of(parts: tuple[Path, Path], out: Path) -> Path:
    """Build a wheel that has to come about."""
    if carries_its_library(parts[0], out.parent / f"{out.name}-scratch"):
        done = tool(out, "--binary", str(parts[0]), "--newest-glibc")
    else:
        done = build(parts, out, "--newest-glibc")
    assert done.returncode == 0, done.stderr
    (wheel,) = out.iterdir()
    return wheel


def test_the_same_files_give_the_same_bytes(parts: tuple[Path, Path], tmp_path: Path) -> None:
    """Guards: a wheel can be rebuilt, whatever the times of the files are."""
    first = wheel_of(parts, tmp_path / "a")
    for part in parts:
        part.touch()
    assert first.read_bytes() == wheel_of(parts, tmp_path / "b").read_bytes()


def test_the_tag_is_what_the_files_need(parts: tuple[Path, Path], tmp_path: Path) -> None:
    """Guards: the level of the tag is that of the newest symbol version, as readelf sees it."""
    need_program("readelf")
    needs = [(2, 5)]
    for part in parts:
        text = subprocess.run(["readelf", "-V", part], capture_output=True, text=True, check=True)
        found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", text.stdout)
        needs += [(int(major), int(minor)) for major, minor in found]
    major, minor = max(needs)
    wheel = wheel_of(parts, tmp_path / "out")
    assert f"-py3-none-manylinux_{major}_{minor}_" in wheel.name
    assert wheel.stat().st_size <= 4_000_000


def test_the_list_of_contents_is_right(parts: tuple[Path, Path], tmp_path: Path) -> None:
    """Guards: installers that check the list accept it, and the program may be executed."""
    import base64
    import csv

    with zipfile.ZipFile(wheel_of(parts, tmp_path / "out")) as archive:
        names = set(archive.namelist())
        info = f"rnic-{rnic.version}.dist-info"
        rows = list(csv.reader(archive.read(f"{info}/RECORD").decode().splitlines()))
        assert {row[0] for row in rows} == names
        for name, digest, size in rows:
            content = archive.read(name)
            if digest:
                plain = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
                assert (digest, int(size)) == (f"sha256={plain.rstrip('=')}", len(content))
        program = archive.getinfo(f"rnic-{rnic.version}.data/scripts/rnic")
        assert program.external_attr >> 16 & 0o111
        assert "rnic/py.typed" in names
        assert "rnic = rnic.pytest_plugin" in archive.read(f"{info}/entry_points.txt").decode()


def test_a_wheel_that_would_lie_is_refused(parts: tuple[Path, Path], tmp_path: Path) -> None:
    """Guards: no wheel comes of files of two machines, with debug information, or no ELF at all."""
    program, library = parts
    other = tmp_path / "other.so"
    content = bytearray(library.read_bytes())
    content[18:20] = (183 if content[18] == 62 else 62).to_bytes(2, "little")
    other.write_bytes(content)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho rnic 0.1.0\n")
    script.chmod(0o755)
    fake = tmp_path / "fake"
    shutil.copy("/bin/true", fake)
    for pair, words in (
        ((program, other), "the library for"),
        ((script, library), "is no program"),
        ((fake, library), "three versions"),
    ):
        out = tmp_path / "out"
        done = build(pair, out)
        assert done.returncode == 1
        assert re.search(words, done.stderr), done.stderr
        assert not list(out.glob("*")) if out.exists() else True
