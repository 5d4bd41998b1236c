"""The tables of DirectML's reference pages: what each feature level supports. They are data of the operators' descs."""

from typing import NamedTuple

from dmlcpu.directml.enums import FeatureLevel, TensorDataType

Types = tuple[TensorDataType, ...]
FOUR = range(4, 5)
ONE_TO_EIGHT = range(1, 9)


class Allowed(NamedTuple):
    """What one tensor may be."""

    dimensions: range
    types: Types
    required: bool = False  # although the desc's field is optional: it became so at a later level


class Support(NamedTuple):
    """What an operator takes from one feature level on; a later row replaces it."""

    since: FeatureLevel
    tensors: dict[str, Allowed]  # all that the desc may have, by DirectML's names; an array's is for all its elements

    def allowed(self, name: str) -> Allowed:
        """Return what a tensor may be, or an element of an array of tensors."""
        return self.tensors[name] if name in self.tensors else self.tensors[name.partition("[")[0]]


def types(names: str) -> Types:
    """Return data types by their names in DirectML, apart by spaces."""
    return tuple(TensorDataType[name] for name in names.split())


UP_TO_32 = types("FLOAT32 FLOAT16 INT32 INT16 INT8 UINT32 UINT16 UINT8")
