import inspect
import pickle
import subprocess
import sys

import pytest

import dmlcpu
from dmlcpu import reference


def test_every_public_name_resolves():
    assert all(getattr(dmlcpu, name) is not None for name in dmlcpu.__all__)
    assert dir(dmlcpu) == dmlcpu.__all__


def test_an_unknown_name():
    with pytest.raises(AttributeError, match=r"^module 'dmlcpu' has no attribute 'nosuch'$"):
        dmlcpu.nosuch  # noqa: B018


@pytest.mark.parametrize("name", ["top_k", "scatter_nd", "quantized_matmul"])
def test_the_reference_has_the_signatures_of_the_functions(name):
    def plain(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert plain(getattr(dmlcpu, name)) == plain(getattr(reference, name))


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
