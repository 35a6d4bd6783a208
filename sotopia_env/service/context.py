"""Dependencies of request handlers: settings, database and hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from sotopia_env.service.hub import Hub
from sotopia_env.service.settings import ServiceSettings
from sotopia_env.service.store.engine import Database


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one server process.

    Attributes:
        settings: the service's settings.
        database: the service's database.
        hub: distributes events to watchers.
    """

    settings: ServiceSettings
    database: Database
    hub: Hub


def services(connection: HTTPConnection) -> Services:
    """Returns the parts of the server that serves this request or WebSocket."""
    parts: Services = connection.app.state.services
    return parts


ServicesDep = Annotated[Services, Depends(services)]
