import itertools
import pickle
import rlcompleter
import subprocess
import sys
from operator import attrgetter

import pytest
from processes import run

import dmlcpu
from dmlcpu.operators import OPERATORS


def test_every_public_name_resolves():
    assert all(getattr(dmlcpu, name) is not None for name in dmlcpu.__all__)
    assert dir(dmlcpu) == dmlcpu.__all__


OTHERS = """
AxisDirection BindingError BoundOperator CompiledOperator DmlError FeatureLevel IndexOutOfRangeError
InvalidDescriptorError OperatorType PackedMatrix QuantizationType TensorDataType TensorDesc TensorFlags UnsupportedError
__version__ add_at batch bind compile_operator get_num_threads interop maximum_at minimum_at models
operator_desc_from_dict pack_b put_at reference search set_num_threads show_config
"""


def test_public_names_are_those_of_the_package_and_the_table():
    of_operators = {name for row in OPERATORS.values() for name in row.homes()}
    assert dmlcpu.__all__ == sorted({*OTHERS.split(), *of_operators})
    namespace = {}
    exec("from dmlcpu import *", namespace)
    assert set(dmlcpu.__all__) - {"__version__"} <= set(namespace)


def test_a_name_is_looked_up_once():
    for name in ("pack_b", "top_k", "batch", "__all__"):
        vars(dmlcpu).pop(name, None)
        assert getattr(dmlcpu, name) is vars(dmlcpu)[name]


def test_other_names_do_not_load_the_table_of_operators():
    """So a process that forks while another thread imports the table can load them."""
    code = """
    import sys
    import dmlcpu
    dmlcpu.DmlError, dmlcpu.reference
    print("dmlcpu.operators.table" in sys.modules)
    """
    assert run(code).strip() == "False"


def test_unknown_name_at_interpreter_shutdown_is_not_found():
    code = """
    import sys
    import dmlcpu
    sys.meta_path = None  # as at the interpreter's end
    print(hasattr(dmlcpu, "nosuch"))
    """
    assert run(code).strip() == "False"


def test_an_unknown_name():
    with pytest.raises(AttributeError, match=r"^module 'dmlcpu' has no attribute 'nosuch'$"):
        dmlcpu.nosuch  # noqa: B018


@pytest.mark.parametrize(
    ("misspelled", "meant"),
    [
        ("topk", "top_k"),
        ("scatter", "scatter_nd"),
        ("qmatmul", "quantized_matmul"),
        ("Topk1OperatorDesc", "TopK1OperatorDesc"),
    ],
)
def test_an_error_suggests_the_name_that_was_meant(misspelled, meant):
    with pytest.raises(
        AttributeError, match=rf"^module 'dmlcpu' has no attribute '{misspelled}'; did you mean .*'{meant}'"
    ):
        getattr(dmlcpu, misspelled)


DIRECTML = {
    "DML_TOP_K1_OPERATOR_DESC": "TopK1OperatorDesc",
    "DML_SCATTER_ND_OPERATOR_DESC": "ScatterNDOperatorDesc",
    "DML_BUFFER_TENSOR_DESC": "TensorDesc",
    "DML_TENSOR_DESC": "TensorDesc",
    "DML_TENSOR_FLAGS": "TensorFlags",
    "DML_FEATURE_LEVEL": "FeatureLevel",
    "DML_FEATURE_LEVEL_6_4": "FeatureLevel.LEVEL_6_4",
    "DML_TENSOR_DATA_TYPE_FLOAT32": "TensorDataType.FLOAT32",
    "DML_OPERATOR_TOP_K1": "OperatorType.TOP_K1",
}


@pytest.mark.parametrize(("name", "here"), DIRECTML.items())
def test_directmls_names_get_a_hint(name, here):
    with pytest.raises(AttributeError) as caught:
        getattr(dmlcpu, name)
    assert str(caught.value) == f"module 'dmlcpu' has no attribute '{name}'; did you mean '{here}'?"
    assert attrgetter(here)(dmlcpu) is not None


