"""The SageMaker inference toolkit's functions in inference.py, and the formats that they default to."""
