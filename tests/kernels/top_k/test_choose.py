"""What is chosen for a problem can do it."""

import itertools

from dmlcpu.kernels import registry
from dmlcpu.kernels.top_k.choose import NAMES, choose
from dmlcpu.kernels.top_k.work import Problem

SIZES = (1, 2, 7, 8, 9, 16, 17, 31, 32, 256, 257, 10_000, 10_001, 2**32)


def test_choose_takes_every_kernel_somewhere_and_only_where_it_is_supported():
    kernels, chosen = {row.name: row for row in registry.rows("top_k")}, set()
    for n, k, rows, columns, is_packed in itertools.product(SIZES, SIZES, (1, 3), (1, 2, 8), (True, False)):
        if k <= n:
            problem = Problem(rows * columns, n, k, 1 if is_packed and columns == 1 else 5, columns)
            name = NAMES[choose(*problem)]
            assert kernels[name].supports(problem), (name, problem)
            chosen.add(name)
    assert chosen == set(NAMES)
