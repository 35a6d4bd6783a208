"""Reuse of freed memory by a process that computes with a model on a CPU."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Options of glibc's ``mallopt``, as in ``malloc.h``."""


def keep_freed_memory() -> None:
    """Lets this process keep the memory that it frees, where it computes on a CPU under glibc; elsewhere does nothing.

    By default glibc maps every large block anew and gives it back when it is freed. A step of training or decoding
    allocates the same activations and logits again and again, and the kernel must clear their pages each time.
    """
    import torch

    if torch.cuda.is_available() or not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return  # musl has no such options
    libc.malloc_trim(0)  # what an earlier stage of this process has kept counts as free again
    # No mapped blocks at all: M_MMAP_THRESHOLD ends at 32 MiB, and logits are larger. -1: the heap never shrinks.
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, -1)
