import pytest

from dmlcpu.kernels import registry
from dmlcpu.runtime import isa


def test_names_are_unique_within_a_stage():
    keys = [(entry.operator, entry.stage, entry.name) for entry in registry.KERNELS]
    assert len(set(keys)) == len(keys)


def test_every_entry_is_named_after_its_function():
    assert all(entry.name == entry.kernel.name for entry in registry.KERNELS)


def test_every_stage_has_a_kernel_for_any_processor(monkeypatch):
    stages = {(entry.operator, entry.stage) for entry in registry.KERNELS}
    monkeypatch.setattr(registry, "allowed", lambda: frozenset({isa.Isa.GENERIC}))
    for operator, stage in stages:
        assert registry.find(operator, stage).isa is isa.Isa.GENERIC


def test_every_alternative_of_top_k_has_a_workspace_and_a_cost():
    assert all(entry.workspace and entry.cost for entry in registry.available("top_k", "select"))


def test_an_unknown_kernel():
    with pytest.raises(LookupError, match="no kernel nosuch for top_k select on this machine"):
        registry.find("top_k", "select", "nosuch")
