import pytest
from processes import forks_of

from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.table import TARGETS, TILES
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import isa


def test_names_are_unique_within_a_stage():
    keys = [(row.operator, row.stage, row.name) for row in registry.rows()]
    assert len(set(keys)) == len(keys)


def test_every_row_is_named_after_the_kernel_it_gives_each_time():
    assert all(row.name == row.kernel.name for row in registry.rows())
    assert all(row.kernel is row.kernel for row in registry.rows())


@pytest.mark.parametrize(
    "target", [each for each in TARGETS if each.nest != TILES], ids=lambda target: target.unit.name
)
def test_names_are_of_the_registers_and_the_instruction_set_of_the_microkernel(target):
    for path in filter(None, (target.microkernel, target.exact)):
        assert registry.load(path).unit is target.unit


def test_the_names_of_kernels():
    """Budgets choose kernels by name, so names stay."""
    names = [row.name for row in registry.rows() if row.isa in (isa.Isa.AVX512VNNI, isa.Isa.AMX)]
    assert sorted(set(names)) == [
        "apply_selected",
        "columns_u8s8_top_64_avx512vnni",
        "dot_u8s8_12x32x4_avx512vnni",
        "dot_u8s8_32x32x64_amx",
        "dot_u8s8_f32_12x32x4_avx512vnni",
        "dot_u8s8_f32_32x32x64_amx",
        "dot_u8s8_s32_12x32x4_avx512vnni",
        "dot_u8s8_s32_32x32x64_amx",
        "dot_u8s8_top_12x32x4_avx512vnni",
        "dot_u8s8_top_32x32x64_amx",
        "multiply_amx",
        "multiply_avx512vnni",
        "skinny_u8s8_64x16_avx512vnni",
        "skinny_u8s8_f32_64x16_avx512vnni",
        "skinny_u8s8_s32_64x16_avx512vnni",
        "skinny_u8s8_top_64x16_avx512vnni",
    ]


def test_every_stage_has_a_kernel_for_any_processor(monkeypatch):
    stages = {(row.operator, row.stage) for row in registry.rows()}
    monkeypatch.setattr(registry, "allowed", lambda: frozenset({isa.Isa.GENERIC}))
    for operator, stage in stages:
        assert registry.find(operator, stage).isa is isa.Isa.GENERIC


def test_an_unknown_kernel():
    with pytest.raises(LookupError, match="no kernel nosuch for top_k select on this machine"):
        registry.find("top_k", "select", "nosuch")


@pytest.fixture(scope="module")
def run_fork():
    start = """
    import sys
    import numba
    from dmlcpu.operators import OPERATORS
    numba.njit(lambda: 1)()  # what Numba loads for it would take 0.1 s in each fork

    def call(name):
        operator = OPERATORS[name]
        operator.function(**next(operator.examples(operator.typical)).arguments)
    """
    with forks_of(start) as run_fork:
        yield run_fork


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_call_imports_kernels_of_its_own_operator_only(run_fork, operator):
    code = """
    call({!r})
    print(*{{name.split(".")[2] for name in sys.modules if name.startswith("dmlcpu.kernels.")}})
    """
    # matmul_top_k multiplies, and selects; sorts have keys of top_k; elements are updated by loops of scatter_nd.
    others = {"selection": {"gemm", "top_k"}, "sort": {"top_k"}, "elements": {"scatter_nd"}, "arg_reduce": {"top_k"}}
    folders = {registry.FOLDERS[each] for each in registry.COMPOSED.get(operator, (operator,))}
    own = folders.union(*[others.get(each, ()) for each in folders])
    assert set(run_fork(code.format(operator)).split()) & set(registry.FOLDERS.values()) == own


def test_a_product_imports_no_microkernel_that_this_machine_cannot_run(run_fork):
    code = """
    call("quantized_matmul")
    print(*(name.rpartition(".")[2] for name in sys.modules if name.startswith("dmlcpu.kernels.gemm")))
    """
    loaded = run_fork(code, DMLCPU_ISA="generic").split()
    assert "generic" in loaded
    assert not {"x86", "arm64", "amx", "tiles"} & set(loaded)
