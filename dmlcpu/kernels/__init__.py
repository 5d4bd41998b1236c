"""Compiled code: arrays and integers in, results written to arrays; no Python objects, no exceptions."""
