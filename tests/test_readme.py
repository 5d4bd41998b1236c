"""The README's two commands are what .ci/run runs."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_ci_runs_the_two_commands():
    shell = (ROOT / "README.md").read_text().split("```sh\n")[1:]
    commands = [block.split("\n```")[0] for block in shell]
    assert len(commands) == 2
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert all(command in lines for command in commands)
