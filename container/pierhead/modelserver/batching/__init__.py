"""Requests joined into batches: TensorFlow Serving's contract, section 7.

`runtime` wraps a platform and its runtimes, so the doors know nothing of it; `scheduler` decides which rows
run when, `tasks` carries rows in and outputs back, `joining` makes one run's arrays of many requests'.
"""
