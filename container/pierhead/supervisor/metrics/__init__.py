"""What is shown at /metrics: one module for each source, and `page`, which puts them together."""
