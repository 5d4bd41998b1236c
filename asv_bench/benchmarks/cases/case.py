"""What cases of all operators share."""

from importlib.util import find_spec

import numpy as np

from dmlcpu import FeatureLevel, TensorDataType, TensorDesc, TensorFlags, compile_operator

from ..packages import package

# The packages that a contender's method needs, and why a case has no call for a contender.
_PACKAGES = {"onnxruntime": ("onnx", "onnxruntime"), "torch": ("torch",), "torch_on_dmlcpu": ("torch",)}
_REASONS = {
    "dmlcpu_out": "it has no out",
    "dmlcpu_bound": "it is not bound",
    "dmlcpu_compiled": "no desc has it",
    "numpy": "NumPy has no such function",
    "onnxruntime": "ONNX has no such operator",
    "torch": "PyTorch has no such operator",
    "torch_on_dmlcpu": "PyTorch has no such operator",
}


class Case:
    """A call at one size. Each method named after a contender returns the call that is timed.

    A call allocates its outputs, as a user's would; that of `dmlcpu_out` writes to the same ones each time. Inputs are
    made, and converted for a contender, beforehand. A case of an operator defines the methods of those contenders that
    have the operator, and `refusals` says which of them cannot do this case.
    """

    tolerance = 1e-6  # of a peer's results

    def shrunk(self):
        """Return the same case, small enough for a test."""
        raise NotImplementedError

    def inputs(self):
        raise NotImplementedError

    def expected(self, calls):
        """Return the reference's results, as a tuple of arrays; in place, those after `calls` calls."""
        raise NotImplementedError

    def work(self, results):
        """Return the least that a call must do, and its unit: bytes of inputs and results, or products."""
        inputs = self.inputs()
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        return sum(each.nbytes for each in (*inputs, *results) if isinstance(each, np.ndarray)), "bytes"

    def refusals(self):
        """Return the reasons why contenders cannot do this case, by the names of their methods."""
        return {}

    def refusal(self, method):
        """Return why a contender cannot do the case here, or None. Nothing is computed for it, and nothing imported."""
        missing = [name for name in _PACKAGES.get(method, ()) if find_spec(name) is None]
        return self.limitation(method) or (f"{missing[0]} is not installed" if missing else None)

    def limitation(self, method):
        """Return why a contender cannot do the case even if it is installed, or None."""
        if method == "torch_on_dmlcpu" and (reason := self.limitation("torch")):
            return reason
        return self.refusals().get(method) if hasattr(self, method) else _REASONS[method]

    def torch_on_dmlcpu(self):
        """Return PyTorch's own call; `settings_of` lets it run on dmlcpu's kernels."""
        return self.torch()


def compiled(desc, owned=None, /, **tensors):
    """Return a call of a compiled desc. owned: values of owned tensors."""
    operator = compile_operator(desc, feature_level=FeatureLevel.LEVEL_6_4)
    if owned:
        operator.initialize(**owned)
    bound = {name: np.array(value) for name, value in tensors.items()}  # copies own their memory: the usual way
    return lambda: operator(**bound)


def tensor_of(array, flags=TensorFlags.NONE):
    """Return the desc of an array, which is packed."""
    return TensorDesc(TensorDataType[array.dtype.name.upper()], flags=flags, sizes=array.shape)


def by(shape):
    return "x".join(map(str, shape))


def table(*cases):
    return {str(case): case for case in cases}


def dtype_of(name):
    if name == "bfloat16":
        package("ml_dtypes")  # NumPy knows the name from then on
    return np.dtype(name)
