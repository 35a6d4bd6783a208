"""Was a goal reached, as seen by the agent itself, by the others, and from outside: yes or no, by majority.

Source: AgentSense §3.4. Every view is asked separately. The agent itself and the others are asked as the persons they
were and are shown only what they knew and witnessed; judges read everything. A question is known by its agent and the
goal's number, never by the goal's text: two goals may read the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import EvaluationError, InvalidValueError, UnknownNameError, name_hint
from sotopia_env.evaluators.judge.document import document, witnessed
from sotopia_env.evaluators.judge.goal_answer import GoalAnswer, Inquiry, View, answers_schema, read_answers
from sotopia_env.evaluators.judge.prompt import Prompt, fingerprint
from sotopia_env.evaluators.judge.question import Answer, AskingEvaluator, Manner, all_at_once, ask, check_model, tag
from sotopia_env.prompts import fill, load
from sotopia_env.records import canonical_json
from sotopia_env.world.episode import Evaluation, Score, Transcript
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Task

ALL_VIEWS = "all"
"""Decides by the majority of the views that were asked, each with one vote."""


class Views(AskingEvaluator):
    """Asks for every goal of every agent whether it was reached, and scores GOAL alone: 10 × the share that was.

    Within a view the majority of its respondents decides; as many yes as no is no majority, and the goal counts as not
    reached. Across views ``deciding`` says which view counts; ``"all"`` gives each view asked one vote. An answer that
    is not one clear yes or no is refused and asked for again; when one is still missing, the episode is unscored.

    Args:
        external: the judges from outside; the paper uses three and takes their majority as the primary measure.
        interviewee: who answers for the participants: one model for all, or one by agent id (the model that played
            the seat, as a rule); ``None`` asks no participant.
        views: the views to ask; ``None`` asks all for which there is a model.
        deciding: the view that counts, or ``"all"``.
        temperature: sampling temperature.
        reasks: how often it is asked again after an answer that is not accepted.
        max_tokens: limit on an answer, in tokens.

    Raises:
        UnknownNameError: a view is not known.
        InvalidValueError: a view has no model to ask, or the deciding view is not asked.
    """

    def __init__(
        self,
        external: Sequence[ChatModel] = (),
        *,
        interviewee: ChatModel | Mapping[str, ChatModel] | None = None,
        views: Sequence[View | str] | None = None,
        deciding: View | str = View.EXTERNAL,
        temperature: float = 0.0,
        reasks: int = 2,
        max_tokens: int | None = None,
    ) -> None:
        self.external = tuple(map(check_model, external))
        if isinstance(interviewee, Mapping):
            self.interviewee: ChatModel | Mapping[str, ChatModel] | None = {
                agent: check_model(model) for agent, model in interviewee.items()
            }
        else:
            self.interviewee = None if interviewee is None else check_model(interviewee)
        self.views = self._checked(views)
        self.deciding = ALL_VIEWS if deciding == ALL_VIEWS else _view("deciding", deciding).value
        if self.deciding != ALL_VIEWS and self.deciding not in self.views:
            raise InvalidValueError(
                f"deciding: expected a view that is asked ({', '.join(self.views)}), got {str(deciding)!r}"
            )
        self.manner = Manner(temperature, reasks, max_tokens)
        self._parameters = self._describe()
        tagged = {key: value for key, value in self._parameters.items() if key != "prompt"}
        self._name = f"views({'+'.join(self.views)})#{tag(tagged)}"

    def _checked(self, views: Sequence[View | str] | None) -> tuple[View, ...]:
        possible = ((View.SELF, View.OTHER) if self.interviewee else ()) + ((View.EXTERNAL,) if self.external else ())
        wanted = possible if views is None else [_view("views", view) for view in views]
        for view in wanted:
            if view not in possible:
                needed = "external" if view is View.EXTERNAL else "interviewee"
                raise InvalidValueError(f"views: {view.value!r} needs a model in {needed!r}, got none")
        if not wanted:
            raise InvalidValueError("views: expected at least one model to ask, got none")
        return tuple(view for view in View if view in wanted)

    def _describe(self) -> dict[str, Any]:
        people = self.interviewee
        if isinstance(people, Mapping):
            interviewee: Any = {agent: _model(model) for agent, model in people.items()}
        else:
            interviewee = people and _model(people)
        prompts = [f"judge_view_{part}" for part in (*View, "data", "form", "closing")]
        return {
            "external": [_model(model) for model in self.external],
            "interviewee": interviewee,
            "views": [view.value for view in self.views],
            "deciding": self.deciding,
            "temperature": self.manner.temperature,
            "reasks": self.manner.reasks,
            "max_tokens": self.manner.max_tokens,
            "prompt": fingerprint("", *prompts, "judge_data", "judge_reask"),
        }

    @property
    def name(self) -> str:
        """``views(self+other+external)#`` and six digits that stand for the parameters."""
        return self._name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """All models with their parameters, how they are asked and what decides."""
        return self._parameters

    async def evaluate_async(self, transcript: Transcript) -> Evaluation:
        """Returns GOAL for every agent, or why there is none.

        Every answer stands in ``comment`` (:func:`~sotopia_env.evaluators.judge.goal_answer.answers_of` reads them).

        Raises:
            EvaluationError: a call failed for good, or a seat has nobody to answer for it.
            BudgetExceededError: the ledger's limit is reached.
        """
        inquiries = self._inquiries(transcript.task)
        answers = await all_at_once(self._ask(transcript, inquiry) for inquiry in inquiries)
        refused = [
            f"{i.view.value} view: no valid answer by {i.respondent} about {i.about} "
            f"after {a.reasks + 1} answers; the last one: {a.refusal}"
            for i, a in zip(inquiries, answers, strict=True)
            if a.value is None
        ]
        given = tuple(answer for group in answers for answer in group.value or ())
        scores = () if refused else tuple(self._score(transcript.task, seat, given) for seat in transcript.task.agents)
        return Evaluation(
            evaluator=self._name,
            parameters=dict(self._parameters),
            scores=scores,
            unscored="; ".join(refused) or None,
            comment="" if refused else canonical_json([answer.model_dump(mode="json") for answer in given]),
        )

    def _inquiries(self, task: Task) -> list[Inquiry]:
        found = []
        for about in task.agents:
            for view in self.views:
                if view is View.EXTERNAL:
                    found += [Inquiry(view, f"judge_{n}", about, model) for n, model in enumerate(self.external)]
                    continue
                asked = [agent for agent in task.agents if (agent == about) == (view is View.SELF)]
                found += [Inquiry(view, agent, about, self._person(agent)) for agent in asked]
        return found

    def _person(self, agent: str) -> ChatModel:
        people = self.interviewee
        if not isinstance(people, Mapping):
            assert people is not None  # checked when the views were chosen
            return people
        if agent not in people:
            raise EvaluationError(f"{self._name}: interviewee: expected a model for {agent}, got {', '.join(people)}")
        return people[agent]

    async def _ask(self, transcript: Transcript, inquiry: Inquiry) -> Answer[tuple[GoalAnswer, ...]]:
        viewer = None if inquiry.view is View.EXTERNAL else inquiry.respondent
        goals = transcript.task.scenario.seats[transcript.task.agents.index(inquiry.about)].goals

        def prompt(omitted: int) -> Prompt:
            shown_ = document(transcript, viewer=viewer, omitted=omitted, questions=goals)
            return Prompt(_system(inquiry, len(goals)), shown_, _closing(inquiry), answers_schema(len(goals)))

        turns = len(witnessed(transcript, viewer))
        label = f"{self._name}: {transcript.task.id}, seed {transcript.seed}, {inquiry.respondent} on {inquiry.about}"
        return await ask(inquiry.model, prompt, turns, partial(read_answers, inquiry, len(goals)), self.manner, label)

    def _score(self, task: Task, agent: str, answers: Sequence[GoalAnswer]) -> Score:
        goals = task.scenario.seats[task.agents.index(agent)].goals
        verdicts, words = [], []
        for goal in range(len(goals)):
            tallies = {view: _votes(answers, agent, goal, view) for view in self.views}
            verdicts.append(self._reached(tallies))
            told = ", ".join(f"{view.value} {sum(votes)} of {len(votes)}" for view, votes in tallies.items())
            words.append(f"goal {goal + 1} {'reached' if verdicts[-1] else 'not reached'} (yes: {told})")
        value = 10.0 * sum(verdicts) / len(verdicts)
        return Score(agent=agent, dimension=Dimension.GOAL, value=value, reasoning="; ".join(words), source=self._name)

    def _reached(self, tallies: Mapping[View, Sequence[bool]]) -> bool:
        if self.deciding == ALL_VIEWS:
            return _most([_most(votes) for votes in tallies.values()])
        return _most(tallies[View(self.deciding)])

    async def close(self) -> None:
        """Closes all models."""
        people = self.interviewee
        models = [*self.external, *(people.values() if isinstance(people, Mapping) else [people] if people else [])]
        for model in {id(model): model for model in models}.values():
            await model.close()


