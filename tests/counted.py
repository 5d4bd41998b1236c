"""Names that count how often they are compared, for tests of how work grows."""


class Name(str):
    """A name; `comparisons` of all names are counted together."""

    __slots__ = ()
    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.comparisons += 1
        return str.__eq__(self, other)


def names(count: int) -> list[Name]:
    """Return different names, and count from zero."""
    Name.comparisons = 0
    return [Name(f"n{number}") for number in range(count)]
