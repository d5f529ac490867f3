"""The supervisor's entry point: `python -m pierhead.supervisor`, which is what `serve` runs.

Signals are held back before anything else is imported, which takes up to a second: one that came meanwhile
would end the process without a word or, to PID 1, be lost.
"""

from __future__ import annotations

import sys

from pierhead.supervisor.signals import hold_signals

if __name__ == "__main__":
    hold_signals()
    from pierhead.supervisor.program import main

    sys.exit(main())