def _view(argument: str, value: View | str) -> View:
    try:
        return View(value)
    except ValueError:
        names = [*(v.value for v in View), *([ALL_VIEWS] if argument == "deciding" else [])]
        raise UnknownNameError(f"{argument}: {name_hint(str(value), names)}") from None


def _model(model: ChatModel) -> dict[str, Any]:
    return {"model": model.name, "model_parameters": dict(model.parameters)}


def _votes(answers: Sequence[GoalAnswer], agent: str, goal: int, view: View) -> list[bool]:
    return [a.reached for a in answers if (a.agent, a.goal, a.view) == (agent, goal, view)]


def _most(votes: Sequence[bool]) -> bool:
    return 2 * sum(votes) > len(votes)


def _system(inquiry: Inquiry, goals: int) -> str:
    entries = ", ".join(f'"{number}": {{"reasoning": "…", "answer": "yes"}}' for number in range(1, goals + 1))
    form = fill(load("judge_view_form"), form=f'{{"answers": {{{entries}}}}}')
    values = {"data_rule": load("judge_view_data"), "form": form}
    if inquiry.view is not View.EXTERNAL:
        values["respondent"] = inquiry.respondent
    if inquiry.view is not View.SELF:
        values["about"] = inquiry.about
    return fill(load(f"judge_view_{inquiry.view.value}"), **values)


def _closing(inquiry: Inquiry) -> str:
    return fill(load("judge_view_closing"), about=inquiry.about)
