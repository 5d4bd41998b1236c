"""The place that packed matrices were pickled from before they were common to several operators."""

from dmlcpu.common.packing import _unpickle as _unpickle
