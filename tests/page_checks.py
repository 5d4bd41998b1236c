"""Checks of built HTML pages in headless Chromium. page_checks.js has those of one page as it is shown."""

import functools
import math
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urldefrag
from urllib.request import url2pathname

WIDTHS = (390, 1280)  # a telephone's and a computer's, in CSS pixels
SCHEMES = ("light", "dark")
LEAST_LETTERS = 11  # of a drawing on a telephone, in CSS pixels; page_checks.js has it for texts
CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",  # Chromium cannot set it up for root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no name has an address
]
CHECKS = f"() => {{ {Path(__file__).with_suffix('.js').read_text('utf-8')} return {{ contents, appearance }} }}"


def faults(browser, folder):
    """Return a line for each fault of the HTML pages below a folder."""
    folder = folder.resolve()
    found, ids, links = [], {}, []
    with browser.new_page() as page:  # one for all, because opening another takes as long as loading a file
        wrong = []
        watch(page, f"{folder.as_uri()}/", wrong.append)
        for path in sorted(folder.rglob("*.html")):
            name = path.relative_to(folder).as_posix()
            contents = load(page, path, wrong)
            found += [f"{name}: {fault}" for fault in wrong]
            wrong.clear()
            ids[path] = set(contents["ids"])
            links += [(name, *link) for link in contents["links"]]
    for name, url, element in links:
        if url.startswith("file:") and (where := broken(url, folder, ids)):
            found.append(f"{name}: the link {element} leads {where}: {url}")
    return found


def load(page, path, wrong):
    """Load a file, append its faults to a list, and return its ids and links."""
    page.goto(path.as_uri())
    checks = page.evaluate_handle(CHECKS)
    contents = checks.evaluate("checks => checks.contents()")
    wrong += contents["faults"]
    wrong += appearances(page, checks)
    return contents


def watch(page, root, report):
    """Report what the console shows, errors of scripts, and requests for other addresses."""

    def request(made):
        if not made.url.startswith((root, "data:")):
            report(f"asks for {made.url}")

    def message(shown):
        if shown.type in ("error", "warning"):
            report(f"{shown.type} on the console: {shown.text}")

    page.on("request", request)
    page.on("console", message)
    page.on("pageerror", lambda error: report(f"error of a script: {error}"))


def appearances(page, checks):
    """Yield the faults of a page at each width and in each color scheme."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        narrow = width == min(WIDTHS)
        backgrounds = {}
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            seen = checks.evaluate("(checks, [scheme, narrow]) => checks.appearance(scheme, narrow)", [scheme, narrow])
            yield from (f"{width} px, {scheme}: {fault}" for fault in [*seen["faults"], *small(seen["drawings"])])
            backgrounds[scheme] = seen["background"]
        if backgrounds["light"] == backgrounds["dark"]:
            yield f"{width} px, dark: <body> has the background of light, rgb({backgrounds['dark']})"


def small(drawings):
    """Yield the drawings whose letters are small as they are shown."""
    for element, url, width in drawings:
        size = width * least_letters(url)
        if size < LEAST_LETTERS:
            yield f"{element} has letters of {size:.1f} px"


@functools.cache
def least_letters(url):
    """Return the size of the smallest letters of a drawing, where its width is 1; infinity if it has none."""
    path = Path(url2pathname(url.removeprefix("file://")))
    if path.suffix != ".svg" or not path.is_file():
        return math.inf
    text = path.read_text("utf-8")
    sizes = [float(size) for size in re.findall(r"font(?:-size)?:[^;]*?([\d.]+)px", text)]
    return min(sizes) / float(re.search(r'viewBox="0 0 ([\d.]+) ', text)[1]) if sizes else math.inf


def broken(url, folder, ids):
    """Say where a link leads, if not to a file of the folder and, in a page, to an id."""
    address, fragment = urldefrag(url)
    path = Path(url2pathname(address.partition("?")[0].removeprefix("file://")))
    if not path.is_relative_to(folder):
        return "out of the folder"
    if not path.is_file():
        return "to no file"
    if fragment and unquote(fragment) not in ids.get(path, ()):
        return "to no element of that page"
    return ""
