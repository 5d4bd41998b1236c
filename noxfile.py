"""Tests with other versions of Python, Numba and NumPy, and with other settings: `nox` runs all, `nox -l` lists them.

`nox -s "versions(3.14-0.68-2.5)" -- tests/operators` runs other tests in one of the sessions.

docs/versions.rst has the results of the last whole run, and a row for each session here.
"""

import nox

nox.options.sessions = ["versions", "settings"]
nox.options.error_on_missing_interpreters = True

# Python, Numba, NumPy: each version of Python, the oldest and the newest of the others, and what is between.
VERSIONS = [
    ("3.11", "0.66", "2.0"),
    ("3.11", "0.68", "2.4"),
    ("3.12", "0.67", "2.5"),
    ("3.13", "0.68", "2.1"),
    ("3.14", "0.68", "2.5"),
    ("3.15", "0.68", "2.5"),
]
NEWEST = ("3.14", "0.68", "2.5")  # that all packages of the tests are there for

SETTINGS = {
    "generic": {"DMLCPU_ISA": "generic"},
    "one-thread": {"DMLCPU_NUM_THREADS": "1"},
    "omp": {"NUMBA_THREADING_LAYER": "omp"},
    "tbb": {"NUMBA_THREADING_LAYER": "tbb"},
    "workqueue": {"NUMBA_THREADING_LAYER": "workqueue"},
}

# Each version compiles the kernels anew, which takes minutes: so the digests stand for the comparisons with the
# reference. No test needs a package that may have no wheels.
BITS = ["tests/conformance/test_stored_digests.py", "tests/search/test_random_searches.py"]
OF_VERSIONS = [
    "tests/runtime/test_cache.py",
    "tests/runtime/test_jit.py",
    "tests/runtime/test_memory.py",
    "tests/runtime/test_results.py",
]
TOOLS = ["hypothesis", "ml_dtypes", "pytest", "pytest-xdist", "threadpoolctl"]


@nox.session
@nox.parametrize(("python", "numba", "numpy"), VERSIONS, ids=["-".join(each) for each in VERSIONS])
def versions(session: nox.Session, numba: str, numpy: str) -> None:
    """Compare bits, and test what depends most on Numba and NumPy."""
    test(session, numba, numpy, *BITS, *OF_VERSIONS)


@nox.session(python=NEWEST[0])
@nox.parametrize("setting", list(SETTINGS), ids=list(SETTINGS))
def settings(session: nox.Session, setting: str) -> None:
    """Compare bits with this setting and the newest versions."""
    test(session, *NEWEST[1:], *BITS, **SETTINGS[setting])


# Not in `nox.options.sessions`: few systems have such an interpreter.
@nox.session(python=f"{NEWEST[0]}t")
def free_threaded(session: nox.Session) -> None:
    """Without a GIL: compare bits, and let threads use what they share."""
    test(session, *NEWEST[1:], *BITS, "tests/reliability/test_free_threaded.py", PYTHON_GIL="0")


def test(session: nox.Session, numba: str, numpy: str, *tests: str, **environment: str) -> None:
    """Install and test. The compiled kernels are shared by sessions with the same versions."""
    session.install("-e", ".[cli,tbb]", f"numba=={numba}.*", f"numpy=={numpy}.*", *TOOLS)
    cache = session.cache_dir / f"kernels-{session.python}-{numba}-{numpy}"
    environment["NUMBA_CACHE_DIR"] = str(cache)
    session.run("python", "-c", "import sys, numba, numpy; print(sys.version, numba.__version__, numpy.__version__)")
    session.run("python", "-m", "pytest", "-n", "auto", "-q", *(session.posargs or tests), env=environment)
