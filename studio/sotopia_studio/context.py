"""Dependencies of request handlers: settings, database and hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from prometheus_client import Histogram
from starlette.requests import HTTPConnection

from sotopia_studio.hub import Hub, Once
from sotopia_studio.menus import EpisodeMenus
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store.engine import Database


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one server process.

    Attributes:
        settings: the service's settings.
        database: the service's database.
        hub: distributes events to watchers.
        menus: the menus of the list of episodes.
        reports: the comparisons that were asked for last.
        durations: seconds from a request to the start of its response, by method, route and status.
    """

    settings: ServiceSettings
    database: Database
    hub: Hub
    menus: EpisodeMenus
    reports: Once
    durations: Histogram


def services(connection: HTTPConnection) -> Services:
    """Returns the parts of the server that serves this request or WebSocket."""
    parts: Services = connection.app.state.services
    return parts


def public_address(connection: HTTPConnection) -> str:
    """Returns the address under which browsers reach the server: the setting ``origin``, or that of this request."""
    return services(connection).settings.origin.rstrip("/") or str(connection.base_url).rstrip("/")


def is_https(connection: HTTPConnection) -> bool:
    """Whether browsers reach the server by HTTPS, which a proxy in front of it may terminate."""
    return public_address(connection).startswith("https://")


ServicesDep = Annotated[Services, Depends(services)]
