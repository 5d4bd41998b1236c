"""argmin."""
