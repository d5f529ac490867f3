"""Pierhead: a SageMaker inference container stack for TensorFlow SavedModels."""

__version__ = "0.1.0"
