"""The models of a multi-model endpoint: loaded and unloaded while the stack runs."""
