import pytest
from processes import run, run_each

from dmlcpu.kernels import registry
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import isa


def test_names_are_unique_within_a_stage():
    keys = [(row.operator, row.stage, row.name) for row in registry.rows()]
    assert len(set(keys)) == len(keys)


def test_every_row_is_named_after_the_kernel_it_gives_each_time():
    assert all(row.name == row.kernel.name for row in registry.rows())
    assert all(row.kernel is row.kernel for row in registry.rows())


def test_every_stage_has_a_kernel_for_any_processor(monkeypatch):
    stages = {(row.operator, row.stage) for row in registry.rows()}
    monkeypatch.setattr(registry, "allowed", lambda: frozenset({isa.Isa.GENERIC}))
    for operator, stage in stages:
        assert registry.find(operator, stage).isa is isa.Isa.GENERIC


def test_an_unknown_kernel():
    with pytest.raises(LookupError, match="no kernel nosuch for top_k select on this machine"):
        registry.find("top_k", "select", "nosuch")


@pytest.fixture(scope="module")
def folders():
    """The folders of kernels that are imported by a first call, by operator."""
    code = """
    operator = OPERATORS["{}"]
    operator.function(**next(operator.examples(operator.typical)).arguments)
    print(*{{name.split(".")[2] for name in sys.modules if name.startswith("dmlcpu.kernels.")}})
    """
    start = """
    import sys
    import numba
    from dmlcpu.operators import OPERATORS
    """
    printed = run_each([code.format(name) for name in OPERATORS], start)
    return {name: set(text.split()) for name, text in zip(OPERATORS, printed, strict=True)}


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_call_imports_kernels_of_its_own_operator_only(operator, folders):
    own = {registry.FOLDERS[operator]} | ({"top_k"} if operator == "matmul_top_k" else set())  # which selects, too
    assert folders[operator] & set(registry.FOLDERS.values()) == own


def test_a_product_imports_no_microkernel_that_this_machine_cannot_run():
    code = """
    import sys
    import numpy as np
    import dmlcpu
    dmlcpu.quantized_matmul(np.ones((1, 1), np.uint8), 1.0, None, np.ones((1, 1), np.uint8), 1.0, None, 1.0, None)
    print(*(name.rpartition(".")[2] for name in sys.modules if name.startswith("dmlcpu.kernels.gemm")))
    """
    loaded = run(code, DMLCPU_ISA="generic").split()
    assert "generic" in loaded
    assert not {"x86", "arm64", "amx", "tiles"} & set(loaded)
