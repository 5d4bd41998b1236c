import json

from test_advice import GOOD, LIMITS

from dmlcpu.measure import measure
from dmlcpu.measure.limits import Limits, Reached
from dmlcpu.measure.measurement import Measurement, as_data, as_text
from dmlcpu.operators import OPERATORS
from dmlcpu.runtime import threads

REACHED = [Reached("top_k", "read", 24e9, 0.8), Reached("matmul_integer", "multiply", 300.04e9, 0.769)]


def test_everything_is_measured() -> None:
    with threads.use_budget(2, grain=1):
        found = measure(seconds=0, nbytes=1 << 18)
    assert [each.threads for each in found.limits] == [1, 2]
    assert [each.operator for each in found.operators] == list(OPERATORS)
    limits = found.limits[-1]
    for each in found.operators:
        assert each.rate > 0
        assert each.fraction == each.rate / getattr(limits, each.limit)


def test_limits_of_one_thread_are_not_measured_twice() -> None:
    with threads.use_budget(1):
        found = measure(seconds=0, nbytes=1 << 18)
    assert [each.threads for each in found.limits] == [1]


def test_as_text() -> None:
    assert as_text(Measurement(GOOD, LIMITS, REACHED, 0, 0.0, [])) == (
        "limits (avx512vnni)\n"
        "  read      20.0 GB/s on 1 thread, 30.0 GB/s on 2 threads\n"
        "  copy      30.0 GB/s on 1 thread, 35.0 GB/s on 2 threads\n"
        "  multiply  200.0 products/ns on 1 thread, 390.0 products/ns on 2 threads\n"
        "operators\n"
        "  top_k            80% of read: 24.0 GB/s\n"
        "  matmul_integer   77% of multiply: 300.0 products/ns\n"
        "advice\n"
        "  none: nothing is off"
    )


def test_what_was_compiled_is_counted_apart() -> None:
    text = as_text(Measurement(GOOD, LIMITS, REACHED, 12, 61.74, []))
    assert text.endswith("\ncompiled\n  12 kernels in 61.7 s\nadvice\n  none: nothing is off")


def test_what_could_not_be_measured_is_said() -> None:
    limits, reached = [Limits(1, 20e9, 30e9, None)], [Reached("matmul_integer", "multiply", 4e9)]
    text = as_text(Measurement(GOOD, limits, reached, 0, 0.0, ["Do this.", "Do that."]))
    assert "  multiply  not measured: only on x86-64 and ARM\n" in text
    assert "  matmul_integer  multiply: 4.0 products/ns\n" in text
    assert text.endswith("advice\n  Do this.\n  Do that.")
    assert as_text(Measurement(GOOD, [], [], 0, 0.0, ["Do this."])) == "nothing is measured\nadvice\n  Do this."


def test_as_data() -> None:
    data = as_data(Measurement(GOOD, LIMITS, REACHED, 3, 1.5, ["Do this."]))
    assert json.loads(json.dumps(data)) == data
    assert data == {
        "conditions": GOOD._asdict(),
        "limits": [
            {"threads": 1, "read": 20e9, "copy": 30e9, "multiply": 200e9},
            {"threads": 2, "read": 30e9, "copy": 35e9, "multiply": 390e9},
        ],
        "operators": [
            {"operator": "top_k", "limit": "read", "rate": 24e9, "fraction": 0.8},
            {"operator": "matmul_integer", "limit": "multiply", "rate": 300.04e9, "fraction": 0.769},
        ],
        "compiled": {"kernels": 3, "seconds": 1.5},
        "advice": ["Do this."],
    }
