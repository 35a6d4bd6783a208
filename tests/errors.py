"""What tests expect of an error: its class and its fields, never its sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sotopia_env.foundation.errors import FieldError
from sotopia_env.foundation.validation import invalid


@contextmanager
def raises(kind: type[Exception], **fields: Any) -> Iterator[pytest.ExceptionInfo[Any]]:
    """As :func:`pytest.raises`, for an error with these fields.

    ``file`` (its name alone), ``line`` and ``record`` are those of the error's ``where``.
    """
    with pytest.raises(kind) as caught:
        yield caught
    check_fields(caught.value, **fields)


def check_fields(error: BaseException, **fields: Any) -> None:
    """Asserts that an error has these fields, as :func:`raises` takes them."""
    problem = invalid(error) if isinstance(error, ValidationError) else error
    assert isinstance(problem, FieldError)
    locations = {"file": Path(problem.where.file).name, "line": problem.where.line, "record": problem.where.record}
    assert {name: locations[name] if name in locations else getattr(problem, name) for name in fields} == fields
