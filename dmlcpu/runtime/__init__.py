"""What the machine is: CPU features, threads, Numba's decorators, aligned memory."""
