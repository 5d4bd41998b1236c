import logging
import platform

import pytest
from numba import njit

from dmlcpu.kernels import registry
from dmlcpu.kernels.gemm.microkernels import amx, arm64, x86
from dmlcpu.kernels.gemm.microkernels.microkernel import make_dot
from dmlcpu.runtime import isa
from dmlcpu.runtime.intrinsics import Strided
from dmlcpu.runtime.isa import Isa

AVX2 = {"x86_64", "avx2", "fma"}
VNNI = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}
AMX = VNNI | {"amx-tile", "amx-int8"}
NEON = {"aarch64", "neon", "fp-armv8"}
I8MM = NEON | {"dotprod", "i8mm"}


@pytest.fixture
def machine(monkeypatch):
    """A machine as described: its architecture and features, and whether its system grants AMX."""
    asked = []

    def make(features, grants_amx=True):
        monkeypatch.setattr(isa, "target_features", lambda: frozenset(features))
        monkeypatch.setattr(isa, "_request_amx", lambda: (asked.append("amx"), grants_amx)[1])
        isa.detected.cache_clear()
        isa.allowed.cache_clear()
        return asked

    monkeypatch.delenv("DMLCPU_ISA", raising=False)
    yield make
    isa.detected.cache_clear()
    isa.allowed.cache_clear()


X86_SETS = (Isa.GENERIC, Isa.AVX2, Isa.AVXVNNI, Isa.AVX512VNNI, Isa.AMX)  # of those, each includes the ones before it


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"x86_64", "sse2"}, X86_SETS[:1]),
        (AVX2, X86_SETS[:2]),
        (AVX2 - {"fma"}, X86_SETS[:1]),
        (VNNI - {"avx512vnni"}, X86_SETS[:2]),
        (VNNI - {"avx512dq"}, X86_SETS[:3]),
        (AVX2 | {"avxvnni"}, X86_SETS[:3]),
        (VNNI, X86_SETS[:4]),
        (AMX, X86_SETS),
        (AMX - {"avx512vnni"}, X86_SETS[:2]),
        (NEON, (Isa.GENERIC,)),
        (NEON | {"dotprod"}, (Isa.GENERIC, Isa.DOTPROD)),
        (I8MM, (Isa.GENERIC, Isa.DOTPROD, Isa.I8MM)),
        (AMX - {"x86_64"} | {"i686"}, (Isa.GENERIC,)),
        ({"riscv64", "neon", "dotprod"}, (Isa.GENERIC,)),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, set) else "",
)
def test_a_set_can_be_run_if_the_target_has_its_features(machine, features, expected):
    machine(features)
    assert isa.detected() == isa.allowed() == frozenset(expected)
    assert isa.highest(isa.allowed()) is expected[-1]


def test_without_permission_amx_is_not_used_and_one_line_says_so(machine, caplog):
    caplog.set_level(logging.DEBUG, "dmlcpu")
    machine(AMX, grants_amx=False)
    assert isa.allowed() == isa.allowed() == frozenset(X86_SETS[:4])
    assert [record.message for record in caplog.records] == [
        "AMX: the operating system does not grant the tile registers; using AVX512VNNI"
    ]


@pytest.mark.parametrize(
    ("features", "bound", "expected"),
    [
        *[(AMX, one.name.lower(), X86_SETS[: n + 1]) for n, one in enumerate(X86_SETS)],
        (VNNI, "AVX512VNNI", X86_SETS[:4]),
        (I8MM, "generic", {Isa.GENERIC}),
        (I8MM, "dotprod", {Isa.GENERIC, Isa.DOTPROD}),
        (I8MM, "i8mm", {Isa.GENERIC, Isa.DOTPROD, Isa.I8MM}),
        (AVX2, "amx", {Isa.GENERIC, Isa.AVX2}),  # the bound promises nothing that the machine lacks
    ],
)
def test_the_environment_is_an_upper_bound(machine, monkeypatch, features, bound, expected):
    asked = machine(features)
    monkeypatch.setenv("DMLCPU_ISA", bound)
    assert isa.allowed() == frozenset(expected)
    assert asked == (["amx"] if Isa.AMX in expected else [])  # permission is not asked for in vain


@pytest.mark.parametrize(
    ("features", "bound", "architecture"), [(I8MM, "amx", "x86_64"), (AMX, "i8mm", "aarch64")], ids=["arm", "x86"]
)
def test_a_bound_of_another_architecture_leaves_the_generic_kernels(
    machine, monkeypatch, caplog, features, bound, architecture
):
    caplog.set_level(logging.DEBUG, "dmlcpu")
    asked = machine(features)
    monkeypatch.setenv("DMLCPU_ISA", bound)
    assert isa.allowed() == {Isa.GENERIC}
    assert asked == []
    assert [record.message for record in caplog.records] == [
        f"DMLCPU_ISA is {bound}, which is a bound for {architecture}; using GENERIC"
    ]


