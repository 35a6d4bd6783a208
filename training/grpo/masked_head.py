"""Training under the mask of constrained decoding: log-probabilities of the distribution that was sampled from.

With ``constrained: true`` a turn is sampled from the model's distribution over the tokens that its schema allows next,

    pi'(token) = pi(token) / (sum of pi over the allowed tokens)

and it is pi' that GRPO improves. The masks are not stored but made again from each turn's schema and tokens, by the
engine that made them while sampling, so that they are the same. An answer, or its rest, that was sampled unconstrained
because the engine gave up is trained unconstrained too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sotopia_env.errors import InvalidValueError
from training.grpo.sampling import samples_through_trl
from training.grpo.token_episodes import FocalTurn, TokenEpisode
from training.models.constraints import grammars_of

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl.trainer.grpo_trainer import GRPOTrainer

_TILE = 256
"""Tokens whose logits are in memory at once; they are computed again for the gradient."""


class MaskedHead:
    """Takes the place of TRL's fused head of the model in training, and of its reference.

    Where TRL asks for log-probabilities, those of the focal policy's tokens are computed under their masks; all others,
    which do not train, are 0. Everything else passes through unchanged.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Prepares; :meth:`install` comes next."""
        self._tokenizer = tokenizer
        self._turns: dict[tuple[int, ...], tuple[int, list[FocalTurn]]] = {}

    def note(self, episodes: Sequence[TokenEpisode]) -> None:
        """Takes the episodes that are trained next, in place of the last ones.

        TRL shuffles and divides the rows, so a row is recognised by its tokens.
        """
        self._turns = {
            (*episode.prompt, *episode.completion): (len(episode.prompt), episode.focal) for episode in episodes
        }

    def install(self, trainer: GRPOTrainer) -> None:
        """Changes the trainer's models.

        Raises:
            InvalidValueError: they are sampled through TRL, or their logits are more than a product with the head.
        """
        from peft import PeftModel

        if samples_through_trl(trainer):
            raise InvalidValueError(field="constrained", expected="false with vLLM and with sharded weights", got=True)
        for model in filter(None, (trainer.model, trainer.ref_model)):
            base = model.get_base_model() if isinstance(model, PeftModel) else model
            _check_head(base)
            self._replace(base, trainer.temperature)

    def _replace(self, model: PreTrainedModel, temperature: float) -> None:
        through_trl: Callable[..., Any] = model.forward

        @functools.wraps(type(model).forward)  # its signature tells callers which arguments there are
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
        """As TRL's fused head returns them, each (rows, columns - 1)."""
        import torch
        from trl.trainer.utils import FusedCausalLMOutput

        unexpected = [name for name, value in others.items() if value is not None]  # PEFT names all that there are
        assert not unexpected, unexpected
        output = model.base_model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        states = output.last_hidden_state[:, :-1]  # of the token before each one that is predicted
        log_probs = entropy = states[..., 0].float() * 0  # part of the graph even where no token trains
        masked = list(self._masks(model, input_ids, attention_mask))
        if masked:
            places, masks = zip(*masked, strict=True)
            index = tuple(torch.tensor(places, device=states.device).T)
            parts = _in_tiles(model, states[index], input_ids[:, 1:][index], masks, temperature)
            log_probs, entropy = (log_probs.index_put(index, part) for part in parts)
        return FusedCausalLMOutput(log_probs=log_probs, entropy=entropy, label_mask=labels[:, 1:] != -100)

    def _masks(
        self, model: PreTrainedModel, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> Iterator[tuple[tuple[int, int], NDArray[np.uint8]]]:
        """Row and column of the state before each token of the focal policy, and its mask, eight tokens in a byte."""
        import numpy as np

        vocabulary = model.get_output_embeddings().weight.shape[0]
        end = int(self._tokenizer.eos_token_id)
        grammars = grammars_of(self._tokenizer, vocabulary, end)
        free = np.packbits(np.ones(vocabulary, dtype=bool), bitorder="little")
        for row, (ids, mask) in enumerate(zip(input_ids.tolist(), attention_mask.tolist(), strict=True)):
            tokens = [token for token, is_read in zip(ids, mask, strict=True) if is_read]
            start, turns = self._turns[tuple(tokens)]
            first = mask.index(1) - 1  # prompts are padded on the left, completions on the right
            for turn in turns:
                constraint = None if turn.schema is None else grammars.constraint(turn.schema)
                for number in range(start + turn.start, start + turn.end):
                    allowed = None if constraint is None else constraint.allowed()
                    yield (row, first + number), free if allowed is None else np.packbits(allowed, bitorder="little")
                    assert allowed is None or allowed[tokens[number]], "sampled under another mask"
                    if constraint is not None and tokens[number] != end:
                        constraint.take(tokens[number])


def _in_tiles(
    model: PreTrainedModel,
    states: torch.Tensor,
    tokens: torch.Tensor,
    masks: Sequence[NDArray[np.uint8]],
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token, and the entropy of its distribution; ``states`` (tokens, hidden)."""
    import numpy as np
    import torch
    from torch.utils.checkpoint import checkpoint

    head = model.get_output_embeddings()

    def tile(part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(states[part]).float() / temperature  # (tile, vocabulary)
        bits = np.unpackbits(np.stack(masks[part]), axis=1, count=logits.shape[1], bitorder="little")
        forbidden = torch.from_numpy(bits == 0).to(logits.device)
        log_probs = logits.masked_fill(forbidden, float("-inf")).log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs.masked_fill(forbidden, 0)).sum(-1)
        return log_probs.gather(1, tokens[part, None]).squeeze(1), entropy

    parts = [checkpoint(tile, slice(at, at + _TILE), use_reentrant=False) for at in range(0, len(tokens), _TILE)]
    log_probs, entropy = zip(*parts, strict=True)
    return torch.cat(log_probs), torch.cat(entropy)


def _check_head(model: PreTrainedModel) -> None:
    """Checks that logits are the head's product with the hidden states: neither scaled nor capped."""
    import torch

    ids, training = torch.tensor([[0, 1, 2]], device=model.device), model.training
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        product = model.get_output_embeddings()(model.base_model(input_ids=ids).last_hidden_state)
    model.train(training)
    if not torch.allclose(logits, product, rtol=1e-2, atol=1e-2):
        name = type(model).__name__
        raise InvalidValueError(f"{name} scales or caps its logits", field="constrained", expected="false", got=True)
