"""What the model server costs, measured from outside: run `make bench`."""
