"""The worker processes of this machine that are alive: each locks a file, and the system ends the lock with it.

A lease alone says that a worker was alive some seconds ago. With the file, the jobs of a killed worker are taken over
as soon as another one looks. Workers on other machines are not judged: their leases expire.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from sotopia_env.foundation.errors import InUseError
from sotopia_env.foundation.files import lock

_MARK = "."
"""Separates the machine from the worker; a file whose name begins with it is not locked yet."""


class Presence:
    """The file of a worker, locked for as long as the worker lives.

    Attributes:
        name: the name of the worker, unique among the workers of a service.
    """

    def __init__(self, folder: Path) -> None:
        """Creates the file in ``folder``, which the workers of this machine share, and locks it.

        Raises:
            InvalidValueError: the file system does not support locks.
        """
        self._host = socket.gethostname().replace(_MARK, "-")
        self.name = f"{self._host}{_MARK}{secrets.token_hex(4)}"
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # Locked under another name first: a file that is visible and not locked is a dead worker's.
        hidden = folder / f"{_MARK}{self.name}"
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT, 0o600)
        lock(self._descriptor, hidden, "another worker has this name")
        hidden.rename(folder / self.name)

    def dead(self) -> list[str]:
        """Returns the names of dead workers of this machine; :meth:`forget` removes their files."""
        others = [path for path in self._folder.glob(f"{self._host}{_MARK}*") if path.name != self.name]
        return [path.name for path in others if _is_unlocked(path)]

    def forget(self, name: str) -> None:
        """Removes the file of a dead worker, whose jobs were given back."""
        (self._folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Ends the presence of this worker."""
        self.forget(self.name)
        os.close(self._descriptor)


def _is_unlocked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:  # another worker has removed it
        return False
    try:
        lock(descriptor, path, "alive")
    except InUseError:
        return False
    finally:
        os.close(descriptor)
    return True
