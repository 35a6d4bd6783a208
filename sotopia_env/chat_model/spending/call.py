"""The record of one call in the ledger: each request before it is sent, the result at the end."""

from __future__ import annotations

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.spending.budget import NOTHING, Amount
from sotopia_env.chat_model.spending.ledger import Ledger, LedgerEntry, RequestNote


class Call:
    """Records one call: each request before it is sent, and the result when the call ends.

    Attributes:
        ledger: of the run.
        attempts: requests sent so far.
        most: expected maximum usage of the next request, where the ledger has a limit.
    """

    __slots__ = (
        "_completion_tokens",
        "_cost",
        "_doubtful",
        "_id",
        "_label",
        "_model",
        "_prompt_tokens",
        "_role",
        "attempts",
        "ledger",
        "most",
    )

    def __init__(self, ledger: Ledger, model: str, request: ChatRequest) -> None:
        """Begins; nothing is written until a request is sent.

        Args:
            ledger: of the run.
            model: the model as the user named it.
            request: the question.
        """
        self.ledger = ledger
        self.attempts = 0
        self.most: Amount = NOTHING
        self._role, self._model, self._label = request.role, model, request.label
        self._id = ledger.new_id()
        self._prompt_tokens = self._completion_tokens = 0
        self._cost: float | None = 0.0
        self._doubtful: Amount = NOTHING

    def record_request(self) -> str:
        """Records a request that is about to be sent, and returns its id.

        Raises:
            SotopiaError: the ledger cannot be written; then nothing may be sent.
        """
        self.attempts += 1
        if self.attempts == 1 and self.most is NOTHING:
            self.ledger.note_first(self._id, self._role, self._model)
        else:
            self.ledger.note(
                RequestNote(
                    sent=self._id,
                    role=self._role,
                    spec=self._model,
                    attempts=self.attempts,
                    prompt_tokens=self._prompt_tokens,
                    completion_tokens=self._completion_tokens,
                    cost=self._cost,
                    most_tokens=self._doubtful.tokens + self.most.tokens,
                    most_cost=self._doubtful.cost + self.most.cost,
                )
            )
        return f"{self._id}.{self.attempts}"

    def bill(self, reply: ChatReply) -> None:
        """Adds an answer that is billed, usable or not."""
        self._prompt_tokens += reply.prompt_tokens
        self._completion_tokens += reply.completion_tokens
        self._cost = None if reply.cost is None or self._cost is None else self._cost + reply.cost
        self.ledger.budget.spend(reply.prompt_tokens + reply.completion_tokens, reply.cost)

    def mark_doubtful(self) -> None:
        """Counts the maximum usage of the latest request, which may or may not be billed, as spent."""
        most, before = self.most, self._doubtful
        self._doubtful = Amount(before.tokens + most.tokens, before.cost + most.cost)
        self.ledger.budget.spend(most.tokens, most.cost)

    def end(self, reply: ChatReply | None) -> None:
        """Records the result of the call; a call without request and reply leaves no entry."""
        if not self.attempts and reply is None:
            return
        entry = LedgerEntry(
            role=self._role,
            spec=self._model,
            model=reply.model if reply else "",
            outcome="answered" if reply else "failed",
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            cost=self._cost,
            attempts=self.attempts,
            fallback=bool(reply and reply.fallback),
            cached=bool(reply and reply.cached),
            label=self._label,
            call=self._id if self.attempts else "",
            most_tokens=self._doubtful.tokens,
            most_cost=self._doubtful.cost,
        )
        self.ledger.record(entry, billed=True)
