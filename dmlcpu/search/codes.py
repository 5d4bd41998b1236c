"""Codes of float vectors, one byte a number, and bounds of the products that they represent.

docs/exact_search.rst derives the bounds. A vector v (for cosines, v divided by its length) is w = R (v - centre) *
factor; a query likewise is u. With codes c, g and scales a, b:

    u . w <= a * (b * (g . c) + |u| * lost + |u - b g| * length)

where `lost` bounds |w / a - c| and `length` bounds |c| for all vectors of the index. So only one scale and one bias
differ from vector to vector.
"""

import functools
from typing import NamedTuple

import numpy as np

from dmlcpu.annotations import Metric
from dmlcpu.common.arguments import Array
from dmlcpu.errors import DmlError
from dmlcpu.kernels import registry
from dmlcpu.kernels.search.constants import (
    CODE_LENGTH,
    COSINE,
    DISTANCE,
    FACTS,
    FAR,
    GREATEST,
    LENGTH,
    PRODUCT,
    RESIDUAL,
    SQUARE,
    SUBNORMAL_ERROR,
    SUM_ERROR,
    TERM,
)
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import flat
from dmlcpu.runtime.records import LINE_CELLS, record_of
from dmlcpu.search.vectors import Limits, Stored
from dmlcpu.selection.plan import saturates

METRIC_NUMBERS: dict[Metric, int] = {"ip": PRODUCT, "l2": DISTANCE, "cosine": COSINE}
MOST_CODE = 127  # in absolute value
# Queries' codes on processors that add pairs of products in 16 bits: as bytes without sign, less this zero point, they
# are at most 127, and no pair of products is too large. 1,024 queries take three quarters of the time by AVX2 (Zen 3).
_SEVEN_BITS = 64
_SAMPLE = 256  # vectors whose median is the center
MOST_EXPONENT = 250  # of the factor: its square is finite, and so is one over it
_ROWS, _NUMBERS = 1 << 14, 1 << 22  # that are encoded at a time
_NS_OF_NUMBER = 3  # for one thread, in nanoseconds
# Bounds of rounding; docs/exact_search.rst derives them.
_ROTATED = 2.0**-19  # of float32 centering and rotation, relative to the length
_CODED = 2.0**-20  # of w / scale, relative to the length of the codes
_SUMMED = 1 + 2.0**-10  # of float32 sums of up to 16,384 squares
_MULTIPLIED = 2.0**-21  # of the selection's float32 operations, relative to the product of lengths
_LOWEST = float(np.finfo(np.float32).min)
UNDERFLOW = np.float32(2.0**-120)  # of float32 operations
_FAR_CENTRE = 0.25  # of the length of queries: from here on it is checked whether not centering them is better


class Frame(NamedTuple):
    """How floats of an index become codes."""

    metric: Metric
    centre: Array  # float64 (D,), numbers of float32
    factor: float  # a power of two

    @property
    def depth(self) -> int:
        """The number of dimensions."""
        return len(self.centre)


class Encoded(NamedTuple):
    """Rows of floats as codes; see kernels/search/encode.py for the facts."""

    codes: Array  # int8 (N, D)
    scales: Array  # float32 (N,)
    facts: Array  # float64 (N, FACTS)

    @classmethod
    def empty(cls, count: int, depth: int) -> "Encoded":
        """Return space for rows."""
        return cls(np.empty((count, depth), np.int8), np.empty(count, np.float32), np.empty((count, FACTS)))


class Terms(NamedTuple):
    """Queries as a selection reads them, and how bounds of ranks come of its scores."""

    codes: Array  # int8 (M, D), or uint8
    zero_point: Array | None  # uint8 (1, 1): of uint8 codes
    scales: Array  # float32 (M,)
    added: Array  # float32 (M,): added to a query's products before a vector's scale
    affine: Array  # float64 (M, 2): bound of the rank = score * affine[0] + affine[1]
    is_biased: bool  # whether the vectors' bias is added
    is_near: Array  # bool (M,): False: too far away for codes
    squares: Array  # float64 (M,): the sum of squares of each query, for cosines in the stated order
    is_wide: bool  # whether queries are float64


def plain(x: Array) -> Array:
    """Return rows in C order of a type that kernels read: float32 and float64 as they are, others as float32."""
    dtype = x.dtype if x.dtype in (np.float32, np.float64) else np.float32
    return np.require(x, dtype, ["C", "A"])


def sample_of(count: int, most: int = _SAMPLE) -> Array:
    """Return the positions of a sample of `count` vectors."""
    return np.linspace(0, max(0, count - 1), min(most, count)).astype(np.int64)


