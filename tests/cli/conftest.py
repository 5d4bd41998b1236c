import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_calls import MODEL, Run
from told import without_compiling

from dmlcpu import cli
from dmlcpu.runtime import isa, threads


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.json"
    path.write_text("// top-k of four\n" + json.dumps(MODEL))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line; return the exit code, and the lines on stdout and stderr."""

    def call(*argv: object) -> tuple[int, list[str], list[str]]:
        code = cli.main(list(map(str, argv)))
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), without_compiling(captured.err).splitlines()

    return call


@pytest.fixture
def fresh_environment() -> Iterator[None]:
    """Let the runtime read its environment variables again, before and after."""
    before = threads._budgets

    def forget() -> None:
        isa.allowed.cache_clear()
        threads._budgets = None

    forget()
    yield
    isa.allowed.cache_clear()
    threads._budgets = before
