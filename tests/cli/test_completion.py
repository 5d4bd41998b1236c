"""The completion scripts: bash runs its own, as the Tab key does."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import Run

from dmlcpu.operators import OPERATORS

HAS_BASH = os.name == "posix" and shutil.which("bash") is not None


@pytest.fixture
def script(run: Run) -> str:
    code, out, err = run("--print-completion", "bash")
    assert (code, err) == (0, [])
    return "\n".join(out)


def completed(script: str, *words: str, cwd: Path | None = None) -> list[str]:
    """Return what bash offers for the last word."""
    line = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
    program = f"{script}\n{line}; _shtab_dmlcpu; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", program], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.skipif(not HAS_BASH, reason="no bash")
def test_bash_completes_commands_options_and_choices(script: str) -> None:
    commands = {name.replace("_", "-") for name in OPERATORS}
    assert {"run", "batch", "status", "search", "warmup", "info", *commands} == set(completed(script, "dmlcpu", ""))
    assert completed(script, "dmlcpu", "search", "") == ["build", "query"]
    assert completed(script, "dmlcpu", "search", "build", "--met") == ["--metric"]
    assert completed(script, "dmlcpu", "search", "build", "x.npy", "--metric", "") == ["ip", "l2", "cosine"]
    assert completed(script, "dmlcpu", "top-k", "--la") == ["--largest"]
    assert completed(script, "dmlcpu", "warmup", "--ops", "top") == ["top_k"]
    assert completed(script, "dmlcpu", "--print-completion", "z") == ["zsh"]


@pytest.mark.skipif(not HAS_BASH, reason="no bash")
def test_bash_completes_names_of_files(script: str, tmp_path: Path) -> None:
    (tmp_path / "scores.npy").touch()
    for words in (["run"], ["top-k"], ["top-k", "x.npy", "-o"], ["search", "query", "c.index"]):
        assert completed(script, "dmlcpu", *words, "sc", cwd=tmp_path) == ["scores.npy"]


def test_other_shells_have_the_same_commands(run: Run) -> None:
    for shell in ("zsh", "tcsh"):
        code, out, err = run("--print-completion", shell)
        assert (code, err) == (0, [])
        assert all(name in "\n".join(out) for name in ("search", "quantized-matmul", "--metric"))
    code, out, err = run("--print-completion", "fish")
    assert (code, out) == (2, [])
    assert "argument --print-completion: 'fish'; allowed: bash, zsh, tcsh" in err[-1]


def test_without_shtab(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    message = "dmlcpu: the command line needs the package shtab: pip install '.[cli]' in a clone of dmlcpu"
    assert run("--print-completion", "bash") == (2, [], [message])
