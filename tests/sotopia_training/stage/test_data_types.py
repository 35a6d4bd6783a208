"""The data type ``auto`` of a stage: the fast one of this machine, by name in records."""

from __future__ import annotations

import pytest
import torch
from sotopia_training.grpo.settings import GRPOSettings
from sotopia_training.stage.settings import ModelSettings, fast_dtype


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"amx_bf16": True}, "bfloat16"),
        ({"avx512_bf16": True, "cpu_name": "AMD EPYC 9R45"}, "bfloat16"),
        ({"avx512_bf16": True, "cpu_name": "Intel(R) Xeon(R)"}, "float32"),
        ({"cpu_name": "AMD EPYC 7571"}, "float32"),
        ({}, "float32"),
    ],
)
def test_a_cpu_without_fast_bfloat16_computes_in_float32(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool | str], expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert ModelSettings(base="smol", dtype="auto").dtype == expected
    settings = GRPOSettings(mode="multi-turn", start_from="clone", dtype="auto", output="grpo")
    assert settings.model.dtype == settings.dtype == expected
    # What is recorded is what a later machine compares: it does not become another type there.
    assert ModelSettings.model_validate(ModelSettings(base="smol", dtype="auto").model_dump()).dtype == expected


def test_a_gpu_computes_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert ModelSettings(base="smol", dtype="auto").dtype == "bfloat16"
    assert fast_dtype("cpu") in ("float32", "bfloat16")
    assert ModelSettings(base="smol").dtype == "float32"
