"""The platform's side of the contract, on this machine: what SageMaker does to a container."""
