"""Shared by the operators that read or write elements by index."""
