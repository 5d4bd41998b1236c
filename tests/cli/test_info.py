import json
from collections.abc import Callable

import pytest
from cli_calls import Run

import dmlcpu
from dmlcpu.jobs.progress import COMPILING
from dmlcpu.measure import Limits, Measurement, measurement
from dmlcpu.measure.advice import conditions
from dmlcpu.measure.limits import Reached


def test_info_prints_its_sections(run: Run) -> None:
    code, out, err = run("info")
    assert (code, err) == (0, [])
    assert out[0] == "versions"
    assert "kernels" in out


def test_info_prints_json_on_request(run: Run) -> None:
    code, out, err = run("info", "--json")
    assert (code, err) == (0, [])
    assert json.loads("\n".join(out))["versions"]["dmlcpu"] == dmlcpu.__version__


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measurement:
    """Let the command find this at once, as if it had to compile before."""
    found = Measurement(conditions(), [Limits(1, 2e9, 3e9, 4e9)], [Reached("top_k", "read", 1e9, 0.5)], 3, 9.0, [])

    def measure(before_compiling: Callable[[], None]) -> Measurement:
        before_compiling()
        return found

    monkeypatch.setattr(measurement, "measure", measure)
    return found


def test_info_measures_on_request(run: Run, measured: Measurement, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("dmlcpu.cli.info.tell", said.append)
    code, out, _ = run("info", "--measure")
    assert code == 0
    assert out == measurement.as_text(measured).splitlines()
    assert said == [COMPILING]


def test_info_prints_measurements_as_json(run: Run, measured: Measurement) -> None:
    code, out, _ = run("info", "--measure", "--json")
    assert code == 0
    assert json.loads("\n".join(out)) == measurement.as_data(measured)
