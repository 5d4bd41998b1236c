"""What the pages say of every operator, made from the table of operators. It needs Jinja, but no Sphinx.

A page is a template: ``operators`` are the rows of the table, ``operator_types`` all their types, ``summary``
says what a function does, and the filter ``full_name`` what DirectML calls a type.
"""

import inspect
from collections.abc import Iterable, Sequence

import jinja2

from dmlcpu.directml.enums import full_name
from dmlcpu.directml.feature_level import Allowed, Support
from dmlcpu.operators.table import OPERATORS

_TEMPLATES = jinja2.Environment(
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False
)
_TEMPLATES.filters["full_name"] = full_name


def expanded(page: str) -> str:
    """Return the text of a page with every operator in it."""
    return _TEMPLATES.from_string(page).render(
        operators=list(OPERATORS.values()),
        operator_types=[operator_type for row in OPERATORS.values() for operator_type in row.descs],
        summary=_summary,
    )


def _summary(function: object) -> str:
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def levels_of(operator_type: str) -> tuple[Support, ...]:
    """Return the feature levels of an operator type, by its name."""
    owners = {member.name: (row, member) for row in OPERATORS.values() for member in row.descs}
    row, member = owners[operator_type]
    levels: tuple[Support, ...] = row.desc_class(member).FEATURE_LEVELS
    return levels


def table_of_levels(levels: Iterable[Support]) -> str:
    """Return the text of a table of feature levels."""
    rows = [
        (f"``{level.since.name.removeprefix('LEVEL_')}``", tensors, _span(allowed.dimensions), _types(allowed))
        for level in levels
        for allowed, tensors in _grouped(level)
    ]
    return list_table("12 33 15 40", ("From level", "Tensors", "Dimensions", "Data types"), rows)


def list_table(widths: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the text of a table."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (head, *rows):
        lines += [f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(row)]
    return "\n".join(lines)


def _grouped(level: Support) -> list[tuple[Allowed, str]]:
    """Gather the tensors for which the same is allowed."""
    groups: dict[Allowed, list[str]] = {}
    for name, allowed in level.tensors.items():
        groups.setdefault(allowed, []).append(f"{name} (required)" if allowed.required else name)
    return [(allowed, ", ".join(names)) for allowed, names in groups.items()]


def _span(dimensions: range) -> str:
    first, last = dimensions[0], dimensions[-1]
    return str(first) if first == last else f"{first} to {last}"


def _types(allowed: Allowed) -> str:
    return ", ".join(member.name for member in allowed.types)
