"""The options of models: one record, from flags, YAML and Python."""

import json

import pytest

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.retries import RetryPolicy
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import settings_of
from tests.errors import raises


@pytest.mark.parametrize("text", ["1", "1,2,3", "cheap", "1,two", "-1,2", "inf,2"])
def test_a_price_is_two_numbers(text: str) -> None:
    with pytest.raises(InvalidValueError):
        settings_of({"price": text}, ModelOptions, "models")


def test_options_survive_a_file() -> None:
    options = ModelOptions(
        api_base={"local/a": "http://127.0.0.1:1/v1"},
        price={"": Price(1, 2), "local/a": Price(0.15, 0)},
        patience="10m",
        retries=RetryPolicy(3, base=0.1),
        fallbacks=("local/b",),
        max_cost=0.5,
    )
    assert options.patience == 600
    assert ModelOptions.model_validate(json.loads(options.model_dump_json())) == options


def test_an_unknown_option_gets_the_nearest_name() -> None:
    with raises(UnknownNameError, field="api_bse", nearest="api_base"):
        settings_of({"api_bse": "http://127.0.0.1:1/v1"}, ModelOptions, "models")
