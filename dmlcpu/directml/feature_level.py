"""The tables of DirectML's reference pages: what each feature level supports. The operators' descs hold them."""

from typing import NamedTuple

from dmlcpu.directml.enums import FeatureLevel, TensorDataType

Types = tuple[TensorDataType, ...]
FOUR = range(4, 5)
ONE_TO_EIGHT = range(1, 9)


class Allowed(NamedTuple):
    """The supported properties of one tensor."""

    dimensions: range
    types: Types
    required: bool = False  # although the desc's field is optional, as it is from a later level on


class Support(NamedTuple):
    """What an operator supports from one feature level on; a later row replaces it."""

    since: FeatureLevel
    tensors: dict[str, Allowed]  # all of the desc, by DirectML's names; an array's entry holds for its elements

    def allowed(self, name: str) -> Allowed:
        """Return what is supported for a tensor, or for an element of an array of tensors."""
        return self.tensors[name] if name in self.tensors else self.tensors[name.partition("[")[0]]


def types(names: str) -> Types:
    """Return data types by their DirectML names, separated by spaces."""
    return tuple(TensorDataType[name] for name in names.split())


UP_TO_32 = types("FLOAT32 FLOAT16 INT32 INT16 INT8 UINT32 UINT16 UINT8")
