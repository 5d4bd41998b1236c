"""The cases: a module an operator, with its tables of shapes, the data for each, and a call for each contender.

A module has `TABLES`, by name, and may have cases for the tables of several operators: `TINY` (one case), `THREADED`,
`MIXED` and `TORCH`. common.py collects them.
"""
