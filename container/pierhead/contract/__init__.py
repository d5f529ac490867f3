"""Facts that both sides of port 8080 rely on: the artifact's layout, status codes, header names.

The platform's side (`pierhead_sagemaker`) imports nothing else of this package.
"""
