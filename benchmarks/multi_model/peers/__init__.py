"""half_plus_two as the other servers' Python models, which run in environments of their own."""
