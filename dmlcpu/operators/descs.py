"""Descs of all operators by type, and DirectML's names."""

from collections.abc import Iterator
from typing import Any

from dmlcpu.directml import dxdispatch
from dmlcpu.directml.base import OperatorDesc
from dmlcpu.directml.enums import PREFIXES, OperatorType, full_name, meant
from dmlcpu.errors import InvalidDescriptorError, UnsupportedError
from dmlcpu.operators.table import OPERATORS


def operator_desc_from_dict(d: dict[str, Any]) -> OperatorDesc:
    """Make an operator desc from its dictionary in a DxDispatch model.

    Parameters
    ----------
    d : dict
        ``{"type": "DML_OPERATOR_TOP_K1", "desc": {...}}``, with the desc's fields in DirectML's spelling. Prefixes of
        enumerated values may be omitted (``TOP_K1``, ``FLOAT32``), and so may optional tensors and all of a tensor's
        fields except DataType and Sizes. A tensor may be wrapped as ``{"Type": "DML_TENSOR_TYPE_BUFFER", "Desc":
        {...}}``. The members "bindings" and "dmlCompileType" of a dispatchable are ignored.

    Returns
    -------
    operator desc
        An instance of its type's class, for instance ``TopK1OperatorDesc``; equal to the desc whose `to_dict` returned
        `d`.

    Raises
    ------
    InvalidDescriptorError
        If a field is missing, unknown, of the wrong kind or contradicts others. The error's `field` is the path below
        "desc", for instance ``InputTensor.Sizes[2]``.
    UnsupportedError
        If dmlcpu does not have the operator.
    TypeError
        If `d` is not a dictionary.

    Examples
    --------
    >>> import dmlcpu
    >>> desc = dmlcpu.operator_desc_from_dict(
    ...     {
    ...         "type": "TOP_K",
    ...         "desc": {
    ...             "InputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 4]},
    ...             "OutputValueTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 2]},
    ...             "OutputIndexTensor": {"DataType": "UINT32", "Sizes": [1, 1, 3, 2]},
    ...             "Axis": 3,
    ...             "K": 2,
    ...         },
    ...     }
    ... )
    >>> desc.input_tensor.sizes
    (1, 1, 3, 4)
    >>> dmlcpu.operator_desc_from_dict(desc.to_dict()) == desc
    True
    """
    return dxdispatch.desc_from_dict(d, _class_of)


def field_errors(d: dict[str, Any]) -> Iterator[InvalidDescriptorError]:
    """Yield the errors of each field by itself, for `models`, which reports all errors of a file."""
    return dxdispatch.field_errors(d, _class_of)


def _class_of(name: Any) -> type[OperatorDesc]:
    """Return the class of an operator type's descs; only its operator is imported."""
    owners = {full_name(each): (operator, each) for operator in OPERATORS.values() for each in operator.descs}
    short = str(name).removeprefix("DML_OPERATOR_")
    full = full_name(OperatorType[short]) if short in OperatorType.__members__ else ""  # under an older or a newer name
    if full not in owners:
        raise UnsupportedError("operator_desc_from_dict", "type", repr(name), ", ".join(owners))
    operator, operator_type = owners[full]
    cls: type[OperatorDesc] = operator.desc_class(operator_type)
    return cls


def spelled_here(name: str) -> str | None:
    """Return the Python name of a DirectML structure, enumeration or constant; None if there is none."""
    descs = [pair for operator in OPERATORS.values() for pair in operator.descs.items()]
    classes = [*(cls for _, cls in descs), "TensorDesc", *(kind.__name__ for kind in PREFIXES)]
    letters = name.removeprefix("DML_").removeprefix("BUFFER_").replace("_", "").lower()
    known = [cls for cls in classes if cls.lower() == letters]
    known += [cls for each, cls in descs if f"{each.name}operatordesc".replace("_", "").lower() == letters]
    return next(filter(None, [*known, *(meant(kind, name) for kind in PREFIXES)]), None)
