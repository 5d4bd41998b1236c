"""The words that CONTRIBUTING.md lists are not used in pages, docstrings and messages."""

import ast
import fnmatch
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_LIST = re.compile(r"^\| Not used \| Instead \|\n\|---\|---\|\n((?:\|.*\n)+)", re.MULTILINE)
# Code is not prose: blocks, examples, names of parameters, literals and the targets of links.
_CODE = re.compile(
    r"^```[\s\S]*?^```$|^( *)\.\. (?:code-block|literalinclude|raw)::.*(?:\n(?:\1 +.*)?)*|^ *(?::\w+:.*|>>>|\.\.\.) .*$"
    r"|^ *\w[\w, ]* : |``[^`]+``|`[^`]+`_?|\]\([^)]*\)",
    re.MULTILINE,
)

# Files (a pattern) and phrases that they may use, with the reason.
ALLOWED = {("docs/history/*.rst", "of our own"): "the page quotes the messages of commits"}


def listed() -> list[str]:
    """Return the phrases of the list."""
    found = _LIST.search((ROOT / "CONTRIBUTING.md").read_text())
    assert found
    return re.findall(r"`([^`]+)`", "\n".join(row.split("|")[1] for row in found[1].splitlines()))


def pattern_of(phrase: str) -> "re.Pattern[str]":
    """Return what finds a phrase in prose: whole words, at the beginning of a sentence if it is capitalized."""
    words = r"\s+".join(map(re.escape, phrase.split()))
    if phrase[0].isupper():
        return re.compile(rf"(?:\A|[.:!?]\s+|\n\s*\n\s*(?:- )?){words}\b")
    before = "" if phrase[0] == "," else r"(?<![\w-])"
    return re.compile(rf"{before}{words}(?![\w'-])(?! \d)")


@functools.cache
def patterns() -> list[tuple[str, "re.Pattern[str]"]]:
    return [(phrase, pattern_of(phrase)) for phrase in listed()]


def prose(text: str) -> str:
    """Return a text without its code, with the same number of lines."""
    return _CODE.sub(lambda code: "\n" * code[0].count("\n") or "X", text)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a page, or the docstrings and messages of a module, each with its first line."""
    content = path.read_text()
    if path.name == "CONTRIBUTING.md":
        yield 1, _LIST.sub("", content)
    elif path.suffix == ".py":
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield node.lineno, node.value
    else:
        yield 1, content


def files() -> list[Path]:
    pages = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    return sorted([*pages, *(ROOT / "docs").rglob("*.rst"), *(ROOT / "dmlcpu").rglob("*.py")])


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield each phrase of the list in a text, with its line, counted from 0."""
    clean = prose(text)
    for phrase, pattern in patterns():
        for match in pattern.finditer(clean):
            yield clean.count("\n", 0, match.end()), phrase


def test_pages_docstrings_and_messages_do_not_use_them() -> None:
    found, needed = [], set()
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        for start, text in texts(path):
            for line, phrase in found_in(text):
                exceptions = [key for key in ALLOWED if fnmatch.fnmatch(name, key[0]) and key[1] == phrase]
                needed.update(exceptions)
                if not exceptions:
                    found.append(f"{name}:{start + line}: {phrase}")
    assert not found, "\n".join(found)
    assert needed == ALLOWED.keys()


@pytest.mark.parametrize("phrase", listed())
def test_each_is_found_in_prose_and_not_in_code(phrase: str) -> None:
    sentence = f"It works. {phrase} works." if phrase[0].isupper() else f"It has\n  {phrase} words."
    assert phrase in {each for _, each in found_in(sentence)}
    assert not [*found_in(f"It has ``a {phrase} b`` words.")]
    assert not [*found_in(f"Text:\n\n.. code-block:: python\n\n   {sentence}\n\nMore.")]


def test_other_words_are_not_found() -> None:
    text = "The right-hand side, a default, NumPy's, of Numba 0.68, tools, besides, of NumPy-like arrays. It is true."
    assert not [*found_in(text)]
