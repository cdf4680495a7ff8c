"""Running cases on targets: workers, journal, resume, waivers."""

from .conform import InterruptedRunError, Plan, Watcher, conform, default_jobs
from .journal import Journal, JournalError, JournalWriteError, read_journal
from .pool import PoolError, RefusedError
from .result import EXIT_CONFORMS, EXIT_DIFFERS, EXIT_ERRORED, EXIT_USAGE, Run, run_of
from .select import SelectionError, select
from .waivers import WaiverError, Waivers, load_waivers

__all__ = [
    "EXIT_CONFORMS",
    "EXIT_DIFFERS",
    "EXIT_ERRORED",
    "EXIT_USAGE",
    "InterruptedRunError",
    "Journal",
    "JournalError",
    "JournalWriteError",
    "Plan",
    "PoolError",
    "RefusedError",
    "Run",
    "SelectionError",
    "WaiverError",
    "Waivers",
    "Watcher",
    "conform",
    "default_jobs",
    "load_waivers",
    "read_journal",
    "run_of",
    "select",
]
