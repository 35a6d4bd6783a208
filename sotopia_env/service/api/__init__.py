"""The REST and WebSocket API, for programs; everything is below ``/api/v1``."""

from sotopia_env.service.api import episodes, tokens

ROUTERS = (episodes.router, tokens.router)
