"""Shared by all operators: argument checks, data types, arrays that are read and written in regions."""
