"""Training under the masks of constrained decoding, with log-probabilities of the masked distribution.

With ``constrained: true`` a turn is sampled from the model's distribution over the tokens that its schema allows next,

    pi'(token) = pi(token) / (sum of pi over the allowed tokens)

and GRPO improves pi'. The masks are not stored, but computed again from each turn's schema and tokens by the same
engine as in sampling, so that they are equal. An answer, or its rest, that was sampled unconstrained because the engine
failed is also trained unconstrained.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_training.grpo.sampling import samples_through_trl
from sotopia_training.grpo.token_seat import FocalTurn, TokenSeat
from sotopia_training.models.constraints import grammars_of

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl.trainer.grpo_trainer import GRPOTrainer

_TILE = 256
"""Number of tokens whose logits are in memory at once; they are computed again for the gradient."""


class MaskedHead:
    """Replaces TRL's fused head of the model in training and of its reference.

    It returns log-probabilities of the focal policy's tokens under their masks, and 0 for all other tokens, which are
    not trained. Other calls of the model are not affected.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Creates the head; :meth:`install` must follow."""
        self._tokenizer = tokenizer
        self._turns: dict[tuple[int, ...], tuple[int, list[FocalTurn]]] = {}

    def note(self, episodes: Sequence[TokenSeat]) -> None:
        """Replaces the episodes by those that are trained next."""
        # TRL shuffles and divides the rows, so a row can only be recognised by its tokens.
        self._turns = {tuple(episode.sequence): (len(episode.prompt), episode.focal) for episode in episodes}

    def install(self, trainer: GRPOTrainer) -> None:
        """Replaces the forward passes of the trainer's models.

        Raises:
            InvalidValueError: they are sampled through TRL, or their logits are not just a product with the head.
        """
        from peft import PeftModel

        if samples_through_trl(trainer):
            raise InvalidValueError(field="constrained", expected="false with vLLM and with sharded weights", got=True)
        for model in filter(None, (trainer.model, trainer.ref_model)):
            base = model.get_base_model() if isinstance(model, PeftModel) else model
            _check_head(base)
            self._replace(base, trainer.temperature)

    def _replace(self, model: PreTrainedModel, temperature: float) -> None:
        # TRL has patched this forward pass already; calls outside the loss still use it.
        through_trl: Callable[..., Any] = model.forward

        @functools.wraps(type(model).forward)  # callers inspect its signature
        def forward(*args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
            if not fused_lm_head:
                return through_trl(*args, **kwargs)
            return self._log_probs(model, temperature, **kwargs)

        model.forward = forward

    def _log_probs(
        self,
        model: PreTrainedModel,
        temperature: float,
        *,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        **others: Any,
    ) -> Any:
        """Returns the output of TRL's fused head, whose tensors are (rows, columns - 1)."""
        import torch
        from trl.trainer.utils import FusedCausalLMOutput

        unexpected = [name for name, value in others.items() if value is not None]  # PEFT passes every argument
        assert not unexpected, unexpected
        output = model.base_model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        states = output.last_hidden_state[:, :-1]  # (rows, columns - 1, hidden): each predicts the next token
        # Not zeros(): the loss needs a gradient even if no token of the batch is trained.
        log_probs = entropy = states[..., 0].float() * 0  # (rows, columns - 1)
        masked = list(self._masks(model, input_ids, attention_mask))
        if masked:
            positions, masks = zip(*masked, strict=True)
            # Only the states of trained tokens reach the head: their number is a fraction of all columns.
            index = tuple(torch.tensor(positions, device=states.device).T)  # rows and columns, each (tokens,)
            parts = _in_tiles(model, states[index], input_ids[:, 1:][index], masks, temperature)
            log_probs, entropy = (log_probs.index_put(index, part) for part in parts)
        return FusedCausalLMOutput(log_probs=log_probs, entropy=entropy, label_mask=labels[:, 1:] != -100)

    def _masks(
        self, model: PreTrainedModel, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> Iterator[tuple[tuple[int, int], NDArray[np.uint8]]]:
        """Yields row and column of the state before each trained token, and its mask with eight tokens per byte."""
        import numpy as np

        vocabulary = model.get_output_embeddings().weight.shape[0]
        end = int(self._tokenizer.eos_token_id)
        # Cached with the tokenizer: sampling has compiled the same schemas already.
        grammars = grammars_of(self._tokenizer, vocabulary, end)
        # A vocabulary of 150,000 tokens takes 19 kB per trained token as bits, and 150 kB as booleans.
        free = np.packbits(np.ones(vocabulary, dtype=bool), bitorder="little")
        for row, (ids, mask) in enumerate(zip(input_ids.tolist(), attention_mask.tolist(), strict=True)):
            tokens = [token for token, is_read in zip(ids, mask, strict=True) if is_read]
            start, turns = self._turns[tuple(tokens)]  # start: the length of the prompt
            first = mask.index(1) - 1  # prompts are padded on the left, completions on the right
            for turn in turns:
                constraint = None if turn.schema is None else grammars.constraint(turn.schema)
                for number in range(start + turn.start, start + turn.end):
                    allowed = None if constraint is None else constraint.allowed()
                    yield (row, first + number), free if allowed is None else np.packbits(allowed, bitorder="little")
                    assert allowed is None or allowed[tokens[number]], "sampled under another mask"
                    # The end token is allowed by the grammar, but is not part of its text.
                    if constraint is not None and tokens[number] != end:
                        constraint.take(tokens[number])


def _in_tiles(
    model: PreTrainedModel,
    states: torch.Tensor,
    tokens: torch.Tensor,
    masks: Sequence[NDArray[np.uint8]],
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the log-probability of each token and the entropy of its distribution, each (tokens,).

    Args:
        model: the model with the head.
        states: the hidden states that predict the tokens, (tokens, hidden).
        tokens: the token ids, (tokens,).
        masks: the packed mask of each token.
        temperature: the sampling temperature.
    """
    import numpy as np
    import torch
    from torch.utils.checkpoint import checkpoint

    head = model.get_output_embeddings()

    def tile(part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(states[part]).float() / temperature  # (tile, vocabulary)
        bits = np.unpackbits(np.stack(masks[part]), axis=1, count=logits.shape[1], bitorder="little")
        forbidden = torch.from_numpy(bits == 0).to(logits.device)  # (tile, vocabulary)
        log_probs = logits.masked_fill(forbidden, float("-inf")).log_softmax(-1)
        # 0 · -inf would be NaN, and so would its gradient.
        entropy = -(log_probs.exp() * log_probs.masked_fill(forbidden, 0)).sum(-1)
        return log_probs.gather(1, tokens[part, None]).squeeze(1), entropy

    parts = [checkpoint(tile, slice(at, at + _TILE), use_reentrant=False) for at in range(0, len(tokens), _TILE)]
    log_probs, entropy = zip(*parts, strict=True)
    return torch.cat(log_probs), torch.cat(entropy)


def _check_head(model: PreTrainedModel) -> None:
    """Checks that logits are just the head's product with the hidden states, neither scaled nor capped."""
    import torch

    # (1, 3): any tokens do, because only two ways to the same logits are compared.
    ids, training = torch.tensor([[0, 1, 2]], device=model.device), model.training
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        product = model.get_output_embeddings()(model.base_model(input_ids=ids).last_hidden_state)
    model.train(training)
    if not torch.allclose(logits, product, rtol=1e-2, atol=1e-2):
        name = type(model).__name__
        raise InvalidValueError(f"{name} scales or caps its logits", field="constrained", expected="false", got=True)
