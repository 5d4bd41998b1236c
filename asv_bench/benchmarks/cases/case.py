"""What cases of all operators share."""

import numpy as np

from dmlcpu import FeatureLevel, TensorDataType, TensorDesc, TensorFlags, compile_operator

from ..packages import package


class Case:
    """A call at one size. Each method named after a contender returns the call that is timed.

    A call allocates its outputs, as a user's would; that of `dmlcpu_out` writes to the same ones each time. Inputs are
    made, and converted for a contender, beforehand. A contender that is not installed, or that cannot do the case,
    raises NotImplementedError; asv leaves the cell empty then.
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

    def dmlcpu(self):
        raise NotImplementedError

    def dmlcpu_out(self):
        raise NotImplementedError("it has no out")

    def dmlcpu_bound(self):
        """Return the operator bound to the inputs."""
        raise NotImplementedError("it is not bound")

    def dmlcpu_compiled(self):
        """Return a call of the compiled desc with all tensors bound to it."""
        raise NotImplementedError("no desc has it")

    def numpy(self):
        raise NotImplementedError("NumPy has no such function")

    def onnxruntime(self):
        raise NotImplementedError("ONNX has no such operator")

    def torch(self):
        raise NotImplementedError("PyTorch has no such operator")

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
