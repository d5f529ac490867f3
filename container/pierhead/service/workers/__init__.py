"""The worker processes that gunicorn runs, one module a class, and the master that replaces them in time."""
