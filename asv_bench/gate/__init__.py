"""The performance gate: is a commit slower than another? `.ci/benchmark` runs it; docs/gate.rst explains it.

What drives it needs the standard library alone. Only `child.py` imports dmlcpu and the benchmarks: it runs in the
environment of a commit.
"""
