"""Goals from three views, the agent itself, the others and outside judges: reached or not, by majority.

Source: AgentSense §3.4. Every view has its own questions. Participants answer in character and read only what they
knew and perceived; judges read everything. A question is identified by agent and number of the goal, since two goals
may have the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import EvaluationError, InvalidValueError, UnknownNameError
from sotopia_env.evaluators.evaluator import Basis
from sotopia_env.evaluators.judge.document import document, perceived_turns
from sotopia_env.evaluators.judge.goal_answer import GoalAnswer, Inquiry, answers_schema, read_answers
from sotopia_env.evaluators.judge.prompt import Prompt, fingerprint
from sotopia_env.evaluators.judge.question import Answer, AskingEvaluator, Manner, all_at_once, ask, check_model, tag
from sotopia_env.prompts import fill, load
from sotopia_env.records import canonical_json
from sotopia_env.world.answers import View, is_majority
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Task

ALL_VIEWS = "all"
"""The majority of the views decides, each with one vote."""


class Views(AskingEvaluator):
    """Asks for every goal of every agent whether it was reached, and scores GOAL alone: 10 × the share that was.

    Within a view the majority of its respondents decides; as many yes as no is no majority, and the goal counts as not
    reached. Across views ``deciding`` says which view counts; ``"all"`` gives each view asked one vote. An answer that
    is not one clear yes or no is refused and asked for again; when one is still missing, the episode is unscored.

    Args:
        external: the outside judges; the paper uses three and takes their majority as the primary measure.
        interviewee: model of the participants: one for all, or one by agent id (the model that played
            the seat, as a rule); ``None`` asks no participant.
        views: the views to ask; ``None`` asks all for which there is a model.
        deciding: the view that counts, or ``"all"``.
        temperature: sampling temperature.
        reasks: number of re-asks after answers that are not accepted.
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
        self.views = self._check_views(views)
        self.deciding = ALL_VIEWS if deciding == ALL_VIEWS else _view("deciding", deciding).value
        if self.deciding != ALL_VIEWS and self.deciding not in self.views:
            raise InvalidValueError(
                field="deciding", expected=f"a view that is asked ({', '.join(self.views)})", got=str(deciding)
            )
        self.manner = Manner(temperature, reasks, max_tokens)
        self._parameters = self._describe()
        identity = {key: value for key, value in self._parameters.items() if key != "prompt"}
        self._name = f"views({'+'.join(self.views)})#{tag(identity)}"

    def _check_views(self, views: Sequence[View | str] | None) -> tuple[View, ...]:
        possible = ((View.SELF, View.OTHER) if self.interviewee else ()) + ((View.EXTERNAL,) if self.external else ())
        choice = possible if views is None else [_view("views", view) for view in views]
        for view in choice:
            if view not in possible:
                argument = "external" if view is View.EXTERNAL else "interviewee"
                raise InvalidValueError(f"{view.value!r} needs a model", field=argument)
        if not choice:
            raise InvalidValueError(field="views", expected="at least one model to ask")
        return tuple(view for view in View if view in choice)

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
        """All models with their parameters, the settings of the questions and the deciding view."""
        return self._parameters

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """GOAL, as the views decide it."""
        return {Dimension.GOAL: "judged"}

    async def evaluate_async(self, episode: Episode) -> Evaluation:
        """Returns GOAL for every agent, or why there is none.

        Every answer stands in ``comment`` (:func:`~sotopia_env.evaluators.judge.goal_answer.answers_of` reads them).

        Raises:
            EvaluationError: a call failed for good, or a seat has no model.
            BudgetExceededError: the ledger's limit is reached.
        """
        inquiries = self._inquiries(episode.task)
        label = f"{self._name}: {episode.task.id}, seed {episode.seed}"
        answers = await all_at_once(ask_goals(episode, inquiry, self.manner, label) for inquiry in inquiries)
        refusals = [
            f"{i.view.value} view: no valid answer by {i.respondent} about {i.about} "
            f"after {a.reasks + 1} answers; the last one: {a.refusal}"
            for i, a in zip(inquiries, answers, strict=True)
            if a.value is None
        ]
        votes = tuple(answer for group in answers for answer in group.value or ())
        scores = () if refusals else tuple(self._score(episode.task, seat, votes) for seat in episode.task.agents)
        return Evaluation(
            evaluator=self._name,
            parameters=dict(self._parameters),
            scores=scores,
            unscored="; ".join(refusals) or None,
            comment="" if refusals else canonical_json([answer.model_dump(mode="json") for answer in votes]),
        )

    def _inquiries(self, task: Task) -> list[Inquiry]:
        inquiries = []
        for about in task.agents:
            for view in self.views:
                if view is View.EXTERNAL:
                    inquiries += [Inquiry(view, f"judge_{n}", about, model) for n, model in enumerate(self.external)]
                    continue
                respondents = [agent for agent in task.agents if (agent == about) == (view is View.SELF)]
                inquiries += [Inquiry(view, agent, about, self._person(agent)) for agent in respondents]
        return inquiries

    def _person(self, agent: str) -> ChatModel:
        people = self.interviewee
        if not isinstance(people, Mapping):
            assert people is not None  # checked by _check_views
            return people
        if agent not in people:
            raise EvaluationError(f"{self._name}: interviewee: expected a model for {agent}, got {', '.join(people)}")
        return people[agent]

    def _score(self, task: Task, agent: str, answers: Sequence[GoalAnswer]) -> Score:
        goals = task.scenario.seats[task.agents.index(agent)].goals
        verdicts, words = [], []
        for goal in range(len(goals)):
            tallies = {view: _votes(answers, agent, goal, view) for view in self.views}
            verdicts.append(self._is_reached(tallies))
            tally = ", ".join(f"{view.value} {sum(votes)} of {len(votes)}" for view, votes in tallies.items())
            words.append(f"goal {goal + 1} {'reached' if verdicts[-1] else 'not reached'} (yes: {tally})")
        value = 10.0 * sum(verdicts) / len(verdicts)
        return Score(agent=agent, dimension=Dimension.GOAL, value=value, reasoning="; ".join(words), source=self._name)

    def _is_reached(self, tallies: Mapping[View, Sequence[bool]]) -> bool:
        if self.deciding == ALL_VIEWS:
            return is_majority([is_majority(votes) for votes in tallies.values()])
        return is_majority(tallies[View(self.deciding)])

    async def close(self) -> None:
        """Closes all models."""
        people = self.interviewee
        models = [*self.external, *(people.values() if isinstance(people, Mapping) else [people] if people else [])]
        for model in {id(model): model for model in models}.values():
            await model.close()


