"""The record of one call in the ledger: each request before it is sent, and the result when the call ends."""

from __future__ import annotations

from collections.abc import Callable

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.spending.budget import NOTHING, Amount
from sotopia_env.chat_model.spending.ledger import Ledger, LedgerEntry, Outcome, RequestNote
from sotopia_env.world.episode import Usage

_FREE = Usage()


class Call:
    """Records one call: each request before it is sent, and the result when the call ends.

    Attributes:
        ledger: the ledger of the run.
        attempts: the number of requests sent so far.
        most: the expected maximum usage of the next request, if the ledger has a limit.
    """

    __slots__ = (
        "_billed",
        "_counted",
        "_doubtful",
        "_id",
        "_label",
        "_model",
        "_role",
        "attempts",
        "ledger",
        "most",
    )

    def __init__(self, ledger: Ledger, model: str, request: ChatRequest) -> None:
        """Creates the record; nothing is written until a request is sent.

        Args:
            ledger: the ledger of the run.
            model: the model as the user named it.
            request: the request.
        """
        self.ledger = ledger
        self.attempts = 0
        self.most: Amount = NOTHING
        self._role, self._model, self._label = request.role, model, request.label
        self._id = ledger.new_id()
        self._billed = _FREE
        self._counted = self._doubtful = NOTHING

    def record_request(self) -> str:
        """Records a request that is about to be sent, and returns its id.

        Raises:
            SotopiaError: the ledger cannot be written; the request must then not be sent.
        """
        self.attempts += 1
        if self.attempts == 1 and self.most is NOTHING:
            self.ledger.note_first(self._id, self._role, self._model)
        else:
            most = self._most() + self.most
            self.ledger.note(
                RequestNote(
                    sent=self._id,
                    role=self._role,
                    spec=self._model,
                    attempts=self.attempts,
                    prompt_tokens=self._billed.prompt_tokens,
                    completion_tokens=self._billed.completion_tokens,
                    cost=self._billed.cost,
                    most_tokens=most.tokens,
                    most_cost=most.cost,
                )
            )
        return f"{self._id}.{self.attempts}"

    def bill(self, reply: ChatReply, most: Callable[[], Amount]) -> None:
        """Adds a billed answer, usable or not; if the server did not count its tokens, the maximum counts as spent."""
        usage = reply.usage
        self._billed = usage if self._billed is _FREE else self._billed + usage
        if usage.tokens is None:
            self._add_doubtful(most())
        else:
            self._counted += Amount(usage.tokens, usage.cost or 0.0)
            self.ledger.budget.spend(usage.tokens, usage.cost)

    def mark_doubtful(self, most: Amount, is_priced: bool) -> None:
        """Counts the maximum usage of the latest request as spent, since the server may bill it.

        Args:
            most: the maximum usage of the request.
            is_priced: whether the price of its tokens is known; if not, the cost of the call is unknown, too.
        """
        # ``self.most`` is the reserved amount; the estimate may have changed while the request was in flight.
        self._add_doubtful(self.most if self.most is not NOTHING else most)
        if not is_priced:
            self._billed = self._billed.model_copy(update={"cost": None})

    def _add_doubtful(self, most: Amount) -> None:
        self._doubtful += most
        self.ledger.budget.spend(most.tokens, most.cost)

    def _most(self) -> Amount:
        """Returns the maximum usage of requests that were not counted."""
        # A call with one uncounted answer has no sum of tokens, so its counted answers are included here.
        return self._doubtful if self._billed.tokens is not None else self._doubtful + self._counted

    def end(self, reply: ChatReply | None, outcome: Outcome = "failed") -> None:
        """Records the result of the call; a call without request and reply leaves no entry.

        Args:
            reply: the answer; ``None`` if the call has no answer.
            outcome: the outcome of a call without an answer.
        """
        if not self.attempts and reply is None:
            return
        most = self._most()
        entry = LedgerEntry(
            role=self._role,
            spec=self._model,
            model=reply.model if reply else "",
            outcome="answered" if reply else outcome,
            prompt_tokens=self._billed.prompt_tokens,
            completion_tokens=self._billed.completion_tokens,
            cost=self._billed.cost,
            attempts=self.attempts,
            fallback=bool(reply and reply.fallback),
            cached=bool(reply and reply.cached),
            label=self._label,
            call=self._id if self.attempts else "",
            most_tokens=most.tokens,
            most_cost=most.cost,
        )
        self.ledger.record(entry, billed=True)
