"""What operators that read or write elements by their indices share."""
