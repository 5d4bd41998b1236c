"""Results are those of the file of digests, with any number of threads, again and again."""

import copy
import json

import pytest
from samples import THREADS
from stored_digests import CALLS, FILE, VERSIONS_OF_SEARCH, digest, types_of, written

from dmlcpu.operators import OPERATORS
from dmlcpu.runtime.threads import use_budget

STORED = json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in CALLS for dtype in types_of(name)])
def test_results_have_the_stored_digest(name, dtype):
    for threads in (*THREADS, 1):
        with use_budget(threads, grain=1):
            assert digest(name, dtype) == STORED[name]["digests"][dtype], f"{threads} threads"


def test_every_operator_has_digests_of_its_version():
    versions = {name: row.version for name, row in OPERATORS.items()} | VERSIONS_OF_SEARCH
    assert {name: each["version"] for name, each in STORED.items()} == versions
    assert all(each["digests"].keys() == set(types_of(name)) for name, each in STORED.items())


def test_digests_of_a_version_are_not_changed():
    changed = copy.deepcopy(STORED)
    changed["top_k"]["digests"]["int8"] = "0" * 64
    with pytest.raises(SystemExit, match="top_k: other bits for int8; raise its version, 1"):
        written(STORED, changed)
    changed["top_k"]["version"] += 1
    assert written(STORED, changed) == changed
    del changed["top_k"]
    assert written(changed, STORED) == STORED