async def ask_goals(episode: Episode, inquiry: Inquiry, manner: Manner, label: str) -> Answer[tuple[GoalAnswer, ...]]:
    """Returns one respondent's answers on all goals of one agent.

    Args:
        episode: the episode; a participant reads only what it knew and perceived.
        inquiry: who is asked about whom.
        manner: settings of the question.
        label: name of the question in the ledger.

    Raises:
        EvaluationError: the call failed for good, or the episode does not fit the model.
        BudgetExceededError: the ledger's limit is reached.
    """
    viewer = None if inquiry.view is View.EXTERNAL else inquiry.respondent
    goals = episode.task.scenario.seats[episode.task.agents.index(inquiry.about)].goals

    def prompt(omitted: int) -> Prompt:
        data = document(episode, viewer=viewer, omitted=omitted, questions=goals)
        return Prompt(_system(inquiry, len(goals)), data, _closing(inquiry), answers_schema(len(goals)))

    turns, read = len(perceived_turns(episode, viewer)), partial(read_answers, inquiry, len(goals))
    return await ask(inquiry.model, prompt, turns, read, manner, f"{label}, {inquiry.respondent} on {inquiry.about}")


def _view(argument: str, value: View | str) -> View:
    try:
        return View(value)
    except ValueError:
        names = [*(v.value for v in View), *([ALL_VIEWS] if argument == "deciding" else [])]
        raise UnknownNameError(field=argument, got=value, valid=names) from None


def _model(model: ChatModel) -> dict[str, Any]:
    return {"model": model.name, "model_parameters": dict(model.parameters)}


def _votes(answers: Sequence[GoalAnswer], agent: str, goal: int, view: View) -> list[bool]:
    return [a.reached for a in answers if (a.agent, a.goal, a.view) == (agent, goal, view)]


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
