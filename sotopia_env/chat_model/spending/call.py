"""One call under way: what is known of it before, while and after its requests are sent."""

from __future__ import annotations

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.chat_model.spending.budget import NOTHING, Amount
from sotopia_env.chat_model.spending.ledger import Ledger, LedgerEntry, Sent


class Call:
    """Books one call: each request before it is sent, and what came of them when the call ends.

    Attributes:
        ledger: in which it is booked.
        attempts: requests sent so far.
        most: what the next request is expected to use at most, where the ledger has a limit.
    """

    __slots__ = (
        "_completion_tokens",
        "_cost",
        "_doubtful",
        "_id",
        "_prompt_tokens",
        "_who",
        "attempts",
        "ledger",
        "most",
    )

    def __init__(self, ledger: Ledger, asked: str, request: ChatRequest) -> None:
        """Begins; nothing is written until a request is sent.

        Args:
            ledger: in which it is booked.
            asked: the model as the user named it.
            request: what is asked.
        """
        self.ledger = ledger
        self.attempts = 0
        self.most: Amount = NOTHING
        self._who = (request.role, asked, request.label)
        self._id = ledger.new_id()
        self._prompt_tokens = self._completion_tokens = 0
        self._cost: float | None = 0.0
        self._doubtful: Amount = NOTHING

    def sending(self) -> str:
        """Books a request that is about to be sent, and returns the id it goes out with.

        Raises:
            SotopiaError: the ledger cannot be written; then nothing may be sent.
        """
        self.attempts += 1
        role, asked, _ = self._who
        if self.attempts == 1 and self.most is NOTHING:
            self.ledger.note_first(self._id, role, asked)
        else:
            self.ledger.note(
                Sent(
                    sent=self._id,
                    role=role,
                    asked=asked,
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
        """Adds an answer that is paid for, whether it can be used or not."""
        self._prompt_tokens += reply.prompt_tokens
        self._completion_tokens += reply.completion_tokens
        self._cost = None if reply.cost is None or self._cost is None else self._cost + reply.cost
        self.ledger.budget.spend(reply.prompt_tokens + reply.completion_tokens, reply.cost)

    def doubt(self) -> None:
        """Counts the most that the latest request may have used: nobody knows whether it was billed."""
        most, before = self.most, self._doubtful
        self._doubtful = Amount(before.tokens + most.tokens, before.cost + most.cost)
        self.ledger.budget.spend(most.tokens, most.cost)

    def end(self, reply: ChatReply | None) -> None:
        """Books what came of the call; one of which nothing was sent and nothing answered leaves no trace."""
        if not self.attempts and reply is None:
            return
        role, asked, label = self._who
        entry = LedgerEntry(
            role=role,
            asked=asked,
            model=reply.model if reply else "",
            outcome="answered" if reply else "failed",
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            cost=self._cost,
            attempts=self.attempts,
            fallback=bool(reply and reply.fallback),
            cached=bool(reply and reply.cached),
            label=label,
            call=self._id if self.attempts else "",
            most_tokens=self._doubtful.tokens,
            most_cost=self._doubtful.cost,
        )
        self.ledger.record(entry, billed=True)
