"""What argmax and argmin share."""