def frame_of(metric: Metric, vectors: Array) -> Frame:
    """Return how vectors (N, D) are encoded: about the median of a sample. Any center is correct."""
    count, depth = vectors.shape
    sample = vectors[sample_of(count)].astype(np.float64)
    sample[~(np.abs(sample) <= GREATEST)] = 0
    if metric == "cosine":
        lengths = np.sqrt(np.square(sample).sum(axis=1, keepdims=True))
        sample = np.divide(sample, lengths, out=np.zeros_like(sample), where=lengths > 0)
    centre = np.zeros(depth)
    if count:
        with np.errstate(over="ignore"):
            columns = sample.T.astype(np.float32)  # np.median takes three times as long
        middle = np.partition(columns, len(sample) // 2, axis=1)[:, len(sample) // 2].astype(np.float64)
        centre = np.where(np.isfinite(middle), middle, 0.0)
    most = np.abs(sample - centre).max(initial=0)
    _, exponent = np.frexp(most)
    return Frame(metric, centre, 2.0 ** -float(np.clip(exponent, -MOST_EXPONENT, MOST_EXPONENT)) if most else 1.0)


@functools.lru_cache(maxsize=64)
def signs_of(depth: int) -> Array:
    """Return what the rotation multiplies by before it mixes, float32 (D,): signs, and a scale that keeps lengths.

    The signs are fixed pseudo-random bits: searches use those with which the index was built.
    """
    mixed = np.arange(1, depth + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    signs, first = np.where(mixed >> np.uint64(63), -1.0, 1.0), 0
    while first < depth:
        n = 1 << ((depth - first).bit_length() - 1)
        signs[first : first + n] /= np.sqrt(n)
        first += n
    return signs.astype(np.float32)


def encode(
    operator: str, field: str, x: Array, frame: Frame, found: Encoded, first: int = 0, most: int = MOST_CODE
) -> None:
    """Encode rows of floats (N, D), or refuse NaN, infinity and numbers beyond 2**500.

    first: from which an error counts; most: codes are not greater, in absolute value.
    """
    bad = _encode_rows(plain(x), frame, found, most)
    if bad >= 0:
        place = int(np.argmin(np.abs(x[bad].astype(np.float64)) <= GREATEST))
        wanted = "finite numbers" if x.dtype != np.float64 else "finite numbers of at most 2**500"
        raise DmlError(operator, f"{field}[{first + bad}, {place}]", str(x[bad, place]), wanted)


def encoded_queries(operator: str, queries: Array, frame: Frame, most: int) -> Encoded:
    """Return encoded queries, or refuse them as `encode` does."""
    found = Encoded.empty(*queries.shape)
    encode(operator, "queries", queries, frame, found, most=most)
    return found


def _encode_rows(x: Array, frame: Frame, found: Encoded, most: int) -> int:
    """Encode plain rows; return the first row that cannot be, or -1."""
    if not can_compile():  # codes without information: all vectors are scored
        for each in found:
            each[...] = 0
        good = (np.abs(x.astype(np.float64)) <= GREATEST).all(axis=1)
        return -1 if good.all() else int(np.argmin(good))
    count, depth = x.shape
    parts = threads.budget().parts(count * depth * _NS_OF_NUMBER, count)
    bad = np.empty(parts * LINE_CELLS, np.int64)
    share_cells = LINE_CELLS * (2 + -(-depth // (2 * LINE_CELLS)))
    work = record_of(
        registry.load("search.encode.ENCODE"),
        rows=count,
        depth=depth,
        metric=METRIC_NUMBERS[frame.metric],
        factor=frame.factor,
        most=most,
        share_cells=share_cells,
    )
    registry.find("search", "encode").kernel.for_parts(parts)(
        flat(x),
        frame.centre,
        signs_of(depth),
        found.codes.reshape(-1),
        found.scales,
        found.facts.reshape(-1),
        bad,
        work,
        np.empty(parts * share_cells, np.int64),
    )
    reported = bad[::LINE_CELLS]
    return int(min(reported[reported >= 0], default=-1))


def _centre_length(frame: Frame) -> float:
    return float(np.sqrt(np.square(frame.centre).sum()))


def bias_of(encoded: Encoded, frame: Frame) -> Array:
    """Return the addend of each vector's bound, float32 (N,), rounded up; infinite if codes have no information."""
    exact = encoded.facts[:, TERM] * frame.factor**2
    rounding = 0.0
    if frame.metric == "l2":
        exact /= -2
    else:
        rounding = SUM_ERROR * frame.factor * _centre_length(frame)
    with np.errstate(over="ignore"):
        bias = exact + np.abs(exact) * 2.0**-22 + encoded.facts[:, LENGTH] * rounding + UNDERFLOW
        rounded: Array = np.maximum(bias, _LOWEST).astype(np.float32)  # -inf would be no bound
    rounded[encoded.scales == 0] = np.inf
    return rounded


def stored_floats(operator: str, vectors: Array, frame: Frame, first: int = 0, names: Array | None = None) -> Stored:
    """Return floats (N, D) with their codes, or refuse numbers as `encode` does. names: the rows to encode, or all."""
    count, depth = len(vectors) if names is None else len(names), vectors.shape[1]
    codes, scales, bias = np.empty((count, depth), np.int8), np.empty(count, np.float32), np.empty(count, np.float32)
    squares = np.empty(count) if frame.metric == "cosine" else None
    facts, most = np.empty((min(count, _ROWS), FACTS)), np.zeros(3)
    for start in range(0, count, rows := max(1, min(_ROWS, _NUMBERS // depth))):
        part = slice(start, start + rows)
        block = Encoded(codes[part], scales[part], facts[: len(codes[part])])
        encode(operator, "vectors", vectors[part if names is None else names[part]], frame, block, first + start)
        bias[part] = bias_of(block, frame)
        if squares is not None:
            squares[part] = block.facts[:, SQUARE]
        has_codes = (block.scales > 0)[:, None]
        facts_of_codes = block.facts[:, (RESIDUAL, CODE_LENGTH, LENGTH)]
        np.maximum(most, facts_of_codes.max(axis=0, initial=0, where=has_codes), out=most)
    limits = Limits(*(most * _SUMMED).tolist())
    return Stored(codes, scales, squares, floats=vectors, bias=bias, limits=limits, frame=frame)


def terms_of(operator: str, queries: Array, frame: Frame, limits: Limits) -> Terms:
    """Encode queries (M, D) for vectors within limits, or refuse numbers as `encode` does."""
    has_seven_bits = can_compile() and saturates(len(queries))
    most = _SEVEN_BITS - 1 if has_seven_bits else MOST_CODE
    encoded = encoded_queries(operator, queries, frame, most)
    constant, lengths, is_biased = encoded.facts[:, TERM], encoded.facts[:, LENGTH], True
    if frame.metric != "l2":
        constant = constant + np.square(frame.centre).sum()
        if _centre_length(frame) * frame.factor > _FAR_CENTRE * lengths.max(initial=0):
            bare = encoded_queries(operator, queries, frame._replace(centre=np.zeros(frame.depth)), most)
            if bare.facts[:, LENGTH].sum() < lengths.sum():  # queries unlike the vectors: they are not centered
                encoded, is_biased = bare, False
    facts, scales, u = encoded.facts, encoded.scales.astype(np.float64), encoded.facts[:, LENGTH] * _SUMMED
    lost = limits.lost + limits.length * _CODED + 2.0**-40
    lost += _ROTATED * (limits.length + lost)
    own = (facts[:, RESIDUAL] + facts[:, CODE_LENGTH] * _CODED) * _SUMMED + 2.0**-40
    own = scales * own + _ROTATED * u
    added = u * lost + own * limits.length + _MULTIPLIED * (u + own) * limits.length
    with np.errstate(over="ignore"):
        rounded = np.nextafter((added * (1 + 2.0**-20) + UNDERFLOW).astype(np.float32), np.float32(np.inf))
    codes = (encoded.codes + np.int8(_SEVEN_BITS)).view(np.uint8) if has_seven_bits else encoded.codes
    return Terms(
        codes,
        np.full((1, 1), _SEVEN_BITS, np.uint8) if has_seven_bits else None,
        encoded.scales,
        rounded,
        _affine(frame, limits, constant, lengths),
        is_biased,
        (encoded.scales > 0) & (u < FAR),
        facts[:, SQUARE] if frame.metric == "cosine" else np.square(queries.astype(np.float64)).sum(axis=1),
        queries.dtype == np.float64,
    )


def _affine(frame: Frame, limits: Limits, constant: Array, lengths: Array) -> Array:
    """Return how bounds of ranks come of scores, float64 (M, 2), with what sums in float64 lose."""
    unit = np.full(len(constant), 1 / frame.factor**2)
    if frame.metric == "l2":
        return np.stack([2 * unit, constant * (SUM_ERROR - 1) + SUBNORMAL_ERROR], axis=1)
    constant = constant + SUBNORMAL_ERROR
    if frame.metric == "cosine":
        return np.stack([unit, constant + 2.0**-34], axis=1)
    centre = _centre_length(frame)
    query, vector = lengths / frame.factor + centre, limits.reach / frame.factor + centre
    return np.stack([unit, constant + SUM_ERROR * query * (centre + vector)], axis=1)
