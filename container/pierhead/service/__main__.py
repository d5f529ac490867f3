"""The program of the handler workers: `python -m pierhead.service PLAN.json`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pierhead.control import read_plan
from pierhead.errors import PierheadError
from pierhead.logs import LogWriter, admit_user_code, configure_logging
from pierhead.service.server import HandlerServer
from pierhead.settings import Settings, inherited_log
from pierhead.tether import end_with_parent

__all__ = ["main"]


def main() -> None:
    """Run gunicorn until it is told to end; without a usable plan, exit non-zero with a sentence."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m pierhead.service PLAN.json")
    path = Path(sys.argv[1]).absolute()
    try:
        plan = read_plan(path)
        settings = Settings.from_env(plan.settings)
    except PierheadError as problem:
        sys.exit(str(problem))
    log_to = LogWriter(settings.log_format, inherited_log(os.environ))
    configure_logging(plan.process, settings.gunicorn_loglevel, log_to)
    admit_user_code(plan.process, log_to)
    end_with_parent()
    HandlerServer(plan, settings, path.parent).run()


if __name__ == "__main__":
    main()
