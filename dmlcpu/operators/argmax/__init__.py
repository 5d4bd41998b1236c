"""argmax."""
