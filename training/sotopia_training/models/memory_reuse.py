"""Reuse of freed memory in a process that computes with a model on a CPU."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Options of glibc's ``mallopt``, as in ``malloc.h``."""


def keep_freed_memory() -> None:
    """Makes this process keep the memory that it frees, on a CPU under glibc; has no effect elsewhere.

    By default glibc maps every large block separately and returns it to the kernel when it is freed. A step of training
    or decoding allocates the same activations and logits repeatedly, and the kernel must clear their pages each time.
    """
    import torch

    if torch.cuda.is_available() or not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return  # musl has no such options
    libc.malloc_trim(0)  # returns the memory that an earlier stage of this process has kept
    # No separately mapped blocks at all: M_MMAP_THRESHOLD is limited to 32 MiB, and logits are larger.
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, -1)  # the heap never shrinks
