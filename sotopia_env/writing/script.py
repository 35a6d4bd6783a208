"""Templates from a script, with the steps of AgentSense (§3.2 and A.2) and one file for each step.

A script is divided into scenes. From each scene, the model derives a background, goals, a situation that can be played
anew, suitable goals, private information with questions, wrong answers, texts without references to the script, and
finally rules for slots. The result is a :class:`~sotopia_env.tasks.Template`, which is filled with drawn people. Every
answer is appended to the file of its step, so that another call in the same directory repeats no question.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import read_json
from sotopia_env.foundation.validation import invalid
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.storage import Journal
from sotopia_env.tasks import Template, instantiate
from sotopia_env.tasks.lint.texts import GENDERED
from sotopia_env.tasks.open_scenario import renamed
from sotopia_env.world.interview import GoalType
from sotopia_env.world.scenario import RelationshipKind
from sotopia_env.world.taskset import TaskSet
from sotopia_env.writing import script_forms as forms
from sotopia_env.writing.drafting import Drafter, DraftQuestion, Trusted, Written, open_written
from sotopia_env.writing.inspirations import plain
from sotopia_env.writing.kinds import check_neutral, check_task
from sotopia_env.writing.likeness import leakage

STEPS: Mapping[str, type[forms.ScriptForm]] = {
    "scenes": forms.Scenes,
    "background": forms.Background,
    "goals": forms.Goals,
    "rewrite": forms.SituationForm,
    "filter": forms.FilteredGoal,
    "private": forms.PrivateFacts,
    "negatives": forms.Negatives,
    "leakage": forms.Traces,
    "slots": forms.Slots,
}
"""The steps in order, each with the form of its answers; the prompt is ``script_STEP.txt``."""
LEAST_TURNS = 10
"""Minimum number of spoken turns in a scene; scenes with fewer are left out (AgentSense §4.1)."""
LEAST_PEOPLE = 3
PART = 400
"""Number of lines of a script that are divided into scenes with one question."""
_NOT_ASKED = "no answer yet; the same command asks again"
_T = TypeVar("_T")
_ResultT = TypeVar("_ResultT")
_LONGEST = 3
"""Maximum ratio of the lengths of two answers to one question, so that the length does not reveal the right one."""


class _LeftOut(Exception):  # noqa: N818 - not an error, but the reason why a scene gives no template
    """Raised with the reason why a scene gives no template."""


class ScriptRoute:
    """The work on one script in one directory."""

    def __init__(self, drafter: Drafter, name: str, text: str, folder: Path) -> None:
        """Prepares the work, which continues that of an earlier call in ``folder``.

        Args:
            drafter: asks the model.
            name: the name of the script, with which the ids of templates begin.
            text: the text of the script.
            folder: the folder for a file of each step, ``templates.json``, ``tasks.jsonl`` and ``leakage.json``.

        Raises:
            InvalidValueError: the script is empty, or the folder contains the work on another script.
        """
        self.lines = [line.rstrip() for line in text.splitlines()]
        if not text.strip():
            raise InvalidValueError(field="script", expected=f"lines of text in {name!r}")
        self.name = "-".join("".join(c if c.isalnum() else " " for c in name.casefold()).split()) or "script"
        self._drafter, self._folder = drafter, folder
        self._check_same(hashlib.sha256(text.encode()).hexdigest())
        self._answers: dict[str, Journal[Written]] = {}

    def _path(self, step: str) -> Path:
        return self._folder / f"{list(STEPS).index(step) + 1}_{step}.jsonl"

    def _check_same(self, digest: str) -> None:
        file = self._folder / "script.json"
        if file.exists() and read_json(file) != {"name": self.name, "sha256": digest}:
            raise InvalidValueError(
                f"{self._folder} contains the work on another script", field="out", hint="choose another directory"
            )
        write_text_atomically(file, json.dumps({"name": self.name, "sha256": digest}) + "\n")

    async def run(self, profiles: int, seed: int) -> tuple[str, int]:
        """Makes the templates, and ``profiles`` tasks from each.

        Returns:
            A report of the results and of the scenes that were left out, as text; and the number of templates.

        Raises:
            ModelRefusedError: the model refuses every request.
            BudgetExceededError: the ledger's limit is reached; answered questions stay on disk.
            DamagedRecordError: a line of a step cannot be read.
        """
        with contextlib.ExitStack() as stack:
            for step in STEPS:
                self._answers[step] = stack.enter_context(open_written(self._path(step)))
            scenes, missing = await self._scenes()
            results = await self._each(range(len(scenes)), partial(self._steps, scenes), "scenes")
        pairs = [(item, scene) for item, scene in zip(results, scenes, strict=True) if isinstance(item, Template)]
        drafts = [template for template, _ in pairs]
        if drafts:
            self._save(drafts, profiles, seed)
            texts = {
                template.id: (_text_of(template), "\n".join(self._scene_lines(scene))) for template, scene in pairs
            }
            write_text_atomically(self._folder / "leakage.json", json.dumps(leakage(texts), indent=1) + "\n")
        reasons = Counter(item for item in (*results, *missing) if isinstance(item, str))
        left = [f"left out: {count} × {reason}" for reason, count in sorted(reasons.items())]
        summary = f"{self._folder}: {len(scenes)} scenes, {len(drafts)} templates, {profiles} tasks each"
        return "\n".join([*left, summary]), len(drafts)

    def _save(self, templates: Sequence[Template], profiles: int, seed: int) -> None:
        content = [template.model_dump(mode="json") for template in templates]
        write_text_atomically(self._folder / "templates.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        TaskSet([instantiate(one, n, seed) for one in templates for n in range(profiles)]).save(
            self._folder / "tasks.jsonl"
        )

    async def _each(
        self, items: Sequence[_T], work: Callable[[_T], Awaitable[_ResultT]], unit: str
    ) -> list[_ResultT | str]:
        """Returns the result of each item, or the reason for its absence; several items are processed at a time."""
        # Items that are not reached before a stop keep this reason.
        results: list[_ResultT | str] = [_NOT_ASKED] * len(items)

        async def one(number: int) -> bool:
            try:
                results[number] = await work(items[number])
            except _LeftOut as reason:
                results[number] = str(reason)
            return not isinstance(results[number], str)

        await self._drafter.work_through(range(len(items)), one, unit)
        return results

    # --- asking ----------------------------------------------------------------------------------------------------
    async def _ask(self, step: str, key: str, accept: Callable[[Any], object], **values: Any) -> Any:
        """Returns the answer to a question, from disk if it is there."""
        form = STEPS[step]

        def result(answer: forms.ScriptForm) -> Mapping[str, Any]:
            accept(answer)
            return answer.model_dump(mode="json")

        line = self._answers[step].get(key)
        if line is None:
            question: DraftQuestion[Any] = DraftQuestion(self.name, key, f"script_{step}", form, result, values)
            line = await self._drafter.record(question, self._answers[step])
        if line is None:
            raise _LeftOut(f"{step}: {_NOT_ASKED}")
        if line.result is None:
            raise _LeftOut(f"{step}: {line.refusal}")
        return form.model_validate(line.result)

    async def _scenes(self) -> tuple[list[forms.SceneForm], list[str]]:
        """Returns the scenes that can be played, and the reasons why parts or scenes of the script are left out."""
        parts = [range(start, min(start + PART, len(self.lines))) for start in range(0, len(self.lines), PART)]
        results = await self._each(parts, self._part, "parts")
        scenes = [scene for item in results if not isinstance(item, str) for scene in item]
        reasons = [item for item in results if isinstance(item, str)]
        fit = [one for one in scenes if one.turns >= LEAST_TURNS and len(set(one.speakers)) >= LEAST_PEOPLE]
        return fit, [*reasons, *["scenes: too few turns or people"] * (len(scenes) - len(fit))]

    async def _part(self, part: range) -> tuple[forms.SceneForm, ...]:
        def accept(answer: forms.Scenes) -> None:
            numbers = [number for scene in answer.scenes for number in (scene.first, scene.last)]
            # Increasing line numbers also imply that scenes are in order and do not overlap.
            if numbers != sorted(numbers) or numbers[0] < part.start or numbers[-1] >= part.stop:
                raise InvalidValueError(
                    field="scenes",
                    expected=f"line numbers that increase from {part.start} to {part.stop - 1}",
                    got=numbers,
                )

        lines = [f"{number}: {self.lines[number]}" for number in part]
        answer: forms.Scenes = await self._ask("scenes", f"lines {part.start}-{part.stop - 1}", accept, lines=lines)
        return answer.scenes

    def _scene_lines(self, scene: forms.SceneForm) -> list[str]:
        return self.lines[scene.first : scene.last + 1]

    # --- the steps of one scene ------------------------------------------------------------------------------------
    async def _steps(self, scenes: Sequence[forms.SceneForm], index: int) -> Template:
        scene = scenes[index]
        key, lines, before = f"scene {scene.first}", self._scene_lines(scene), [one.summary for one in scenes[:index]]
        opening = await self._ask("background", key, _check_people, before=before, lines=lines)
        names = [person.name for person in opening.people]
        people = [person.model_dump() for person in opening.people]

        def same_people(answer: forms.Goals) -> None:
            _expect_names([person.name for person in answer.people], names)

        wishes = await self._ask("goals", key, same_people, background=opening.background, people=people, lines=lines)

        def playable(answer: forms.SituationForm) -> None:
            same_people(answer)
            # Goals may contain gendered nouns, such as "mother", which can refer to people outside the seats.
            check_neutral(answer.context, words=GENDERED)
            check_neutral(*(goal for person in answer.people for goal in person.goals))

        people = [person.model_dump(mode="json") for person in wishes.people]
        situation = await self._ask("rewrite", key, playable, background=opening.background, people=people)
        goals = await all_at_once([self._goals(key, situation, names, seat) for seat in range(len(names))])
        people = [{"name": name, "goals": [goal.goal for goal in own]} for name, own in zip(names, goals, strict=True)]
        facts = await self._facts(key, situation.context, people, lines)
        texts = {
            "context": situation.context,
            "seats": [
                {
                    "goals": [{"text": goal.goal, "type": goal.type.value} for goal in own],
                    "private_info": next((fact.fact for fact, _ in facts if fact.name == name), ""),
                }
                for name, own in zip(names, goals, strict=True)
            ],
            "questions": [
                {"about": names.index(fact.name), "text": fact.question, "answer": fact.answer, "wrong": wrong}
                for fact, wrong in facts
            ],
        }
        return await self._slots(key, await self._without_traces(key, texts, names))

    async def _goals(self, key: str, situation: forms.SituationForm, names: list[str], seat: int) -> list[Any]:
        """Returns the goals of a seat that are suitable for play, rewritten."""

        def accept(answer: forms.FilteredGoal) -> None:
            check_neutral(answer.goal)

        name, goals = names[seat], situation.people[seat].goals
        values = {
            "context": situation.context,
            "names": names,
            "name": name,
            "types": Trusted(", ".join(f'"{one.value}"' for one in GoalType)),
        }
        answers = await all_at_once(
            [self._ask("filter", f"{key}/{seat}/{n}", accept, goal=goal, **values) for n, goal in enumerate(goals)]
        )
        if not (fit_goals := [answer for answer in answers if answer.goal.strip()]):
            raise _LeftOut("filter: a seat without a suitable goal")
        return fit_goals

    async def _facts(
        self, key: str, context: str, people: Sequence[Mapping[str, Any]], lines: Sequence[str]
    ) -> list[tuple[forms.FactForm, list[str]]]:
        """Returns the private information, each with its wrong answers."""
        names = [person["name"] for person in people]

        def accept(answer: forms.PrivateFacts) -> None:
            owners = [fact.name for fact in answer.facts]
            if len(set(owners)) != len(owners) or set(owners) - set(names):
                raise InvalidValueError(
                    field="facts", expected=f"at most one for each of {names}", got=Verbatim(f"those of {owners}")
                )
            for fact in answer.facts:
                check_neutral(fact.fact, fact.question, fact.answer)
                if plain(fact.answer).rstrip(".") in plain(context):
                    raise InvalidValueError(
                        field="answer", expected="a text that the situation does not contain", got=fact.answer
                    )

        answer = await self._ask("private", key, accept, context=context, people=list(people), lines=list(lines))
        wrong = await all_at_once([self._wrong(key, context, fact, n) for n, fact in enumerate(answer.facts)])
        return list(zip(answer.facts, wrong, strict=True))

    async def _wrong(self, key: str, context: str, fact: forms.FactForm, number: int) -> list[str]:
        def accept(answer: forms.Negatives) -> None:
            if len({plain(text) for text in (fact.answer, *answer.wrong)}) != 1 + len(answer.wrong):
                raise InvalidValueError(
                    field="wrong", expected=f"three texts that differ from {fact.answer!r} and from each other"
                )
            lengths = [len(text) for text in (fact.answer, *answer.wrong)]
            if max(lengths) > _LONGEST * min(lengths):
                raise InvalidValueError(
                    field="wrong",
                    expected=f"texts about as long as {fact.answer!r}",
                    got=Verbatim(f"the lengths {lengths}"),
                )
            check_neutral(*answer.wrong)

        values = {"context": context, "question": fact.question, "answer": fact.answer}
        answer: forms.Negatives = await self._ask("negatives", f"{key}/{number}", accept, **values)
        return list(answer.wrong)

    async def _without_traces(self, key: str, texts: Mapping[str, Any], names: list[str]) -> Any:
        """Returns the texts with slots for people, and without references to the script."""
        whole = _text_in(texts)

        def accept(answer: forms.Traces) -> None:
            if len(answer.mentions) != len(names):
                raise InvalidValueError(
                    field="mentions", expected=f"a list for each of {names}", got=len(answer.mentions)
                )
            originals = [one.original for one in answer.replacements]
            mentions = list(itertools.chain(*answer.mentions))
            if absent := [text for text in (*mentions, *originals) if text not in whole]:
                raise InvalidValueError(f"{absent[0]!r} does not occur in the texts", field="mentions, replacements")
            if len({*mentions, *originals}) != len(mentions) + len(originals):
                raise InvalidValueError(field="mentions, replacements", expected="every text once")
            # A text may also occur in another letter case, which the replacement does not find.
            rest = _text_in(_replaced(texts, answer)).casefold()
            if left := [text for text in (*names, *mentions, *originals) if _occurs(text.casefold(), rest)]:
                raise InvalidValueError(
                    f"{left[0]!r} still occurs in the texts", field="replacements", hint="replace it everywhere"
                )

        return _replaced(texts, await self._ask("leakage", key, accept, texts=texts, names=names))

    async def _slots(self, key: str, texts: Any) -> Template:
        def accept(answer: forms.Slots) -> None:
            template = self._built(key, texts, answer)
            check_task(instantiate(template, 0, 0))

        kinds = Trusted(", ".join(f'"{kind.value}"' for kind in RelationshipKind))
        seats = Trusted(len(texts["seats"]))
        answer = await self._ask("slots", key, accept, texts=texts, seats=seats, relationships=kinds)
        return self._built(key, texts, answer)

    def _built(self, key: str, texts: Any, slots: forms.Slots) -> Template:
        if len(slots.seats) != len(texts["seats"]):
            raise InvalidValueError(field="seats", expected=f"{len(texts['seats'])} entries", got=len(slots.seats))
        rules = [seat.model_dump(mode="json") for seat in slots.seats]
        content = {
            **texts,
            "id": f"{self.name}-{key.partition(' ')[2]}",
            "domain": slots.domain,
            "seats": [{**rule, **seat} for rule, seat in zip(rules, texts["seats"], strict=True)],
            "ties": [tie.model_dump(mode="json") for tie in slots.ties],
            "source": self.name,
            "tags": ["written"],
        }
        try:
            return Template.model_validate(content)
        except ValidationError as error:
            raise invalid(error, (), content) from None


def _check_people(answer: forms.Background) -> None:
    names = [plain(person.name) for person in answer.people]
    if len(set(names)) != len(names):
        raise InvalidValueError(field="people", expected="different names", got=names)


def _expect_names(names: Sequence[str], expected: Sequence[str]) -> None:
    if list(names) != list(expected):
        raise InvalidValueError(field="people", expected=f"{list(expected)}, in this order", got=list(names))


def _replaced(texts: Any, traces: forms.Traces) -> Any:
    """Returns the texts with slots and replacements, made in one pass, longer texts first."""
    people = {text: f"{{{seat}}}" for seat, mentions in enumerate(traces.mentions) for text in mentions}
    return renamed(texts, people | {one.original: one.replacement for one in traces.replacements})


def _text_in(value: Any) -> str:
    """Returns all texts in a value, one per line."""
    if isinstance(value, Mapping):
        return _text_in([part for name, part in value.items() if name != "type"])
    return "\n".join(map(_text_in, value)) if isinstance(value, list | tuple) else str(value)


def _occurs(text: str, whole: str) -> bool:
    """Whether ``text`` occurs in ``whole`` as a word or several words."""
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", whole) is not None


def _text_of(template: Template) -> str:
    """Returns the texts of a template that agents see: context, goals and private information."""
    seats = [text for slot in template.seats for text in (*(goal.text for goal in slot.goals), slot.private_info)]
    return " ".join([template.context, *seats])
