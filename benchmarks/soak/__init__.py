"""`make soak`: the whole stack under mixed and hostile traffic, while its processes are killed at random."""
