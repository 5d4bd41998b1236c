"""Every page of the documentation, in Chromium: on a telephone's width and a computer's, in light and dark."""

import os
import subprocess
import sys
from pathlib import Path

import page_checks
import pytest

DOCS = Path(__file__).parents[1] / "docs"
BUILT = os.environ.get("BUILT_DOCS")  # named by .ci/packages; then no test may be left out

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>A page</title>
<link rel="icon" href="data:,">
<style>
  body { background: white; color: black; transition: background-color 9s }
  .only-dark { display: none }
  @media (prefers-color-scheme: dark) {
    body { background: black; color: white }
    a { color: yellow }
    .only-light { display: none }
    .only-dark { display: inline }
  }
</style>
"""
SOUND = """
<h1 id="a b">A page</h1>
<p class="only-light">in the light <p class="only-dark">in the dark
<img src="pixel.svg" alt=""> <img src="pixel.svg" alt="" loading="lazy" style="display: none">
<div style="overflow-x: auto"><pre style="width: 3000px">a table</pre></div>
<p style="color: #767676; background: white">nearly faint
<p style="width: 1px; overflow: hidden">for_screen_readers
<p hidden style="color: white; background: white">hidden
<a href="#a%20b">up</a> <a href="page.html?q=1#a%20b">up</a> <a href="pixel.svg">a file</a> <a href="https://a.org">away</a>
<script>console.log("loaded")</script>
"""
CHART = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 9"><text style="font-size: 10px">a</text></svg>'
PIXEL = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'

# What is wrong with a page, and what is said about it.
EACH = ("390 px, light", "390 px, dark", "1280 px, light", "1280 px, dark")
FAULTS = {
    "a warning": ("<script>console.warn('old')</script>", ["page.html: warning on the console: old"]),
    "an error": ("<script>console.error('bad')</script>", ["page.html: error on the console: bad"]),
    "an exception": ("<script>throw Error('bad')</script>", ["page.html: error of a script: bad"]),
    "a missing file": (
        "<script src='none.js'></script>",
        ["page.html: error on the console: Failed to load resource: net::ERR_FILE_NOT_FOUND"],
    ),
    "a request to another host": (
        "<script src='https://a.org/b.js'></script>",
        [
            "page.html: asks for https://a.org/b.js",
            "page.html: error on the console: Failed to load resource: net::ERR_NAME_NOT_RESOLVED",
        ],
    ),
    "a request out of the folder": (
        "<script src='../b.js'></script>",
        [
            "page.html: asks for {above}/b.js",
            "page.html: error on the console: Failed to load resource: net::ERR_FILE_NOT_FOUND",
        ],
    ),
    "a link to no file": (
        "<a href='none.html#a'>there</a>",
        ['page.html: the link <a> "there" leads to no file: {folder}/none.html#a'],
    ),
    "a link to no id": (
        "<a id=b class=c href='#none'>there</a>",
        ['page.html: the link <a#b.c> "there" leads to no element of that page: {folder}/page.html#none'],
    ),
    "a link out of the folder": (
        "<a href='../b.html'>there</a>",
        ['page.html: the link <a> "there" leads out of the folder: {above}/b.html'],
    ),
    "no image": ("<img src='data:,' alt=''>", ["page.html: <img> cannot be shown: data:,"]),
    "a wide line": (
        "<div style='width: 500px'><b style='display: block'>wide</b></div>",
        [f'page.html: {at}: scrolls sideways, to {{width}} px: <b> "wide"' for at in EACH[:1]],
    ),
    "a cut line": (
        "<article><p style='width: 99px; overflow: hidden'>{line}</article>",
        [f'page.html: {at}: <p> "{{line}}" is cut off' for at in EACH[::2]],
    ),
    "wide code": (
        "<article><pre style='overflow: auto'>{code}</pre></article>",
        [f'page.html: {at}: <pre> "{{code:.40}}" is {{wide}} px wide, not 1264' for at in EACH[2:3]],
    ),
    "a wide table": (
        "<article><div class=table-wrapper style='overflow: auto'><p style='width: 1999px'>wide</div></article>",
        [f'page.html: {at}: <div.table-wrapper> "wide" is 1999 px wide, not 1264' for at in EACH[2:3]],
    ),
    "small letters": (
        "<p style='font-size: 10.9px'>small",
        [f'page.html: {at}: <p> "small" has letters of 10.9 px' for at in EACH[:1]],
    ),
    "a small drawing": (
        "<svg viewBox='0 0 200 20' width=100 height=10><text y=10 fill=currentColor>drawn</text></svg>",
        [f'page.html: {at}: <text> "drawn" has letters of 8.0 px' for at in EACH[:1]],
    ),
    "a small chart": (
        "<picture><source media='(max-width: 46em)' srcset=chart.svg><img src=pixel.svg alt='' width=100></picture>",
        [f"page.html: {at}: <img> has letters of 5.0 px" for at in EACH[:2]],
    ),
    "one background": (
        "<style>body { background: white !important; color: black !important } a { color: blue !important }</style>",
        [f"page.html: {at}: <body> has the background of light, rgb(255, 255, 255)" for at in EACH[1::2]],
    ),
    "pale text": (
        "<p style='color: #777; background: white'>pale",
        [
            f'page.html: {at}: <p> "pale" has a contrast of 4.48, rgb(119, 119, 119) on rgb(255, 255, 255)'
            for at in EACH[2:]
        ],
    ),
    "a drawing for light pages": (
        "<svg><text>drawn</text></svg>",
        [f'page.html: {at}: <text> "drawn" has a contrast of 1.00, rgb(0, 0, 0) on rgb(0, 0, 0)' for at in EACH[3:]],
    ),
    "an image of the other scheme": (
        "<b class=only-dark style='display: inline'>dark</b>",
        [f'page.html: {at}: <b.only-dark> "dark" is shown' for at in EACH[::2]],
    ),
    "no image of the scheme": (
        "<b class=only-dark style='display: none'>dark</b>",
        [f'page.html: {at}: <b.only-dark> "dark" is hidden' for at in EACH[1::2]],
    ),
}


def leave_out(reason):
    (pytest.fail if BUILT else pytest.skip)(reason)


@pytest.fixture(scope="module")
def browser():
    if page_checks.CHROMIUM is None:
        leave_out("there is no command chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        leave_out(f"Playwright is not installed ({error})")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=page_checks.CHROMIUM, args=page_checks.ARGUMENTS) as started,
    ):
        yield started


@pytest.fixture
def site(browser, tmp_path):  # the browser is first: without one, nothing is built
    if BUILT:
        return Path(BUILT)
    for name in ("sphinx", "furo", "numpydoc"):
        pytest.importorskip(name)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", DOCS, tmp_path / "html"]
    subprocess.run(command, check=True)
    return tmp_path / "html"


@pytest.mark.slow
def test_all_pages(browser, site):
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    written = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.rst")}
    assert built >= written
    assert not written & {Path("search"), Path("genindex")}, "Sphinx overwrites these with pages of its own"
    found = page_checks.faults(browser, site)
    assert not found, "\n".join(found)


def faults_of(browser, folder, body):
    folder.mkdir()
    (folder / "page.html").write_text(PAGE + body, "utf-8")
    (folder / "pixel.svg").write_text(PIXEL, "utf-8")
    (folder / "chart.svg").write_text(CHART, "utf-8")
    return page_checks.faults(browser, folder)


def test_a_sound_page_has_no_faults(browser, tmp_path):
    assert faults_of(browser, tmp_path / "html", SOUND) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, browser, tmp_path):
    body, expected = FAULTS[fault]
    places = {
        "folder": (tmp_path / "html").as_uri(),
        "above": tmp_path.as_uri(),
        "line": "0123456789" * 4,
        "width": 508,
        "code": "0123456789" * 30,
        "wide": 2348,
    }
    for name in ("line", "code"):
        body = body.replace(f"{{{name}}}", places[name])
    found = faults_of(browser, tmp_path / "html", body)
    assert found == [line.format(**places) for line in expected]
