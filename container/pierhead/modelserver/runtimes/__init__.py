"""What can execute a model: one module for each kind of model on disk."""
