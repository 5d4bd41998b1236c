"""Call operators on arrays between inaccessible pages, and compare with the reference, bit for bit.

    python tests/reliability/guard_pages.py --calls 40000 --seed 0

All arrays of a call lie so: inputs, parameters, packed matrices, workspaces, outputs. A read or write beyond ends the
process. Inputs, and the gaps of strided outputs, must be as before. Each call is drawn from its own seed, which is
printed before it: --only SEED repeats one.
"""

import argparse
import collections
import faulthandler
import itertools
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.extend([str(Path(__file__).parents[1] / folder) for folder in ("", "conformance", "reliability", "search")])

from guarded_memory import Guard
from random_calls import RANDOM_CALLS, works_in_place
from random_searches import differs, random_search
from samples import (
    TOP_K_TYPES,
    Sample,
    as_tuple,
    assert_same_bits,
    laid_out,
    modules_of_calls,
    quantized,
    strided,
    values,
)

import dmlcpu
from dmlcpu import at, compile_operator
from dmlcpu.errors import IndexOutOfRangeError
from dmlcpu.kernels import registry
from dmlcpu.operators import OPERATORS
from dmlcpu.operators.bind import bind
from dmlcpu.runtime import memory
from dmlcpu.runtime.threads import use_budget

# On both sides of where vectors, tiles and blocks end.
EDGES = [n for power in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096) for n in (power - 1, power, power + 1) if n]
STAGES = ("select", "dot", "apply")  # of which a call can name the kernel
THREADS = (1, 2, 3, 5)


def edge(rng: np.random.Generator, most: int) -> int:
    """Draw a length."""
    return int(rng.choice([n for n in EDGES if n <= most])) if rng.random() < 0.7 else int(rng.integers(1, most + 1))


def long_top_k(rng: np.random.Generator) -> Sample:
    dtype, axis = TOP_K_TYPES[rng.integers(len(TOP_K_TYPES))], int(rng.integers(2))
    shape = [edge(rng, 40), edge(rng, 40)]
    shape[axis] = edge(rng, 5000 if shape[1 - axis] < 5 else 600)
    k = min(shape[axis], edge(rng, 70))
    return Sample("top_k", (laid_out(rng, values(rng, tuple(shape), dtype)), k), {"axis": axis})


def long_product(rng: np.random.Generator) -> Sample:
    types = [np.dtype(name) for name in rng.choice(["int8", "uint8"], 2)]
    rows, columns = edge(rng, 70 if rng.random() < 0.7 else 9), edge(rng, 300)
    depth = edge(rng, 1100)
    a, b = quantized(rng, (rows, depth), types[0]), quantized(rng, (depth, columns), types[1])
    a, b = laid_out(rng, a), laid_out(rng, b)
    if rng.random() < 0.5:
        return Sample("matmul_integer", (a, 3, b, None), {})
    return Sample("quantized_matmul", (a, 0.1, 3, b, rng.random(columns, np.float32) + 0.01, None, depth * 30.0, 7), {})


def draw(rng: np.random.Generator) -> Sample:
    """Draw a call: one of the random calls of all tests, one in several parts, or one of lengths where blocks end."""
    parallel = [module.parallel_call for module in modules_of_calls().values()]
    makers = [*RANDOM_CALLS, long_top_k, long_top_k, long_product, long_product, parallel[rng.integers(len(parallel))]]
    call = makers[rng.integers(len(makers))](rng)
    return Sample(call.operator, call.args, dict(call.kwargs))


def packed(rng: np.random.Generator, call: Sample) -> Sample:
    """Pack the right-hand side of a product."""
    names = OPERATORS[call.operator].function.__code__.co_varnames
    place = names.index("b") if "b" in names[: len(call.args)] else None
    if place is None or call.args[place].ndim < 2 or rng.random() < 0.5:
        return call
    args = list(call.args)
    args[place] = dmlcpu.pack_b(args[place])
    return Sample(call.operator, tuple(args), call.kwargs)


def spoiled(rng: np.random.Generator, call: Sample) -> bool:
    """Now and then, put an index out of range; return whether there is one."""
    if call.operator != "scatter_nd" or call.kwargs.get("mode", "raise") != "raise" or rng.random() < 0.6:
        return False
    indices = call.args[1]
    if not indices.size or np.iinfo(indices.dtype).max <= max(call.first.shape):
        return False
    indices = np.array(indices)
    indices.flat[rng.integers(indices.size)] = np.iinfo(indices.dtype).max
    call.args = (call.args[0], indices, call.args[2])
    return True


def guarded(rng: np.random.Generator, guard: Guard, call: Sample, expected: tuple[np.ndarray, ...] | None) -> Any:
    """Return a call of an operator on guarded memory: `run()` returns its results. expected: None if it is refused."""

    def placed(name: str, value: Any) -> Any:
        return guard.array(value, name) if isinstance(value, np.ndarray) else value

    args = [placed(f"argument {number}", value) for number, value in enumerate(call.args)]
    kwargs = {name: placed(name, value) for name, value in call.kwargs.items()}
    x, written = call.first, expected is not None
    is_usable = x.flags.writeable and x.flags.aligned and x.dtype.isnative
    if works_in_place(call.operator) and is_usable and rng.random() < 0.3:
        args[0] = out = guard.array(x, "the input and output", written=written)
    else:
        native = [right.astype(right.dtype.newbyteorder("=")) for right in expected or [np.empty_like(x)]]
        layouts = [strided(right) if rng.random() < 0.5 else right for right in native]
        made = [guard.array(layout, "an output", written=written, empty=True) for layout in layouts]
        out = tuple(made) if len(made) > 1 else made[0]
    function = OPERATORS[call.operator].function
    if rng.random() < 0.3:
        return bind(function, *args, **kwargs, out=out)
    return lambda: function(*args, **kwargs, out=out)


