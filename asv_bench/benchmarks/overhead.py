"""The overhead of a call: inputs are so small that the work itself takes hardly any time."""

import copy

import numpy as np

from dmlcpu import TensorFlags, bind, compile_operator
from dmlcpu.operators import OPERATORS

from .common import TINY
from .conditions import ready
from .peers import BOUND, COMPILED, IMPLEMENTATIONS, Comparison, build

CALLS = 1_000


def contender(implementation, operator):
    """Return an implementation's call of an operator's tiny case."""
    if implementation == COMPILED:
        return compiled(OPERATORS[operator])
    if operator in TINY:
        return build(TINY[operator], implementation)
    return example(OPERATORS[operator], implementation)


def compiled(operator):
    """Return a call of an operator's last example desc with all tensors bound; owned tensors are bound beforehand."""
    if not operator.descs:
        raise NotImplementedError("DirectML has no such operator")
    *_, (desc, inputs) = operator.desc_examples()
    run, tensors = compile_operator(desc), list(desc.tensors())
    bound = copy.deepcopy(inputs)  # the copies own their memory, which the fast way of binding requires
    owned = {field.name: bound.pop(field.name) for field, tensor in tensors if tensor.flags & TensorFlags.OWNED_BY_DML}
    bound |= {field.name: np.empty(tensor.sizes, tensor.dtype) for field, tensor in tensors if field.output}
    if owned:
        run.initialize(**owned)
    return lambda: run(**bound)


def example(operator, implementation):
    """Return a call of an operator's first example, for operators without a tiny case."""
    if implementation not in ("dmlcpu", "dmlcpu out", BOUND):
        raise NotImplementedError(f"there is no case of {operator.name} for other libraries")
    function, arguments = operator.function, copy.deepcopy(next(operator.examples(operator.typical)).arguments)
    if implementation == BOUND:
        return bind(function, **arguments)
    if implementation == "dmlcpu out":
        result = function(**arguments)
        arguments["out"] = tuple(map(np.empty_like, result)) if isinstance(result, tuple) else np.empty_like(result)
    return lambda: function(**arguments)


class Tiny(Comparison):
    """1,000 calls a sample: milliseconds are microseconds a call. "dmlcpu compiled" has outputs bound to it."""

    params = ([BOUND, COMPILED, *IMPLEMENTATIONS], list(OPERATORS))
    param_names = ("implementation", "operator")

    def setup(self, implementation, operator):
        self.call = ready(contender(implementation, operator))

    def time_1000_calls(self, implementation, operator):
        call = self.call
        for _ in range(CALLS):
            result = call()
        return result
