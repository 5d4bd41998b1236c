from typing import Any

import pytest

from dmlcpu.measure.advice import Conditions, advise, conditions
from dmlcpu.measure.limits import Limits, Reached
from dmlcpu.runtime.isa import Isa

GOOD = Conditions(
    threads=2,
    usable=2,
    processors=2,
    cpu_quota=None,
    variables={},
    isa="avx512vnni",
    detected="avx512vnni",
    cache="/var/cache/kernels",
    layer=None,
)
LIMITS = [Limits(1, 20e9, 30e9, 200e9), Limits(2, 30e9, 35e9, 390e9)]
REACHED = [Reached("top_k", "read", 24e9, 0.8)]


def advice(
    limits: list[Limits] = LIMITS,
    reached: list[Reached] = REACHED,
    compiled: int = 0,
    **changed: Any,
) -> list[str]:
    return advise(GOOD._replace(**changed), limits, reached, compiled)


def test_nothing_is_advised_where_nothing_is_off() -> None:
    assert advice() == []
    assert advice(cpu_quota=1.5) != []
    assert advice(variables={"DMLCPU_NUM_THREADS": "2"}) == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"threads": 1, "variables": {"DMLCPU_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}},
            "Operators use 1 thread, but the process has the time of 2 processors: unset DMLCPU_NUM_THREADS.",
        ),
        (
            {"threads": 1, "variables": {"NUMBA_NUM_THREADS": "1"}},
            "Operators use 1 thread, but the process has the time of 2 processors: unset NUMBA_NUM_THREADS.",
        ),
        (
            {"threads": 3},
            "Operators use 3 threads, but the process has the time of 2 processors: call set_num_threads.",
        ),
        (
            {"cpu_quota": 1.5},
            "A control group grants the time of 1.5 of 2 processors: raise its quota (cpu.max), or the container's "
            "number of CPUs.",
        ),
        (
            {"processors": 8},
            "The process may run on 2 of 8 processors (its affinity): let it use more.",
        ),
        ({"isa": "avx2"}, "DMLCPU_ISA allows avx2, but the machine has avx512vnni: unset it."),
        (
            {"variables": {"NUMBA_CPU_NAME": "generic"}},
            "NUMBA_CPU_NAME may hide instructions of the processor: unset them, Numba detects all.",
        ),
        (
            {"cache": "none: no folder can be written to, so every process compiles its kernels", "compiled": 9},
            "No folder for compiled kernels can be written to, so each process compiles them: set NUMBA_CACHE_DIR to "
            "one that can.",
        ),
        (
            {"compiled": 9},
            "9 kernels of operators had to be compiled, because the cache lacked them: run `dmlcpu warmup` once "
            "for all of them.",
        ),
        ({"layer": "pip install something"}, "Threads: pip install something."),
        (
            {"limits": [LIMITS[0], Limits(2, 30e9, 35e9, 210e9)]},
            "2 threads multiply 1.1 times as fast as one: other processes keep the processors busy, or processors "
            "share a core. End those processes, or use fewer threads.",
        ),
        (
            {"reached": [Reached("top_k", "read", 60e9, 2.0)]},
            "top_k exceeded the limit, so other processes disturbed the measurement: measure again.",
        ),
    ],
)
def test_what_is_off_is_advised_alone(changed: dict[str, Any], text: str) -> None:
    assert advice(**changed) == [text]


def test_a_quota_that_threads_already_follow() -> None:
    (only,) = advice(cpu_quota=0.5, threads=1, limits=LIMITS[:1])
    assert only.startswith("A control group grants the time of 0.5 of 2 processors")


def test_limits_that_are_not_known_advise_nothing() -> None:
    unknown = [each._replace(multiply=None) for each in LIMITS]
    assert advice(limits=unknown, reached=[Reached("matmul_integer", "multiply", 1e9)]) == []


def test_conditions_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "")
    monkeypatch.setenv("DMLCPU_ISA", "generic")
    found = conditions()
    assert 1 <= found.usable <= found.processors
    assert found.threads >= 1
    assert "NUMBA_CPU_NAME" not in found.variables
    assert found.variables["DMLCPU_ISA"] == "generic"
    assert {found.isa, found.detected} <= {isa.name.lower() for isa in Isa}
