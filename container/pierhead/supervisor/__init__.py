"""PID 1 of the container: starts the other programs in order, watches them, and stops them in order."""
