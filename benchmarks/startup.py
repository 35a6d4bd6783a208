"""The cost of importing the package, and of the command's help."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Figure

IMPORT = """
import resource, time
start = time.perf_counter()
import sotopia_env
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def import_cost() -> tuple[float, float]:
    """Seconds and peak MiB of a fresh interpreter that imports the package; best of five."""
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(5)
    ]
    return min(float(run[0]) for run in runs), min(float(run[1]) for run in runs)


def help_cost() -> float:
    """Seconds of ``sotopia --help``; best of five."""
    # The installed script, or the one beside this interpreter if its folder is not on the path.
    command = shutil.which("sotopia") or str(Path(sys.executable).with_name("sotopia"))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([command, "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def figures() -> list[Figure]:
    """Start-up times and memory."""
    seconds, mebibytes = import_cost()
    return [
        Figure("import sotopia_env", seconds, "s", 0.4),
        Figure("import sotopia_env, peak memory", mebibytes, "MiB", 70),
        Figure("sotopia --help", help_cost(), "s", 0.8),
    ]
