"""Other models for when the first one fails: only those the user lists, in that order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sotopia_env.chat_model.call import Call
from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.route import Route
from sotopia_env.errors import ModelCallError, ModelFailure, ModelRefusedError

logger = logging.getLogger(__name__)


async def first_answer(routes: Sequence[Route], request: ChatRequest, call: Call) -> ChatReply:
    """Returns the first model's answer, or that of the next one where it failed for good; the reply says which.

    A conversation that is too long and a budget that is spent are not the model's failures, and end the call at once.

    Raises:
        ContextLengthError: the conversation does not fit.
        BudgetExceededError: the ledger's limit is reached.
        ModelRefusedError: every model refused, as each would any other request.
        ModelCallError: of the last model.
    """
    failures: list[tuple[ModelFailure, str]] = []
    refused = True
    for index, route in enumerate(routes):
        try:
            reply = await route.ask(request, call)
        except ModelCallError as error:
            refused = refused and isinstance(error, ModelRefusedError)
            if route is routes[-1]:
                which = ModelRefusedError if refused else ModelCallError
                raise which(str(error), kind=error.kind, attempts=call.attempts, status=error.status) from None
            failures.append((error.kind, str(error)))
            logger.warning("%s; falling back to %r", error, routes[index + 1].transport.name)
        else:
            if call.attempts == 1:
                return reply  # as it is: by far the most calls
            failed = (*failures, *reply.failures)
            return replace(reply, attempts=call.attempts, fallback=index > 0, failures=failed)
    raise AssertionError("unreachable: there is at least one route")
