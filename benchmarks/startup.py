"""The cost of importing the package, and of the command's help."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Figure

IMPORT = """
import resource, time
start = time.process_time()
import sotopia_env
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def import_cost() -> tuple[float, float]:
    """CPU seconds and peak MiB of a fresh interpreter that imports the package; best of five."""
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(5)
    ]
    return min(float(run[0]) for run in runs), min(float(run[1]) for run in runs)


def help_cost() -> float:
    """CPU seconds of ``sotopia --help``; best of five."""
    # The installed script, or the one beside this interpreter if its folder is not on the path.
    command = shutil.which("sotopia") or str(Path(sys.executable).with_name("sotopia"))
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([command, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def figures() -> list[Figure]:
    """Start-up times and memory."""
    seconds, mebibytes = import_cost()
    return [
        Figure("import sotopia_env", seconds, "CPU s", 1),
        Figure("import sotopia_env, peak memory", mebibytes, "MiB", 100),
        Figure("sotopia --help", help_cost(), "CPU s", 2),
    ]