def function_call(rng: np.random.Generator, guard: Guard) -> str:
    """Call an operator's function, or what is bound of it."""
    call = draw(rng)
    expected = None if spoiled(rng, call) else call.expected()
    kernels = [row.name for row in registry.available(call.operator) if row.stage in STAGES]
    kernel = str(rng.choice(kernels)) if kernels and rng.random() < 0.5 else None
    with use_budget(int(rng.choice(THREADS)), grain=1, kernel=kernel):
        call = packed(rng, call)
        try:
            found = as_tuple(guarded(rng, guard, call, expected)())
        except LookupError as error:
            if expected is None and isinstance(error, IndexOutOfRangeError):
                return "refused"
            if type(error) is LookupError:
                return "not for that kernel"
            raise
    assert expected is not None, "an index out of range was not refused"
    assert_same_bits(found, expected)
    return call.operator


def compiled_call(rng: np.random.Generator, guard: Guard) -> str:
    """Call a compiled operator on buffers of the sizes that its tensors say."""
    described = [row for row in OPERATORS.values() if row.descs]
    examples = list(described[rng.integers(len(described))].desc_examples())
    desc, inputs = examples[rng.integers(len(examples))]
    mine, plain = compile_operator(desc), compile_operator(desc)
    tensors, owned, buffers = {}, {}, {}
    for field, tensor in desc.tensors():
        buffer = np.zeros(tensor.total_tensor_size_in_bytes, np.uint8)
        if field.name in inputs:
            tensor.view(buffer)[...] = rng.permutation(inputs[field.name].ravel()).reshape(tensor.sizes)
        kept = owned if tensor.flags & dmlcpu.TensorFlags.OWNED_BY_DML else tensors
        kept[field.name], buffers[field.name] = guard.array(buffer, field.name, written=field.output), buffer
    with use_budget(int(rng.choice(THREADS)), grain=1):
        mine.initialize(**owned)
        plain.initialize(**{name: buffers[name] for name in owned})
        expected = as_tuple(plain(**{name: buffers[name] for name in tensors}))
        for _ in range(60):  # the first ones take another way
            assert_same_bits(as_tuple(mine(**tensors)), expected)
    return f"compiled {desc.OPERATOR_TYPE.name}"


def search_call(rng: np.random.Generator, guard: Guard) -> str:
    call = random_search(int(rng.integers(1 << 30)))
    mine = call._replace(queries=guard.array(call.queries, "queries"), vectors=guard.array(call.vectors, "vectors"))
    assert differs(mine) is None
    return "search"


def at_call(rng: np.random.Generator, guard: Guard) -> str:
    shape, dtype = (edge(rng, 40), edge(rng, 20)), np.dtype(str(rng.choice(["f4", "f8", "i4", "i8", "u1"])))
    indices = laid_out(rng, rng.integers(-shape[0], shape[0], edge(rng, 70)))
    x, updates = (rng.integers(0, 4, each).astype(dtype) for each in (shape, (indices.size, shape[1])))
    updates = laid_out(rng, updates)
    expected = x.copy()
    np.add.at(expected, indices, updates)
    y = guard.array(x, "x", written=True)
    with mock.patch.object(at, "LIMITS", at.Limits(0, (0, 0), (0, 0), 0, 0)):
        dmlcpu.add_at(y, guard.array(indices, "indices"), guard.array(updates, "updates"))
    assert_same_bits((y,), (expected,))
    return "add_at"


def check_call(seed: int) -> str:
    """Make the call of a seed on guarded memory, and compare; return what was called."""
    rng = np.random.default_rng(seed)
    guard = Guard(at_end=bool(rng.integers(2)))
    make = rng.choice([function_call, compiled_call, search_call, at_call], p=[0.88, 0.04, 0.04, 0.04])
    with guard.lends_workspaces():
        made = make(rng, guard)
    guard.check()
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=40_000)
    parser.add_argument("--seconds", type=float, help="go on for so long, however many calls that are")
    parser.add_argument("--seed", type=int, default=0, help="of the first call")
    parser.add_argument("--only", type=int, help="one call, by its seed")
    options = parser.parse_args()
    faulthandler.enable()
    memory._LEAST_CELLS = 1  # workspaces are as long as plans say, and no longer
    if options.only is not None:
        print(check_call(options.only))
        return 0
    seeds = itertools.count(options.seed) if options.seconds else range(options.seed, options.seed + options.calls)
    end = time.monotonic() + (options.seconds or float("inf"))
    counts: collections.Counter[str] = collections.Counter()
    failed = 0
    for seed in seeds:
        if time.monotonic() > end or failed > 20:
            break
        print(seed, flush=True)
        try:
            counts[check_call(seed)] += 1
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {repr(error)[:2000]}", file=sys.stderr)
    print(f"{counts.total()} calls ({dict(sorted(counts.items()))}), {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
