"""Shared by argmax and argmin."""