@pytest.mark.parametrize("row", OPERATORS.values(), ids=lambda row: row.name)
def test_all_structures_of_operators_get_a_hint(row):
    for operator_type, cls in row.descs.items():
        with pytest.raises(AttributeError, match=f"; did you mean '{cls}'"):
            getattr(dmlcpu, f"DML_{operator_type.name}_OPERATOR_DESC")


def test_names_that_only_directml_has():
    with pytest.raises(AttributeError, match=r"^module 'dmlcpu' has no attribute 'DML_GEMM_OPERATOR_DESC'$"):
        dmlcpu.DML_GEMM_OPERATOR_DESC  # noqa: B018


@pytest.mark.parametrize(
    ("module", "misspelled", "meant"),
    [
        ("search", "Int8Indx", "Int8Index"),
        ("batch", "run_job", "run_jobs"),
        ("models", "load_mode", "load_model"),
        ("interop", "pytorch", "torch"),
    ],
)
def test_the_modules_suggest_names_too(module, misspelled, meant):
    with pytest.raises(AttributeError, match=f"^module 'dmlcpu.{module}' has no attribute '{misspelled}'; .*'{meant}'"):
        getattr(getattr(dmlcpu, module), misspelled)


def test_names_that_tools_ask_for_get_no_suggestion():
    with pytest.raises(AttributeError, match=r"^module 'dmlcpu' has no attribute '__path'$"):
        dmlcpu.__path  # noqa: B018


def test_the_package_imports_nothing_else():
    code = """
    import sys
    before = set(sys.modules)
    import dmlcpu
    dmlcpu.__version__
    print(*sorted(set(sys.modules) - before))
    """
    assert run(code).split() == ["dmlcpu"]


@pytest.mark.parametrize("name", ["batch", "models", "search"])
def test_modules_load_on_first_use_and_without_numpy(name):
    code = f"""
    import sys
    import dmlcpu
    assert "dmlcpu.{name}" not in sys.modules
    print(dmlcpu.{name}.__name__, dmlcpu.{name} is sys.modules["dmlcpu.{name}"], "numpy" in sys.modules)
    """
    assert run(code).split() == [f"dmlcpu.{name}", "True", "False"]


def completions(text, **names):
    """Return what Python's prompt offers when the tab key is pressed."""
    complete = rlcompleter.Completer(names).complete
    offered = itertools.takewhile(lambda each: each is not None, (complete(text, i) for i in itertools.count()))
    return {each.rstrip("()") for each in offered}


def test_the_tab_key_offers_all_public_names():
    public = {name for name in dmlcpu.__all__ if not name.startswith("_")}
    assert completions("dmlcpu.", dmlcpu=dmlcpu) >= {f"dmlcpu.{name}" for name in public}
    assert completions("dmlcpu.search.", dmlcpu=dmlcpu) >= {f"dmlcpu.search.{name}" for name in dmlcpu.search.__all__}
    assert {"dmlcpu.top_k", "dmlcpu.TopK"} <= completions("dmlcpu.to", dmlcpu=dmlcpu) | completions(
        "dmlcpu.To", dmlcpu=dmlcpu
    )


def test_the_version_is_the_distributions():
    from importlib.metadata import version

    assert version("dmlcpu") == dmlcpu.__version__


def test_python_m_dmlcpu():
    found = subprocess.run(
        [sys.executable, "-m", "dmlcpu", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert dmlcpu.__version__ in found.stdout


@pytest.mark.parametrize(
    "error",
    [
        dmlcpu.DmlError,
        dmlcpu.BindingError,
        dmlcpu.InvalidDescriptorError,
        dmlcpu.IndexOutOfRangeError,
        dmlcpu.UnsupportedError,
    ],
)
def test_errors_carry_their_parts_and_pickle(error):
    caught = error("top_k", "k", "5", "0 to 2")
    again = pickle.loads(pickle.dumps(caught))
    for one in (caught, again):
        assert isinstance(one, ValueError)
        assert type(one) is error
        assert (one.operator, one.field, one.found, one.allowed) == ("top_k", "k", "5", "0 to 2")
        assert str(one) == "top_k: k is 5; allowed: 0 to 2"


def test_an_index_error_is_one():
    assert issubclass(dmlcpu.IndexOutOfRangeError, IndexError)
