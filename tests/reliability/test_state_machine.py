"""Compiled operators, packed matrices and numbers of threads in any order, from two Python threads at a time."""

import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from desc_builders import OWNED, tensor
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from samples import assert_same_bits

import dmlcpu
from dmlcpu import (
    AxisDirection,
    MatrixMultiplyIntegerOperatorDesc,
    TopK1OperatorDesc,
    compile_operator,
    get_num_threads,
    reference,
    set_num_threads,
)
from dmlcpu.errors import BindingError
from dmlcpu.runtime.threads import limit_threads, use_budget

Check = Callable[[int], None]  # makes a call that follows from a seed, and compares it with the reference


class Selecting:
    """A compiled top_k."""

    def __init__(self, dtype: str, rows: int, n: int, k: int, largest: bool) -> None:
        self.shape, self.k, self.largest = (rows, n), k, largest
        self.dtype = np.dtype(dtype.lower())
        self.run = compile_operator(
            TopK1OperatorDesc(
                input_tensor=tensor(dtype, rows, n),
                output_value_tensor=tensor(dtype, rows, k),
                output_index_tensor=tensor("UINT32", rows, k),
                axis=1,
                k=k,
                axis_direction=AxisDirection.DECREASING if largest else AxisDirection.INCREASING,
            )
        )

    def __call__(self, seed: int) -> None:
        x = np.random.default_rng(seed).integers(0, 9, self.shape).astype(self.dtype)
        expected = reference.top_k(x, self.k, largest=self.largest, index_dtype="uint32")
        assert_same_bits(self.run(input_tensor=x), expected)


class Multiplying:
    """A compiled product that owns its right-hand side, and is given others from time to time."""

    def __init__(self, a_type: str, b_type: str, rows: int, depth: int, columns: int) -> None:
        self.a_dtype, self.b_dtype = np.dtype(a_type.lower()), np.dtype(b_type.lower())
        self.rows, self.b_shape = rows, (depth, columns)
        self.run = compile_operator(
            MatrixMultiplyIntegerOperatorDesc(
                a_tensor=tensor(a_type, rows, depth),
                b_tensor=tensor(b_type, depth, columns, flags=OWNED),
                output_tensor=tensor("INT32", rows, columns),
            )
        )
        with pytest.raises(BindingError, match="not initialized"):
            self.run(a_tensor=np.zeros((rows, depth), self.a_dtype))
        self.own(0)

    def own(self, seed: int) -> None:
        b = np.random.default_rng(seed).integers(0, 100, self.b_shape).astype(self.b_dtype)
        self.b = b.copy()
        self.run.initialize(b_tensor=b)
        b[...] = 1  # a copy is kept

    def __call__(self, seed: int) -> None:
        a = np.random.default_rng(seed).integers(0, 100, (self.rows, self.b_shape[0])).astype(self.a_dtype)
        assert_same_bits((self.run(a_tensor=a),), (a.astype(np.int32) @ self.b.astype(np.int32),))


class Packed:
    """A packed matrix, and one that was pickled."""

    def __init__(self, dtype: str, batch: tuple[int, ...], depth: int, columns: int) -> None:
        b = np.random.default_rng(depth * 71 + columns).integers(0, 100, (*batch, depth, columns)).astype(dtype)
        mine = dmlcpu.pack_b(b)
        self.b, self.packed = b.copy(), [mine, pickle.loads(pickle.dumps(mine))]
        b[...] = 0

    def __call__(self, seed: int) -> None:
        a = np.random.default_rng(seed).integers(0, 256, (1 + seed % 40, self.b.shape[-2]), np.uint8)
        expected = reference.matmul_integer(a, 3, self.b, None)
        for packed in self.packed:
            assert_same_bits((dmlcpu.matmul_integer(a, 3, packed, None),), (expected,))


TYPES = st.sampled_from(["INT8", "UINT8"])
LENGTHS = st.integers(1, 70)


class Machine(RuleBasedStateMachine):
    """What two Python threads do with what has been made so far."""

    made: Bundle[Check] = Bundle("made")
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.before = self.wanted = get_num_threads()
        self.pool = ThreadPoolExecutor(2)

    def teardown(self) -> None:
        set_num_threads(self.before)
        self.pool.shutdown()

    @rule(
        target=made,
        dtype=st.sampled_from(["FLOAT32", "FLOAT16", "INT8", "UINT16"]),
        rows=st.integers(1, 6),
        n=LENGTHS,
        k=LENGTHS,
        largest=st.booleans(),
    )
    def make_selecting(self, dtype: str, rows: int, n: int, k: int, largest: bool) -> Check:
        return Selecting(dtype, rows, n, min(n, k), largest)

    @rule(target=made, a_type=TYPES, b_type=TYPES, rows=st.integers(1, 40), depth=LENGTHS, columns=LENGTHS)
    def make_multiplying(self, a_type: str, b_type: str, rows: int, depth: int, columns: int) -> Check:
        return Multiplying(a_type, b_type, rows, depth, columns)

    @rule(
        target=made,
        dtype=st.sampled_from(["int8", "uint8"]),
        batch=st.sampled_from([(), (2,)]),
        depth=st.integers(0, 70),
        columns=st.integers(0, 70),
    )
    def make_packed(self, dtype: str, batch: tuple[int, ...], depth: int, columns: int) -> Check:
        return Packed(dtype, batch, depth, columns)

    @rule(check=made, seed=st.integers(0, 99))
    def own_another(self, check: Check, seed: int) -> None:
        if isinstance(check, Multiplying):
            check.own(seed)

    @rule(threads=st.integers(1, 5))
    def set_threads(self, threads: int) -> None:
        set_num_threads(threads)
        self.wanted = threads

    @rule(threads=st.sampled_from([0, -3, 1.5, True, "2", None]))
    def refuse_threads(self, threads: object) -> None:
        with pytest.raises((TypeError, ValueError), match="set_num_threads"):
            set_num_threads(threads)

    @rule(one=made, other=made, seed=st.integers(0, 1000), threads=st.integers(1, 4))
    def call(self, one: Check, other: Check, seed: int, threads: int) -> None:
        def limited() -> None:
            with limit_threads(threads):
                one(seed)

        with use_budget(3, grain=1):
            self._at_once(limited, lambda: other(seed + 1))
        self._at_once(lambda: one(seed + 2), lambda: other(seed + 3))
        one(seed)
        Machine.calls += 5

    def _at_once(self, *calls: Callable[[], None]) -> None:
        for future in [self.pool.submit(call) for call in calls]:
            future.result(timeout=60)

    @invariant()
    def has_the_threads_that_were_set(self) -> None:
        assert get_num_threads() == self.wanted


@pytest.mark.parametrize("each", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_anything_in_any_order(each: int, seconds: float | None, counted: Callable[[str], None]) -> None:
    Machine.calls, machines = 0, 0
    rules = settings(
        max_examples=each, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    end = time.monotonic() + (seconds or 0)
    while machines == 0 or time.monotonic() < end:
        run_state_machine_as_test(Machine, settings=rules)
        machines += each
    counted(f"{machines:,} machines of at most 30 steps, {Machine.calls:,} calls")
