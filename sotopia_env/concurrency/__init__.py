"""Long work: a pool of workers, its early end, and its progress."""

from sotopia_env.concurrency.progress import Progress
from sotopia_env.concurrency.stopping import GRACE, Dropped, Stop, Terminated, stop_on_signals
from sotopia_env.concurrency.workers import blocking, check_limits, work_through

__all__ = [
    "GRACE",
    "Dropped",
    "Progress",
    "Stop",
    "Terminated",
    "blocking",
    "check_limits",
    "stop_on_signals",
    "work_through",
]
