"""A process that trains on a CPU uses again what it freed, instead of having the kernel clear new pages."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from sotopia_training.models.loading import keep_freed_memory

def pages_of_a_step():
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [torch.ones(9_000_000) for layer in range(6)]  # 36 MB each: more than M_MMAP_THRESHOLD can keep
    del kept
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun

before = min(pages_of_a_step() for step in range(3))
keep_freed_memory()
print(before, min(pages_of_a_step() for step in range(6)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other options")
def test_large_tensors_take_no_new_pages_the_second_time():
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(int, process.stdout.split())
    assert after < before / 4
