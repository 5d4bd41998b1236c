"""The exceptions of the package: every refusal is a DmlError."""

__all__ = ["BindingError", "DmlError", "IndexOutOfRangeError", "InvalidDescriptorError", "UnsupportedError"]


class DmlError(ValueError):
    """An operator refuses an argument or a descriptor.

    Parameters
    ----------
    operator : str
        The function (``top_k``) or the operator (``DML_OPERATOR_TOP_K1``) that refuses.
    field : str
        The argument, or the descriptor's field in DirectML's spelling.
    found : str
        The value found.
    allowed : str
        The values allowed.

    Examples
    --------
    >>> import dmlcpu
    >>> dmlcpu.top_k([3.0, 1.0], 5)
    Traceback (most recent call last):
        ...
    dmlcpu.errors.DmlError: top_k: k is 5; allowed: 0 to 2 (the elements along axis 0)
    """

    def __init__(self, operator: str, field: str, found: str, allowed: str) -> None:
        super().__init__(operator, field, found, allowed)  # args: the error pickles
        self.operator = operator
        self.field = field
        self.found = found
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.operator}: {self.field} is {self.found}; allowed: {self.allowed}"


class InvalidDescriptorError(DmlError):
    """A descriptor contradicts itself: its sizes, strides, axis or counts do not match."""


class BindingError(DmlError):
    """An array does not fit the tensor or argument that it is bound to."""


class IndexOutOfRangeError(DmlError, IndexError):
    """An index points outside its dimension. Nothing has been written."""


class UnsupportedError(DmlError):
    """The data type, dimension count or operator is not supported (at this feature level)."""
