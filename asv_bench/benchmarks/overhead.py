"""The overhead of a call: inputs are so small that the work itself takes hardly any time."""

import copy

import numpy as np

from dmlcpu import TensorFlags, bind, compile_operator
from dmlcpu.operators import OPERATORS

from .common import TINY
from .conditions import ready
from .peers import BOUND, COMPILED, IMPLEMENTATIONS, METHODS, build, parts

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
    function, arguments = operator.function, copy.deepcopy(next(operator.examples(operator.typical)).arguments)
    if implementation == BOUND:
        return bind(function, **arguments)
    return lambda: function(**arguments)


def can(implementation, operator):
    """Whether an implementation has a call of an operator."""
    if implementation == COMPILED:
        return bool(OPERATORS[operator].descs)
    if operator in TINY:
        return TINY[operator].refusal(METHODS[implementation]) is None
    return implementation in ("dmlcpu", BOUND)


class Tiny:
    """1,000 calls a sample: milliseconds are microseconds a call. "dmlcpu compiled" has outputs bound to it."""

    param_names = ("cell",)
    params = [
        f"{implementation}: {operator}"
        for operator in OPERATORS
        for implementation in (BOUND, COMPILED, *IMPLEMENTATIONS)
        if can(implementation, operator)
    ]
    number, warmup_time, repeat, version = 1, 0, (3, 10, 5.0), "1"

    def setup(self, cell):
        self.call = ready(contender(*parts(cell)))

    def time_1000_calls(self, cell):
        call = self.call
        for _ in range(CALLS):
            result = call()
        return result
