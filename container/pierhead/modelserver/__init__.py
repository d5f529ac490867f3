"""The embedded model server: TensorFlow Serving's flags and APIs, in Python."""
