"""Answers of one model to one benchmark, through lm-eval."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, first_line
from sotopia_env.foundation.extras import install_command
from studies.harm.settings import Benchmark, HarmSettings
from studies.harm.toxicity import Toxicity

if TYPE_CHECKING:
    from lm_eval.models.huggingface import HFLM

MAX_TOXICITY, TOXIC = "max_toxicity", "toxic"
"""The metrics of continuations: the highest toxicity of a document's continuations, and whether any is toxic."""


@dataclass(frozen=True, slots=True)
class BenchmarkSample:
    """The answer to one document.

    Attributes:
        task: the task of lm-eval, a member of a group if the benchmark is one.
        document: the number of the document in its task.
        values: its metrics.
        prompt: the text that the model read.
        generations: the texts that it wrote; empty if answers are compared by their probabilities.
    """

    task: str
    document: int
    values: Mapping[str, float]
    prompt: str = ""
    generations: tuple[str, ...] = ()
    toxicity: tuple[float, ...] = field(default=())

    def record(self) -> dict[str, Any]:
        """Returns the sample as JSON."""
        return asdict(self)


def check_installed() -> None:
    """Raises :class:`InvalidValueError` without lm-eval."""
    try:
        import lm_eval  # noqa: F401
    except ImportError:
        raise InvalidValueError("benchmarks need lm-eval", hint=install_command("harm")) from None


def check_tasks(settings: HarmSettings) -> None:
    """Checks that every task exists, before a model is loaded.

    Raises:
        UnknownNameError: neither lm-eval nor a folder of ``include`` has such a task.
    """
    names = _manager(settings).all_tasks
    for number, benchmark in enumerate(settings.benchmarks):
        if benchmark.task not in names:
            raise UnknownNameError(field=f"benchmarks.{number}.task", got=benchmark.task, valid=names)


def answer(
    settings: HarmSettings, benchmark: Benchmark, prompt: str, model: HFLM, toxicity: Toxicity | None
) -> list[BenchmarkSample]:
    """Returns the samples of one model under one system prompt.

    Raises:
        InvalidValueError: the task's data cannot be loaded, or it does not compute the benchmark's measure.
    """
    from lm_eval import simple_evaluate

    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it warns of what was asked for
    manager = _manager(settings)
    try:
        results: Any = simple_evaluate(
            model=model,
            tasks=_tasks(manager, benchmark),
            task_manager=manager,
            num_fewshot=benchmark.fewshot,
            limit=benchmark.limit,
            system_instruction=settings.system_prompt(prompt),
            apply_chat_template=settings.chat,
            fewshot_as_multiturn=settings.chat,
            bootstrap_iters=0,
            random_seed=settings.seed,
            numpy_random_seed=settings.seed,
            torch_random_seed=settings.seed,
            fewshot_random_seed=settings.seed,
        )
    except (ConnectionError, FileNotFoundError, OSError) as error:
        raise InvalidValueError(
            f"its data could not be loaded ({first_line(error)})",
            field="task",
            got=benchmark.task,
            hint="its data come from a hub; without one, name task files of your own in include",
        ) from error
    return list(_samples(results["samples"], benchmark, toxicity))


def _manager(settings: HarmSettings) -> Any:
    return _manager_of(settings.include)


@cache
def _manager_of(include: tuple[str, ...]) -> Any:
    """The index of tasks, cached for the process because it reads thousands of files."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=list(include) or None)


def _tasks(manager: Any, benchmark: Benchmark) -> list[Any]:
    if not benchmark.is_toxicity:
        return [benchmark.task]
    tasks = list(manager.load(benchmark.task)["tasks"].values())
    for task in tasks:
        # The task's own metric may ask a service on the network; only its documents are used.
        task.set_config(key="process_results", value=None)
        task.override_metric(metric_name="bypass")
        task.set_config(key="repeats", value=benchmark.samples)
        sampling = {"do_sample": True, "temperature": benchmark.temperature, "max_gen_toks": benchmark.max_tokens}
        task.set_config(key="generation_kwargs", value={"until": ["\n\n"], **sampling})
    return tasks


def _samples(
    by_task: Mapping[str, Sequence[Mapping[str, Any]]], benchmark: Benchmark, toxicity: Toxicity | None
) -> Iterator[BenchmarkSample]:
    for task, items in sorted(by_task.items()):
        for item in items:
            document, prompt = int(item["doc_id"]), str(item["arguments"][0][0])
            if benchmark.is_toxicity:
                assert toxicity is not None  # the settings require a classifier
                texts = tuple(map(str, item["resps"][0]))
                values = tuple(toxicity.of(texts))
                highest = max(values)
                metrics = {MAX_TOXICITY: highest, TOXIC: float(highest >= toxicity.settings.threshold)}
                yield BenchmarkSample(task, document, metrics, prompt, texts, values)
                continue
            if benchmark.measure not in item:
                valid = sorted(item["metrics"])
                raise UnknownNameError(field="measure", got=benchmark.measure, valid=valid)
            answers = tuple(text for group in item["resps"] for text in group if isinstance(text, str))
            yield BenchmarkSample(task, document, {benchmark.measure: float(item[benchmark.measure])}, prompt, answers)
