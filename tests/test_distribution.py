"""The source distribution has all files of the repository, so that its tests can run from it; files beside it agree."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import dmlcpu

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def test_the_source_distribution_is_the_repository(tmp_path):
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = ""
    if not listed:  # an unpacked archive, perhaps within another repository
        pytest.skip("git does not say what the repository holds: this is no clone")
    copy = tmp_path / "copy"  # building leaves files behind
    for name in listed.splitlines():
        if (ROOT / name).exists():  # else it is deleted, which is not committed yet
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=copy, capture_output=True, check=True, timeout=120)
    (archive,) = tmp_path.glob("dmlcpu-*.tar.gz")
    with tarfile.open(archive) as packed:
        held = {member.name.partition("/")[2] for member in packed.getmembers() if member.isfile()}
    expected = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    made = {name for name in held | expected if ".egg-info/" in name} | {"PKG-INFO"}
    assert held - made == expected - made


def test_the_citation_names_this_version():
    assert f"\nversion: {dmlcpu.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
