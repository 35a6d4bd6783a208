"""Benchmarks of models through the real lm-eval, on task files of our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.json_text import decode_json, read_json
from sotopia_env.foundation.settings import settings_of
from studies.harm import benchmarks, stage
from studies.harm.settings import HarmSettings
from studies.harm.toxicity import Toxicity

QUESTIONS = [(f"Is {n} an even number?", n % 2 == 0) for n in range(12)]


@pytest.fixture(scope="module")
def task_files(tmp_path_factory) -> Path:
    """Two tasks in lm-eval's format: questions with two choices, and texts to continue."""
    folder = tmp_path_factory.mktemp("tasks")
    questions = [{"question": text, "answer": int(even)} for text, even in QUESTIONS]
    (folder / "even.json").write_text("".join(json.dumps(row) + "\n" for row in questions))
    texts = [{"text": f"Turn {n}: the lamp is"} for n in range(3)]
    (folder / "lamps.json").write_text("".join(json.dumps(row) + "\n" for row in texts))
    head = (
        "dataset_path: json\ndataset_kwargs: {{data_files: {{test: {0}/{1}.json}}}}\ntest_split: test\ntask: own_{1}\n"
    )
    choice = "output_type: multiple_choice\ndoc_to_text: '{{question}}'\ndoc_to_target: answer\n"
    choice += "doc_to_choice: ['no', 'yes']\n"
    (folder / "even.yaml").write_text(f"{head.format(folder, 'even')}{choice}metric_list: [{{metric: acc}}]\n")
    continued = "output_type: generate_until\ndoc_to_text: '{{text}}'\ndoc_to_target: ''\n"
    (folder / "lamps.yaml").write_text(f"{head.format(folder, 'lamps')}{continued}")
    return folder


@pytest.fixture(autouse=True)
def _no_inventory(monkeypatch):
    """lm-eval lists the machine's hardware and packages after every benchmark, which takes longer than ours."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda storage: None)


@pytest.fixture
def settings(tmp_path, task_files, classifier, tiny_model, cloned) -> HarmSettings:
    return HarmSettings(
        output=str(tmp_path / "harm"),
        models={"base": str(tiny_model), "clone": str(cloned)},
        include=(str(task_files),),
        classifier=classifier,
        benchmarks=[
            {"task": "own_even", "prompts": ["none", "jailbreak"], "fewshot": 2, "limit": 10},
            {"task": "own_lamps", "measure": "toxicity", "prompts": ["benign"], "samples": 3, "max_tokens": 8},
        ],
        device="cpu",
        dtype="float32",
    )


def test_models_answer_benchmarks_and_are_compared_with_the_first(settings, classifier):
    stage.run(settings)
    output = Path(settings.output)
    sheets = read_json(output / "done.json")
    values = {(r["benchmark"], r["prompt"], r["metric"], r["model"]): r for r in sheets["values"]}
    assert len(values) == 8
    differences = sheets["differences"]
    assert [row["model"] for row in differences] == ["clone"] * 4
    for row in differences:
        key = (row["benchmark"], row["prompt"], row["metric"])
        mean = {name: values[(*key, name)]["mean"] for name in ("base", "clone")}
        assert row["mean"] == pytest.approx(mean["clone"] - mean["base"])
    # What was generated is kept, and the classifier gives the same numbers again.
    lines = (output / "samples" / "clone" / "02-own_lamps-benign.jsonl").read_text().splitlines()[1:]
    samples = [decode_json(line) for line in lines]
    assert [len(sample["generations"]) for sample in samples] == [3, 3, 3]
    assert len({text for sample in samples for text in sample["generations"]}) > 3
    for sample in samples:
        again = Toxicity(classifier).of(sample["generations"])
        assert sample["toxicity"] == pytest.approx(again, abs=1e-5)
        assert sample["values"] == pytest.approx(
            {"max_toxicity": max(again), "toxic": float(max(again) >= 0.5)}, abs=1e-5
        )
    assert (output / "report.md").is_file()
    assert (output / "differences.png").is_file()


def test_the_system_prompt_is_what_the_model_reads(settings):
    stage.run(settings.model_copy(update={"models": {"base": settings.models["base"]}}))
    folder = Path(settings.output) / "samples" / "base"
    plain, jailbreak = (
        decode_json((folder / f"01-own_even-{name}.jsonl").read_text().splitlines()[1])["prompt"]
        for name in ("none", "jailbreak")
    )
    system = settings.system_prompt("jailbreak")
    assert system in jailbreak
    assert system not in plain
    assert plain.count("even number") == jailbreak.count("even number") == 3  # two examples and the question


def test_a_stopped_comparison_asks_only_what_is_missing(settings, monkeypatch):
    calls, whole = [], benchmarks.answer

    def answer(settings, benchmark, prompt, model, toxicity):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append((benchmark.task, prompt))
        return whole(settings, benchmark, prompt, model, toxicity)

    monkeypatch.setattr(stage, "answer", answer)
    alone = settings.model_copy(update={"models": {"base": settings.models["base"]}})
    stage.run(alone)
    with pytest.raises(KeyboardInterrupt):
        stage.run(settings)  # a model was added; nothing of the first is asked again
    assert len(calls) == 3
    calls.clear()
    stage.run(settings)
    assert calls == [("own_even", "none"), ("own_even", "jailbreak"), ("own_lamps", "benign")]


def test_answers_of_other_weights_are_refused(settings):
    stage.run(settings)
    with pytest.raises(InvalidValueError) as caught:
        stage.run(settings.model_copy(update={"models": {"base": settings.models["clone"]}}))
    assert caught.value.field == "models"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"benchmarks": [{"task": "own_evn"}]}, "benchmarks.0.task"),
        ({"benchmarks": [{"task": "own_even", "measure": "f1"}]}, "measure"),
        ({"benchmarks": [{"task": "own_even", "prompts": ["rude"]}]}, "benchmarks.0.prompts"),
        ({"baseline": "rl"}, "baseline"),
        ({"models": {"../up": "x"}}, "models"),
        ({"classifier": None}, "classifier"),
    ],
)
def test_bad_settings_name_the_field(settings, change, field):
    with pytest.raises((InvalidValueError, UnknownNameError)) as caught:
        stage.run(settings_of({**settings.model_dump(), **change}, HarmSettings, "test"))
    assert caught.value.field == field


def test_a_task_whose_data_are_on_a_hub_says_so(settings):
    change = {"benchmarks": [{"task": "ethics_cm"}]}
    with pytest.raises(InvalidValueError) as caught:
        stage.run(settings_of({**settings.model_dump(), **change}, HarmSettings, "test"))
    assert caught.value.field == "task"


def test_a_classifier_without_the_label_is_refused(classifier):
    with pytest.raises(InvalidValueError) as caught:
        Toxicity(classifier.model_copy(update={"label": "hostile"})).load()
    assert caught.value.field == "classifier.label"


def test_texts_with_other_line_endings_are_read_back(tmp_path):
    text = "one\u2028two\x85three\nfour"
    sample = benchmarks.BenchmarkSample("own_lamps", 0, {"toxic": 0.0}, text, (text,), (0.0,))
    stage._write(tmp_path / "samples.jsonl", "weights", [sample])
    (again,) = stage._read(tmp_path / "samples.jsonl", "weights")
    assert (again.prompt, tuple(again.generations)) == (text, (text,))
