"""Compiled operators: arrays are bound to a desc's tensors, checked, and passed to the operator."""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple

from dmlcpu.annotations import Result
from dmlcpu.common.arguments import NDARRAY, check_apart, same_memory
from dmlcpu.common.bound import BoundOperator, are_used, own_view
from dmlcpu.directml.base import Bound, OperatorDesc, check_support, fields_of
from dmlcpu.directml.binding import Slot, slot_of
from dmlcpu.directml.checks import check_kind, missing
from dmlcpu.directml.enums import FeatureLevel, TensorFlags, full_name
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.errors import BindingError
from dmlcpu.runtime.memory import OWNS_DATA, PLAIN
from dmlcpu.runtime.threads import plan_for_now


class _Owned(NamedTuple):
    """The tensors that an operator owns, and values derived from them."""

    tensors: Bound
    arrays: Callable[[Bound], Sequence[Any]]  # finds the arrays for a prepared call
    kept_key: list[Any]  # for calls whose tensors are packed and not in place: `prepare` and its key; or empty


def compile_operator(
    desc: OperatorDesc[Result], *, feature_level: FeatureLevel = FeatureLevel.LEVEL_6_4
) -> "CompiledOperator[Result]":
    """Check a desc against a feature level and make an operator from it.

    Parameters
    ----------
    desc : operator desc
        What to compute: a ``TopK1OperatorDesc``, for instance.
    feature_level : FeatureLevel, default LEVEL_6_4
        The DirectML version whose limits on data types and dimension counts apply.

    Returns
    -------
    CompiledOperator
        Initialize it, if the desc has tensors flagged OWNED_BY_DML, then call it.

    Raises
    ------
    UnsupportedError
        If the feature level does not support the operator, the data types or the dimension counts.
    TypeError
        If an argument has the wrong Python type.

    Notes
    -----
    The limits are the tables "Tensor support" of DirectML's reference pages.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import FeatureLevel, TensorDataType, TensorDesc, TopKOperatorDesc, compile_operator
    >>> desc = TopKOperatorDesc(
    ...     input_tensor=TensorDesc(TensorDataType.INT16, sizes=(5,)),
    ...     output_value_tensor=TensorDesc(TensorDataType.INT16, sizes=(2,)),
    ...     output_index_tensor=TensorDesc(TensorDataType.UINT32, sizes=(2,)),
    ...     axis=0,
    ...     k=2,
    ... )
    >>> compile_operator(desc)(input_tensor=np.array([1, 9, 5, 7, 3], np.int16))
    TopK(values=array([9, 7], dtype=int16), indices=array([1, 3], dtype=uint32))
    >>> compile_operator(desc, feature_level=FeatureLevel.LEVEL_2_1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    dmlcpu.errors.UnsupportedError: DML_OPERATOR_TOP_K: InputTensor.DimensionCount is 1; allowed: 4 at ...
    """
    check_kind("compile_operator", "desc", desc, OperatorDesc)
    check_kind("compile_operator", "feature_level", feature_level, FeatureLevel)
    check_support(desc, feature_level)
    return CompiledOperator(desc, feature_level)


