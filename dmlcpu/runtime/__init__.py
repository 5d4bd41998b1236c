"""What the machine is: CPU features, threads, Numba's decorators, aligned memory."""

from dmlcpu.runtime.threadpools import join_threadpoolctl

# Whoever loads anything of the runtime is about to compute: then limits have to hold from the first call on.
join_threadpoolctl()
