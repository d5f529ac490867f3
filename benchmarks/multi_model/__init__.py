"""Multi-model serving side by side: Pierhead, multi-model-server and Triton, in one run on one machine."""