class CompiledOperator(Generic[Result]):
    """An operator ready to run; `compile_operator` makes it.

    Attributes
    ----------
    desc : operator desc
        The desc of what it computes.
    feature_level : FeatureLevel
        The feature level against which the desc was checked.

    Notes
    -----
    Tensors are bound by the names of the desc's fields. A field with several tensors is bound to a list; its tensors
    can also be bound one by one, by names with an index (``quantization_tensors[0]``). Bind either an array with the
    tensor's sizes and type, and any strides; or the tensor's buffer: a contiguous 1-D array of its type or of uint8, or
    bytes, a bytearray or a memoryview. A buffer is viewed with the desc's sizes and strides. Nothing is copied, except
    inputs that are not aligned to their type. Outputs that are not bound are allocated, with the desc's strides if it
    has any.

    Nothing is written before every check has passed. Outputs may not share memory with anything else that is bound.
    Some operators work in place: the OutputTensor of a scatter, for instance, may be its InputTensor.

    Operators can be pickled and copied, including the tensors that they own.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlcpu import AxisDirection, TensorDataType, TensorDesc, TopK1OperatorDesc, compile_operator
    >>> op = compile_operator(
    ...     TopK1OperatorDesc(
    ...         input_tensor=TensorDesc(TensorDataType.INT32, sizes=(2, 3), strides=(4, 1)),
    ...         output_value_tensor=TensorDesc(TensorDataType.INT32, sizes=(2, 1)),
    ...         output_index_tensor=TensorDesc(TensorDataType.UINT32, sizes=(2, 1)),
    ...         axis=1,
    ...         k=1,
    ...         axis_direction=AxisDirection.INCREASING,
    ...     )
    ... )
    >>> op
    <CompiledOperator DML_OPERATOR_TOP_K1 at DML_FEATURE_LEVEL_6_4>
    >>> rows = np.array([[5, 6, 4, -1], [9, 7, 8, -1]], np.int32)
    >>> indices = np.empty((2, 1), np.uint32)
    >>> op(input_tensor=rows.reshape(-1), output_index_tensor=indices).values
    array([[4],
           [7]], dtype=int32)
    >>> indices
    array([[2],
           [1]], dtype=uint32)
    """

    def __init__(self, desc: OperatorDesc[Result], feature_level: FeatureLevel) -> None:
        self.desc = desc
        self.feature_level = feature_level
        arrays = [field for field in fields_of(type(desc)) if field.length and field.kind is TensorDesc]
        self._tensor_arrays = {field.name: field for field in arrays}
        self._slots: dict[str, Slot] = {}  # bound by calls
        self._owned_slots: dict[str, Slot] = {}  # bound by `initialize`
        for field, tensor in desc.tensors():
            slots = self._owned_slots if tensor.flags & TensorFlags.OWNED_BY_DML else self._slots
            slots[field.name] = slot_of(desc.operator, field, tensor)
        self._outputs = [slot for slot in self._slots.values() if slot.output]
        self._in_place = desc.IN_PLACE if desc.IN_PLACE and {*desc.IN_PLACE} <= self._slots.keys() else None
        # Only an array of the same type and shape can be both an output and another tensor.
        pairs = itertools.product(self._outputs, self._slots.values())
        self._alike = [(a.name, b.name) for a, b in pairs if a is not b and (a.dtype, a.shape) == (b.dtype, b.shape)]
        self._result: Callable[[Bound], Result] = desc._make_result()
        # Only a 4-bit tensor may be bound to arrays of several types.
        keeps_key = all(type(slot) is Slot for slot in self._slots.values())
        self._packed_flags = OWNS_DATA | PLAIN if keeps_key else OWNS_DATA
        self._owned: _Owned | None = None
        if not self._owned_slots:
            self._own({})

    def _own(self, owned: Bound) -> None:
        """Take over the owned tensors."""
        self._owned = _Owned(owned, self.desc._make_arrays(owned), [])

    def __repr__(self) -> str:
        return f"<CompiledOperator {self.desc.operator} at {full_name(self.feature_level)}>"

    def __reduce__(self) -> Any:
        return _again, (self.desc, self.feature_level, self._owned and self._owned.tensors)

    def initialize(self, **owned: Any) -> None:
        """Bind all tensors flagged OWNED_BY_DML, for all later calls.

        The operator keeps copies, and packs a matrix B. Another call replaces them.

        Parameters
        ----------
        **owned : ndarray or buffer
            A value for each flagged tensor, by the name of the desc's field.

        Raises
        ------
        BindingError
            If a tensor is missing, is not flagged, or does not fit; the previous tensors remain.
        TypeError
            If a value has the wrong Python type.
        """
        bound = {}
        for name, value in self._by_element(owned).items():
            if name not in self._owned_slots:
                raise self._unbindable(name, self._owned_slots)
            bound[name] = self._owned_slots[name].bind(value)
        if absent := [slot for name, slot in self._owned_slots.items() if name not in bound]:
            raise _missing(absent)
        self._own({name: self.desc._keep(name, array) for name, array in bound.items()})

    def __call__(self, **tensors: Any) -> Result:
        """Run the operator.

        Parameters
        ----------
        **tensors : ndarray or buffer
            By the names of the desc's fields: a value for each input that is not flagged OWNED_BY_DML, and for each
            output that should not be a new array.

        Returns
        -------
        ndarray or named tuple of them
            The output, or outputs. For an output that was bound as a buffer, a view of the buffer.

        Raises
        ------
        BindingError
            If a tensor is missing, unknown, flagged OWNED_BY_DML, does not fit, or shares memory that it must not
            share; or if the operator is not initialized.
        IndexOutOfRangeError
            If an element of an index tensor is out of range.
        TypeError
            If a value has the wrong Python type.
        """
        if self._owned is None:
            raise self._uninitialized()
        return self._run(self._by_element(tensors) if self._tensor_arrays else tensors, self._owned)

    def _run(self, tensors: Bound, owned: "_Owned") -> Result:
        """Run on tensors, each by its own name; return the outputs."""
        bound, is_packed = self._checked(tensors, owned.tensors)
        arrays = owned.arrays(bound)
        prepare, key = owned.kept_key if is_packed and owned.kept_key else self.desc._key(arrays)
        if is_packed and key:
            # Cached by the budget only: hashing the whole key takes a third of a microsecond.
            owned.kept_key[:] = functools.lru_cache(functools.partial(prepare, *key)), ()
        prepared = plan_for_now(prepare, key)
        while (refused := prepared.run(*arrays)) is not None:
            self.desc._refuse(bound, refused)
            arrays = owned.arrays(bound)  # another thread has written a valid value
        return self._result(bound)

    def bind(self, **tensors: Any) -> BoundOperator:
        """Bind tensors for calls that repeat on the same memory, as DirectML's binding table does.

        All checks, views and plans are made once. Each call of the result runs the kernel on the values that the
        tensors have at that time.

        Parameters
        ----------
        **tensors : ndarray or buffer
            As for a call. Outputs that are not given are allocated once.

        Returns
        -------
        BoundOperator
            Call it without arguments. It returns the same arrays each time. If the operator is initialized again, the
            bound operator keeps the previous owned tensors.

        Raises
        ------
        BindingError, TypeError
            As for a call, except errors about values.

        Examples
        --------
        >>> import numpy as np
        >>> from dmlcpu import TensorDataType, TensorDesc, TopKOperatorDesc, compile_operator
        >>> op = compile_operator(
        ...     TopKOperatorDesc(
        ...         input_tensor=TensorDesc(TensorDataType.INT16, sizes=(5,)),
        ...         output_value_tensor=TensorDesc(TensorDataType.INT16, sizes=(2,)),
        ...         output_index_tensor=TensorDesc(TensorDataType.UINT32, sizes=(2,)),
        ...         axis=0,
        ...         k=2,
        ...     )
        ... )
        >>> x = np.array([1, 9, 5, 7, 3], np.int16)
        >>> run = op.bind(input_tensor=x)
        >>> run()
        TopK(values=array([9, 7], dtype=int16), indices=array([1, 3], dtype=uint32))
        >>> x[0] = 8
        >>> run().values
        array([9, 8], dtype=int16)
        """
        if self._owned is None:
            raise self._uninitialized()
        owned = self._owned
        given = self._by_element(tensors)
        mine = {name: own_view(value) for name, value in given.items()}
        bound, _ = self._checked(mine, owned.tensors)
        as_given = {slot.name: slot.bind(given[slot.name]) for slot in self._outputs if slot.name in given}
        arrays = owned.arrays(bound)
        prepare, key = self.desc._key(arrays)
        # Arrays that are copied because they are not aligned (by `Slot.bind`) or not packed are copied for each call.
        own = [bound[name] for name in given]
        is_prepared = are_used(own, arrays) and not any(each.flags.owndata for each in own)
        mine |= {slot.name: bound[slot.name] for slot in self._outputs}

        return BoundOperator(
            self.desc.operator,
            self._result({**bound, **as_given}),
            functools.partial(self._run, mine, owned),
            [*given.values(), *bound.values()],
            functools.partial(prepare, *key) if is_prepared else None,
            arrays,
        )

    def _checked(self, tensors: Bound, owned: Bound) -> tuple[Bound, bool]:
        """Return all tensors as arrays, with new outputs if none are given, and whether the kept key fits."""
        bound, slots, flags = owned.copy(), self._slots, self._packed_flags
        for name, value in tensors.items():
            slot = slots.get(name)
            if slot is None:
                raise self._unbindable(name, slots)
            is_tensor = type(value) is NDARRAY and value.dtype is slot.dtype and value.shape == slot.shape
            its = value.flags.num if is_tensor else 0
            if its & slot.plain != slot.plain:
                value = slot.bind(value)
                its = value.flags.num
            bound[name] = value
            flags &= its
        absent = len(slots) - len(tensors)
        if absent:
            new = [slot for slot in self._outputs if slot.name not in bound]
            if len(new) < absent:
                raise _missing([slot for slot in slots.values() if not (slot.output or slot.name in bound)])
            for slot in new:
                bound[slot.name] = array = slot.make()
                flags &= array.flags.num | OWNS_DATA
        # New outputs share no memory, nor do different arrays that own their data: most calls need no further check.
        is_apart = flags & OWNS_DATA and not (self._alike and any(bound[a] is bound[b] for a, b in self._alike))
        # All missing tensors are outputs.
        is_in_place = absent < len(self._outputs) and not is_apart and self._check_apart(bound)
        return bound, flags & PLAIN == PLAIN and not is_in_place

    def _by_element(self, values: Bound) -> Bound:
        """Return the values of tensor arrays element by element; a None in a list is bound elsewhere or not at all."""
        by_element = {name: value for name, value in values.items() if name not in self._tensor_arrays}
        for name, field in self._tensor_arrays.items():
            if name not in values:
                continue
            given, length = values[name], len(getattr(self.desc, name))
            allowed = f"a list of {length} arrays or buffers, one for each tensor"
            if not isinstance(given, list | tuple):
                raise TypeError(f"{self.desc.operator}: {field.dml_name} is {type(given).__name__}; allowed: {allowed}")
            if len(given) != length:
                raise BindingError(self.desc.operator, field.dml_name, f"a list of {len(given)}", allowed)
            elements = {field.element(i): value for i, value in enumerate(given) if value is not None}
            for element, value in elements.items():
                if element.name in by_element:
                    raise BindingError(self.desc.operator, element.dml_name, "given twice", "in the list or by itself")
                by_element[element.name] = value
        return by_element

    def _check_apart(self, bound: Bound) -> bool:
        """Refuse outputs that share memory with other tensors; return whether an output is its own input."""
        is_in_place = False
        others = {slot.dml_name: bound[slot.name] for slot in self._slots.values() if not slot.output}
        if self._in_place:
            output, input_ = self._in_place
            if same_memory(bound[input_], bound[output]):
                bound[input_] = bound[output]
                is_in_place = True
                del others[self._slots[input_].dml_name]
        for slot in self._outputs:
            array = bound[slot.name]
            check_apart(slot.operator, slot.dml_name, array, others)
            others[slot.dml_name] = array
        return is_in_place

    def _uninitialized(self) -> BindingError:
        slot = next(iter(self._owned_slots.values()))
        names = ", ".join(f"{name}=..." for name in _arguments(self._owned_slots))
        return BindingError(slot.operator, slot.dml_name, "not initialized", f"a call after initialize({names})")

    def _unbindable(self, name: str, allowed: dict[str, Slot]) -> BindingError:
        """Return the error about a tensor that cannot be bound here."""
        operator, owned, bound = self.desc.operator, self._owned_slots.get(name), self._slots.get(name)
        if owned:
            way = f"initialize({_arguments([name])[0]}=...), as it is flagged OWNED_BY_DML"
            return BindingError(operator, owned.dml_name, "given to the call", way)
        if bound:
            way = "a call, as it is not flagged OWNED_BY_DML"
            return BindingError(operator, bound.dml_name, "given to initialize", way)
        here = self.desc._spelled(name)
        if here in {*self._tensor_arrays, *self._owned_slots, *self._slots}:
            return BindingError(operator, name, "DirectML's spelling", f"{here} here")
        return BindingError(operator, name, "not a tensor of the desc", ", ".join(_arguments(allowed)) or "no tensors")


def _missing(absent: list[Slot]) -> BindingError:
    """Return the error about missing inputs."""
    first, *others = absent
    return BindingError(first.operator, first.dml_name, missing([slot.dml_name for slot in others]), first.allowed)


def _again(desc: OperatorDesc, feature_level: FeatureLevel, owned: Bound | None) -> CompiledOperator:
    """Return an operator that was pickled or copied."""
    operator = compile_operator(desc, feature_level=feature_level)
    if owned:
        operator._own(owned)
    return operator


def _arguments(names: Iterable[str]) -> list[str]:
    """Return the arguments that bind tensors; an array of tensors has one."""
    return list(dict.fromkeys(name.partition("[")[0] for name in names))
