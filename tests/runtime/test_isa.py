import logging
import platform

import pytest
from numba import njit

from dmlcpu.kernels.gemm.microkernels import amx
from dmlcpu.runtime import isa
from dmlcpu.runtime.isa import Isa

AVX2 = {"avx2", "fma"}
VNNI = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}
AMX = VNNI | {"amx-tile", "amx-int8"}


@pytest.fixture
def machine(monkeypatch):
    """A machine of our making: its features, and whether its system grants AMX."""
    asked = []

    def make(features, grants_amx=True, kind="x86_64"):
        monkeypatch.setattr(platform, "machine", lambda: kind)
        monkeypatch.setattr(isa, "target_features", lambda: frozenset(features))
        monkeypatch.setattr(isa, "_request_amx", lambda: (asked.append("amx"), grants_amx)[1])
        isa.detected.cache_clear()
        isa.allowed.cache_clear()
        return asked

    monkeypatch.delenv("DMLCPU_ISA", raising=False)
    yield make
    isa.detected.cache_clear()
    isa.allowed.cache_clear()


@pytest.mark.parametrize(
    ("features", "level"),
    [
        ({"sse2"}, Isa.GENERIC),
        (AVX2, Isa.AVX2),
        (VNNI - {"avx512vnni"}, Isa.AVX2),
        (VNNI, Isa.AVX512VNNI),
        (VNNI - {"avx512dq"}, Isa.AVXVNNI),
        (AVX2 | {"avxvnni"}, Isa.AVXVNNI),
        (AMX, Isa.AMX),
        (AMX - {"avx512vnni"}, Isa.AVX2),  # no level without the ones before it
    ],
)
def test_the_level_follows_from_the_features(machine, features, level):
    machine(features)
    assert isa.detected() is isa.allowed() is level


def test_other_processors_run_the_generic_kernels(machine):
    machine(AMX, kind="arm64")
    assert isa.detected() is Isa.GENERIC


def test_without_permission_amx_is_not_used_and_one_line_says_so(machine, caplog):
    caplog.set_level(logging.DEBUG, "dmlcpu")
    machine(AMX, grants_amx=False)
    assert isa.allowed() is isa.allowed() is Isa.AVX512VNNI
    assert [record.message for record in caplog.records] == [
        "AMX: the operating system does not grant the tile registers; using AVX512VNNI"
    ]


@pytest.mark.parametrize(
    ("bound", "level"), [("generic", 0), ("avx2", 1), ("avxvnni", 2), ("AVX512VNNI", 3), ("amx", 4)]
)
def test_the_environment_is_an_upper_bound(machine, monkeypatch, bound, level):
    asked = machine(AMX)
    monkeypatch.setenv("DMLCPU_ISA", bound)
    assert isa.allowed() == level
    assert asked == (["amx"] if bound == "amx" else [])  # permission is not asked for in vain


def test_the_bound_promises_nothing_the_machine_lacks(machine, monkeypatch):
    machine(AVX2)
    monkeypatch.setenv("DMLCPU_ISA", "amx")
    assert isa.allowed() is Isa.AVX2


def test_an_unknown_bound(machine, monkeypatch):
    machine(AVX2)
    monkeypatch.setenv("DMLCPU_ISA", "sse9")
    with pytest.raises(ValueError, match=r"^DMLCPU_ISA is 'sse9'; allowed: generic, avx2, avxvnni, avx512vnni, amx$"):
        isa.allowed()


def test_the_features_are_those_numba_compiles_for():
    from numba.core.registry import cpu_target

    listed = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    assert {f"+{name}" for name in isa.target_features()} == {name for name in listed if name.startswith("+")}


@pytest.mark.skipif(platform.system() != "Linux", reason="Linux grants AMX by a system call")
def test_asking_for_amx_answers_yes_or_no():
    assert isa._request_amx() in (True, False)


def test_what_the_target_lacks_is_refused_before_it_is_compiled(machine):
    machine(VNNI)
    isa.require(Isa.AVX512VNNI)
    with pytest.raises(RuntimeError, match=r"^a kernel for AMX .* which lacks amx-int8, amx-tile$"):
        isa.require(Isa.AMX)
    machine(AVX2)
    with pytest.raises(RuntimeError, match=r"^a kernel for AVX512VNNI .* which lacks avx512vl, avx512vnni or avxvnni$"):
        isa.require(Isa.AVX512VNNI)


@pytest.mark.skipif(isa.detected() is Isa.AMX, reason="this machine has AMX")
def test_an_intrinsic_for_another_processor_raises_instead_of_killing_the_process():
    release = amx.release_tiles

    @njit
    def use():
        release()

    with pytest.raises(Exception, match="a kernel for AMX cannot be compiled for this target"):
        use()