def test_an_unknown_bound(machine, monkeypatch):
    machine(AVX2)
    monkeypatch.setenv("DMLCPU_ISA", "sse9")
    names = "generic, avx2, avxvnni, avx512vnni, amx, dotprod, i8mm"
    with pytest.raises(ValueError, match=rf"^DMLCPU_ISA is 'sse9'; allowed: {names}$"):
        isa.allowed()


def test_ranks_order_the_sets_of_an_architecture():
    of_each = {}
    for one in Isa:
        of_each.setdefault(one.architecture, []).append(one.rank)
    assert of_each == {"": [0], "x86_64": [1, 2, 3, 4], "aarch64": [1, 2]}


def test_the_features_are_those_numba_compiles_for():
    from numba.core.registry import cpu_target

    triple, _, listed = cpu_target.target_context.codegen().magic_tuple()
    named = {name[1:] for name in listed.split(",") if name.startswith("+")}
    architecture = {"arm64": "aarch64"}.get(triple.split("-")[0], triple.split("-")[0])
    assert isa.target_features() - {"dotprod", "i8mm"} == {architecture, *named} - {"dotprod", "i8mm"}


@pytest.mark.skipif("aarch64" not in isa.target_features(), reason="LLVM knows these processors where it runs on one")
@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-darwin20.0.0"])
@pytest.mark.parametrize(
    ("cpu", "features", "expected"),
    [
        ("generic", "", set()),
        ("generic", "+neon,+dotprod", {"dotprod"}),
        ("generic", "+neon,+dotprod,+i8mm", {"dotprod", "i8mm"}),
        ("cortex-a72", "", set()),
        ("neoverse-n1", "+neon", {"dotprod"}),
        ("neoverse-n1", "+neon,-dotprod", set()),
        ("neoverse-v1", "", {"dotprod", "i8mm"}),
        ("apple-m1", "", {"dotprod"}),
        ("apple-m2", "", {"dotprod", "i8mm"}),
    ],
)
def test_the_name_of_an_arm_processor_implies_features(triple, cpu, features, expected):
    assert isa._dot_products(triple, cpu, features) == expected


@pytest.mark.skipif(platform.system() != "Linux", reason="Linux grants AMX by a system call")
def test_asking_for_amx_answers_yes_or_no():
    assert isa._request_amx() in (True, False)


@pytest.mark.parametrize(
    ("features", "needed", "lacks"),
    [
        (VNNI, Isa.AMX, "amx-int8, amx-tile"),
        (AVX2, Isa.AVXVNNI, "avx512vl, avx512vnni or avxvnni"),
        (AVX2, Isa.AVX512VNNI, "avx512bw, avx512dq, avx512f, avx512vl, avx512vnni"),
        ({"x86_64"}, Isa.AVX2, "avx2, fma"),
        (NEON, Isa.DOTPROD, "dotprod"),
        (NEON | {"dotprod"}, Isa.I8MM, "i8mm"),
        (AMX, Isa.I8MM, "aarch64, i8mm, neon"),
        (I8MM, Isa.AVX2, "avx2, fma, x86_64"),
    ],
    ids=lambda value: value.name if isinstance(value, Isa) else "",
)
def test_what_the_target_lacks_is_refused_before_it_is_compiled(machine, features, needed, lacks):
    machine(features)
    with pytest.raises(RuntimeError, match=rf"^a kernel for {needed.name} cannot be .* which lacks {lacks}$"):
        isa.require(needed)


@pytest.mark.parametrize("needed", list(Isa), ids=lambda needed: needed.name)
def test_no_feature_of_a_set_may_be_missing(machine, needed):
    for features in needed.needs:
        machine(features)
        isa.require(needed)
        for feature in features:
            machine(features - {feature})
            with pytest.raises(RuntimeError, match=f"a kernel for {needed.name} .* lacks .*{feature}"):
                isa.require(needed)


@pytest.mark.parametrize(
    "microkernel", [x86.AVXVNNI, x86.AVX512VNNI, arm64.DOTPROD, arm64.I8MM], ids=lambda m: m.unit.name
)
def test_a_microkernel_for_another_processor_raises_instead_of_killing_the_process(machine, microkernel):
    machine(isa.target_features() - {"avxvnni", "avx512vl", "dotprod", "i8mm"})
    dot = make_dot(1, microkernel)

    @njit
    def use(words, numbers):
        dot(words, 0, words, 0, 0, Strided(numbers, 0, 0, 1), numbers)

    with pytest.raises(Exception, match=f"a kernel for {microkernel.unit.isa.name} cannot be compiled for this target"):
        use.compile("(uint32[::1], int32[::1])")


@pytest.mark.skipif(Isa.AMX in isa.detected(), reason="this machine has AMX")
def test_an_intrinsic_for_another_processor_raises_instead_of_killing_the_process():
    release = amx.release_tiles

    @njit
    def use():
        release()

    with pytest.raises(Exception, match="a kernel for AMX cannot be compiled for this target"):
        use()


def test_the_kernels_of_the_registry_are_those_of_the_allowed_sets(machine):
    machine(I8MM)
    isas = [entry.isa for entry in registry.available("quantized_matmul", "dot")]
    assert isas == [Isa.I8MM] * 2 + [Isa.DOTPROD] * 2 + [Isa.GENERIC] * 2
