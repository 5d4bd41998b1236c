import json

from cli_calls import Run

import dmlcpu


def test_info_prints_its_sections(run: Run) -> None:
    code, out, err = run("info")
    assert (code, err) == (0, [])
    assert out[0] == "versions"
    assert "kernels" in out


def test_info_prints_json_on_request(run: Run) -> None:
    code, out, err = run("info", "--json")
    assert (code, err) == (0, [])
    assert json.loads("\n".join(out))["versions"]["dmlcpu"] == dmlcpu.__version__
