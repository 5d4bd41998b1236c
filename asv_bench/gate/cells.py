"""The cells: which cases of the benchmarks' tables are timed."""

from typing import NamedTuple

PER_TABLE = 12
IMPLEMENTATIONS = ("dmlcpu",)
IMPLEMENTATIONS_OF = {"tiny": ("dmlcpu", "dmlcpu bound", "dmlcpu compiled")}  # of a table; of others IMPLEMENTATIONS


class Cell(NamedTuple):
    """A case of a table, done by an implementation."""

    table: str
    case: str
    implementation: str = "dmlcpu"

    def __str__(self):
        how = "" if self.implementation == "dmlcpu" else f" ({self.implementation.removeprefix('dmlcpu ')})"
        return f"{self.table}: {self.case}{how}"


# No commit changes what NumPy does: where these differ between the sides, the machine was not the same for both.
CONTROLS = (Cell("control", "np.sort"), Cell("control", "np.copyto"))


def choose(tables, module_map, groups, only_tables=(), text="", limit=PER_TABLE):
    """Return the cells of the groups, at most `limit` of each table.

    tables: the names of the cases of each table. Of a table that the map's "representatives" list, the cases are those
    listed there; of another, the first ones. If a text is given, all cases with it in their names are taken instead.
    """
    cells, seen = [], set()
    for table, names in tables.items():
        if only_tables and table not in only_tables:
            continue
        # The same case may stand in several tables.
        new = [name for name in names if _wanted(table, name, module_map, groups) and _call(table, name) not in seen]
        if text:
            chosen = [name for name in new if text in name]
        else:
            listed = module_map["representatives"].get(table)
            chosen = [name for name in new if listed is None or name in listed][:limit]
        seen |= {_call(table, name) for name in chosen}
        cells += [
            Cell(table, name, implementation)
            for name in chosen
            for implementation in IMPLEMENTATIONS_OF.get(table, IMPLEMENTATIONS)
        ]
    return cells


def _wanted(table, name, module_map, groups):
    """Return whether a group has the case. A table that no group has belongs to all."""
    holders = {group: texts[table] for group, texts in module_map["groups"].items() if table in texts}
    return not holders or any(holders[group] in name for group in groups if group in holders)


def _call(table, name):
    """Return what two cases have in common if they are the same call."""
    return (table, name) if table in IMPLEMENTATIONS_OF else name
