"""Execution of long work: a pool of workers, early stopping, and a progress bar."""

from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import GRACE, Dropped, Stop, Terminated, stop_on_signals
from sotopia_env.concurrency.workers import check_limits, work_through

__all__ = [
    "GRACE",
    "Dropped",
    "Progress",
    "Stop",
    "Terminated",
    "check_limits",
    "stop_on_signals",
    "work_through",
]
