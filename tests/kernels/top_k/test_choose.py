"""What is chosen for a problem can do it."""

import itertools

from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k import choose as choose_module
from dmlcpu.kernels.top_k.choose import LOCKSTEP, NAMES, choose, lockstep_work
from dmlcpu.kernels.top_k.work import Problem

SIZES = (1, 2, 7, 8, 9, 16, 17, 31, 32, 256, 257, 10_000, 10_001, 2**32)


def test_choose_takes_every_kernel_somewhere_and_only_where_it_is_supported():
    kernels, chosen = {row.name: row for row in registry.rows("top_k")}, set()
    for n, k, rows, columns, is_packed in itertools.product(SIZES, SIZES, (1, 3), (1, 2, 8), (True, False)):
        if k <= n:
            problem = Problem(rows * columns, n, k, 1 if is_packed and columns == 1 else 5, columns)
            name = NAMES[choose(*problem, 8192)]
            assert kernels[name].supports(problem), (name, problem)
            chosen.add(name)
    assert chosen == set(NAMES)


def test_lockstep_does_less_work_the_wider_its_elements_are(monkeypatch):
    for features, expected in (({"avx2"}, [8192, 8192, 1280, 400]), ({"avx2", "avx512vl"}, [8192, 8192, 8192, 2048])):
        monkeypatch.setattr(choose_module, "target_features", lambda features=features: features)
        assert [lockstep_work(width) for width in (1, 2, 4, 8)] == expected


def test_lockstep_is_chosen_up_to_its_work():
    assert choose(2, 100, 4, 1, 1, 400) == LOCKSTEP
    assert choose(2, 100, 4, 1, 1, 399) != LOCKSTEP
    assert choose(1, 100, 4, 1, 1, 400) != LOCKSTEP  # a single sequence
