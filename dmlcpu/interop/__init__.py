"""Other libraries' programs on these kernels: a module for each library, which needs the extra of its name."""
