"""Compare random calls with the reference, bit for bit: operators, types, layouts, outputs and thread counts.

    python tests/conformance/random_calls.py --calls 40000 --seed 0

Each call is drawn from its own seed, so that a difference can be repeated alone: --only SEED, with the
same --operators, which are all unless there are names.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.by_numpy import by_numpy
from samples import THREADS, Sample, as_tuple, assert_same_bits, modules_of_calls, random_example, strided

from dmlcpu.operators import OPERATORS
from dmlcpu.operators.bind import bind
from dmlcpu.runtime.threads import use_budget

Maker = Callable[[np.random.Generator], Sample]


def maker(name: str) -> Maker:
    """Return a function that draws calls of an operator: of its own tests, or else its examples in other layouts."""
    if module := modules_of_calls().get(name):
        return module.random_call
    return functools.partial(random_example, operator=name)


RANDOM_CALLS = [maker(name) for name in OPERATORS]


def outputs_for(rng: np.random.Generator, call: Sample, expected: tuple[np.ndarray, ...]) -> dict[str, object]:
    """Choose the outputs: new arrays, given arrays of some layout, or in place."""
    choice = rng.integers(4)
    native = tuple(right.astype(right.dtype.newbyteorder("=")) for right in expected)
    if choice == 0 and works_in_place(call.operator):
        x = call.first
        if x.flags.writeable and x.flags.aligned and x.dtype.isnative:
            return {"out": x}
    if choice < 2:
        return {}
    make = strided if choice == 2 else np.empty_like
    made = tuple(make(right) for right in native)
    return {"out": made if len(made) > 1 else made[0]}


def works_in_place(operator: str) -> bool:
    row = OPERATORS[operator]
    return any(row.desc_class(each).IN_PLACE for each in row.descs)


def check_call(seed: int, makers: Sequence[Maker] = RANDOM_CALLS) -> str:
    """Draw the call of a seed, run it with several thread counts, and compare; return the operator's name."""
    rng = np.random.default_rng(seed)
    call = makers[rng.integers(len(makers))](rng)
    expected = call.expected()
    if (defined := by_numpy(call)) is not None:
        native = [y.astype(y.dtype.newbyteorder("=")) for y in as_tuple(defined)]
        assert_same_bits(native, expected, "NumPy and the reference")
    for position, threads in enumerate(THREADS):
        with use_budget(threads, grain=1):
            # In place destroys the argument, so it comes last.
            more = outputs_for(rng, call, expected) if position == len(THREADS) - 1 else {}
            if not more:
                bound = bind(OPERATORS[call.operator].function, *call.args, **call.kwargs)
                for _ in range(2):
                    assert_same_bits(as_tuple(bound()), expected)
            assert_same_bits(call.run(**more), expected)
    return call.operator


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first call")
    parser.add_argument("--only", type=int, help="one call, by its seed")
    parser.add_argument("--operators", nargs="+", choices=OPERATORS, default=list(OPERATORS))
    options = parser.parse_args()
    makers = [maker(name) for name in options.operators]
    seeds = [options.only] if options.only is not None else range(options.seed, options.seed + options.calls)
    count = dict.fromkeys(options.operators, 0)
    differences = 0
    for seed in seeds:
        try:
            count[check_call(seed, makers)] += 1
        except Exception as error:
            differences += 1
            print(f"seed {seed}: {error!r}", file=sys.stderr)
    print(f"{sum(count.values())} calls equal ({count}), {differences} different or failed; threads {THREADS} each")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
