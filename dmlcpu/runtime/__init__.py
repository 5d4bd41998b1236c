"""What the machine is: CPU features, threads, Numba's decorators, aligned memory."""

from dmlcpu.runtime.threadpools import join_threadpoolctl

# A program that loads the runtime is about to compute, and limits must hold from its first call on.
join_threadpoolctl()
