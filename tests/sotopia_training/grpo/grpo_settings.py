"""Settings of GRPO for tests, and a reward model of random weights."""

from sotopia_training.data.sources import SourceSettings
from sotopia_training.grpo.settings import GRPOSettings, RewardSettings
from sotopia_training.grpo.situations import SituationSettings
from sotopia_training.models.loading import find_model, write_prompt_settings
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.stage.settings import ModelSettings

from tests.sotopia_training.conftest import SHORT as BRIEF

SITUATIONS = SituationSettings(
    families=("bargaining",), level="easy", count=4, partners=("linear:horizon=2",), max_turns=4, worths=False
)


def situated(**values):
    """:data:`SITUATIONS` with other values, which are checked."""
    return SituationSettings.model_validate({**SITUATIONS.model_dump(), **values})


TRAINER = {
    "num_generations": 4,
    "learning_rate": 1e-3,
    "max_steps": 2,
    "per_device_train_batch_size": 8,
    "save_steps": 1,
    "logging_steps": 1,
    "warmup_steps": 0,
}


def multi_turn_settings(**more):
    """Settings of multi-turn GRPO; ``trainer`` adds to :data:`TRAINER`."""
    trainer = {**TRAINER, **more.pop("trainer", {})}
    values = {"mode": "multi-turn", "start_from": "x", "situations": SITUATIONS, "output": "y", "lora": None}
    return GRPOSettings(**{**values, "trainer": trainer, **more})


def single_turn_settings(start, scored_by, run, **more):
    """Settings of single-turn GRPO."""
    return multi_turn_settings(
        mode="single-turn",
        situations=None,
        start_from=str(start),
        data=(SourceSettings(run=str(run)),),
        reward=RewardSettings(model=str(scored_by), gate=False),
        **more,
    )


def reward_model_of(base, out):
    """A reward model of random weights."""
    import torch
    from sotopia_training.reward.scorer import write_note
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(str(find_model(base)), num_labels=1)
    model.save_pretrained(str(out / "model"))
    load_tokenizer(find_model(base)).save_pretrained(str(out / "model"))
    write_prompt_settings(out / "model", BRIEF)
    write_note(out / "model", ModelSettings(base=str(find_model(base)), lora=None), BRIEF)
    return out
