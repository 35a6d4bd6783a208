"""What tokens cost."""

from __future__ import annotations

from dataclasses import dataclass

from sotopia_env.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; ``Price(0, 0)`` declares that a model costs nothing."""

    prompt: float
    completion: float

    def __post_init__(self) -> None:
        if not (0 <= self.prompt < float("inf") and 0 <= self.completion < float("inf")):
            raise InvalidValueError(
                f"price: expected dollars per million tokens, zero or more, got {self.prompt} and {self.completion}"
            )

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Returns the cost in US dollars."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6
