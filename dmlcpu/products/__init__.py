"""Shared by the operators that multiply matrices of bytes."""
