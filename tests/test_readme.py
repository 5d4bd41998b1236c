"""The README's two commands are what .ci/run runs, and the lines it shows stand on the pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_ci_runs_the_two_commands():
    shell = (ROOT / "README.md").read_text().split("```sh\n")[1:]
    commands = [block.split("\n```")[0] for block in shell]
    assert len(commands) == 2
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert all(command in lines for command in commands)


def test_lines_to_change_are_on_the_pages_they_link_to():
    rows = re.findall(r"^\| `(.*)` \| `(.*)`.* \| \[.*\]\((.*)\) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(rows) == 5
    for before, after, page in rows:
        text = (ROOT / page).read_text()
        assert before in text
        assert after in text
