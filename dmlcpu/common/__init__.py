"""What all operators share: checks of arguments, data types, arrays that are read and written in regions."""
