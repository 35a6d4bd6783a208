"""Other models for when the first one fails: only those the user lists, in that order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sotopia_env.chat_model.ledger import Ledger, Tally
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.route import Route
from sotopia_env.errors import ModelCallError

logger = logging.getLogger(__name__)


async def first_answer(routes: Sequence[Route], request: ChatRequest, tally: Tally, ledger: Ledger | None) -> ChatReply:
    """Returns the first model's answer, or that of the next one where it failed for good; the reply says which.

    A conversation that is too long and a budget that is spent are not the model's failures, and end the call at once.

    Raises:
        ContextLengthError: the conversation does not fit.
        BudgetExceededError: the ledger's limit is reached.
        ModelCallError: of the last model.
    """
    for index, route in enumerate(routes):
        try:
            reply = await route.ask(request, tally, ledger)
        except ModelCallError as error:
            if route is routes[-1]:
                error.attempts = tally.attempts
                raise
            logger.warning("%s; falling back to %r", error, routes[index + 1].transport.name)
        else:
            if tally.attempts == 1:
                return reply  # as it is: by far the most calls
            return replace(reply, attempts=tally.attempts, fallback=index > 0)
    raise AssertionError("unreachable: there is at least one route")
