"""Products of bytes: what the operators of that family share."""
