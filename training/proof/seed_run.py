"""All stages of one training seed: collect, clone, reinforce, measure moves, reward model, both kinds of GRPO, tests.

Every stage is the one a user runs, with the same settings records, on a tiny model; only partners and tasks are the
proof's. Each is a directory and is skipped when it is complete.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import JsonValue

from sotopia_env.evaluators import default_evaluator
from sotopia_env.files import write_text_atomically
from sotopia_env.json_text import read_json
from sotopia_env.policies import BestOfNPolicy
from sotopia_env.policies.policy import Policy
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.storage import read_run
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet
from training.attribution import stage as attribution
from training.attribution.credits import Method
from training.attribution.settings import AttributionSettings
from training.collect import filtering
from training.collect.selection import BCFilter, SRFilter
from training.data.samples import split_scenarios
from training.data.sources import SourceSettings
from training.fitting import behavior_cloning
from training.fitting.arguments import FitSettings
from training.grpo import stage as grpo
from training.grpo.settings import DevSettings, GRPOSettings, RewardSettings
from training.grpo.situations import SituationSettings
from training.models.policy import load
from training.proof.broken_answers import corrupted
from training.proof.episodes import play_all, seat_of
from training.proof.ranking import (
    RANKING,
    SAMPLES,
    Choice,
    measured_choices,
    ranked_pairs,
    reward_rows,
    sampled_tokens,
)
from training.proof.recipe import PROMPT, GroupSettings, Recipe
from training.proof.report import BUDGETS, PAST
from training.proof.results import past_results, results
from training.proof.speakers import PlainDealer
from training.proof.tasks import TaskSplit
from training.reward import model as reward_model
from training.reward import rows as reward_rows_stage
from training.reward.rows import RewardRowSettings
from training.reward.scorer import RewardScorer
from training.reward.text import ROWS
from training.stage.directory import DONE
from training.stage.settings import ModelSettings

logger = logging.getLogger(__name__)
FORCED, BROKEN = "forced.jsonl", "broken.jsonl"
"""The reward model's rows: measured moves, and answers that are none."""
PATIENT = "patient-dealer"
"""The name of the speaker that accepts nothing, in whose episodes moves are forced."""
CHOICES = "forced.json"
"""How many states the moves were forced in, and the tokens that were sampled for it."""
GOAL_ALONE, TURN_CREDIT, BEST_OF = "goal_alone", "turn_credit", "best_of_8"
EPISODES = ("multi_turn", GOAL_ALONE, TURN_CREDIT)
"""Stages that train on whole episodes."""
CREDITED: dict[Method, tuple[str, ...]] = {"uniform": (), "direct": ("acts",)}
"""Arms by method of attribution, with the attributors."""
EVALUATOR = "verified+rules"
VERIFIED = {"goal": 1.0, "financial_and_material_benefits": 1.0}
"""Weights of the verified scores in whole episodes: GOAL alone does not tell a bad deal from none, FIN does."""


@dataclass
class SeedRun:
    """One seed's stages.

    Attributes:
        recipe: numbers of the stages.
        base: directory of the base model.
        split: tasks.
        seed: of training.
        folder: where the stages lie.
    """

    recipe: Recipe
    base: Path
    split: TaskSplit
    seed: int
    folder: Path

    def run(self, only: Collection[str] | None = None) -> None:
        """Runs what is not done yet; afterwards ``results.json`` holds the figures of every test episode.

        Args:
            only: names of stages, as they are logged; ``None`` for all.
        """
        logging.getLogger("training").setLevel(logging.WARNING)
        started = time.perf_counter()
        for name, stage in self._stages():
            if only is not None and name not in only:
                continue
            begun = time.perf_counter()
            stage()
            logger.warning(
                "seed %d: %-16s %5.1f s (%.0f s in all)",
                self.seed,
                name,
                time.perf_counter() - begun,
                time.perf_counter() - started,
            )

    def _stages(self) -> Iterator[tuple[str, Callable[[], object]]]:
        yield "expert", self._record_expert
        yield "cloning", self._clone
        yield "own episodes", self._record_own
        yield "reinforcing", self._reinforce
        yield "patience", self._record_patience
        yield "forced moves", self._force_moves
        yield "reward model", self._reward_model
        yield "ranking", self._rank
        yield "grpo single-turn", self._single_turn
        yield "grpo multi-turn", lambda: self._play_episodes("multi_turn", _verified(VERIFIED))
        arms: dict[str, Callable[[], object]] = {
            "uniform": lambda: self._credited("uniform"),
            "direct": lambda: self._credited("direct"),
            GOAL_ALONE: lambda: self._play_episodes(GOAL_ALONE, _verified("goal")),
            TURN_CREDIT: lambda: self._play_episodes(
                TURN_CREDIT, _verified("goal", credit="counterfactual", samples=self.recipe.turn_samples)
            ),
        }
        yield from ((name, arms[name]) for name in self.recipe.arms if name in arms)
        yield "evaluation", self._evaluate

    def _at(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def policies(self) -> dict[str, str]:
        """Directory of every trained model by the stage's name in the report."""
        trained = {"bc": "cloning", "sr": "reinforcing", "single_turn": "single_turn", "multi_turn": "multi_turn"}
        trained |= {name: name for name in self.recipe.arms if name != BEST_OF}
        return {"untrained": str(self.base)} | {name: self._at(folder) for name, folder in trained.items()}

    # --- episodes ---------------------------------------------------------------------------------------------

    def _record(self, policy: Policy, tasks: Sequence[Task], output: str | None, repeats: int = 1) -> Sequence[Episode]:
        """Plays ``policy`` in both seats of every task against a seen partner, evaluated."""
        plans = []
        for number, settings in enumerate(self.recipe.training_partners):
            mine = tasks[number :: len(self.recipe.training_partners)]
            matchup = (policy, settings)
            plans += plan_episodes(mine, [matchup], repeats=repeats, rules=self._rules, seed=self.seed)
        return play_all(plans, default_evaluator(), output)

    @property
    def _rules(self) -> Rules:
        return Rules(max_turns=self.recipe.max_turns)

    def _tasks(self, count: int, purpose: str) -> list[Task]:
        return random.Random(f"{self.seed}:{purpose}").sample(self.split.train, count)

    def _record_expert(self) -> None:
        expert = PlainDealer(self.recipe.expert_patience, self.recipe.words)
        self._record(expert, self._tasks(self.recipe.expert_tasks, "expert"), self._at("expert"))

    def _record_own(self) -> None:
        tasks = self._tasks(self.recipe.own_tasks, "own")
        self._record(self._cloned(), tasks, self._at("own"), self.recipe.own_repeats)

    def _record_patience(self) -> None:
        """Episodes in which nothing is accepted: whoever accepts early never sees what comes later."""
        patient = PlainDealer(words=self.recipe.words, name=PATIENT)
        self._record(patient, self._tasks(self.recipe.forced_tasks, "forced"), self._at("patient"))

    def _cloned(self) -> Policy:
        return self._loaded(self._at("cloning"), "cloned")

    # --- SOTOPIA-π ----------------------------------------------------------------------------------------------

    def _clone(self) -> None:
        chosen = BCFilter(policies=("plain-dealer",), group="task")
        model = ModelSettings(base=str(self.base), lora=self.recipe.lora)
        self._supervise("cloning", model, None, self._selected("expert", "plain-dealer", chosen), self.recipe.cloning)

    def _reinforce(self) -> None:
        chosen = SRFilter(policies=("cloned",), group="scenario", minimum=1.0)
        model = ModelSettings(base="", lora=self.recipe.lora)
        data = self._selected("own", "cloned", chosen)
        self._supervise("reinforcing", model, self._at("cloning"), data, self.recipe.reinforcing)

    def _selected(self, run: str, policy: str, chosen: BCFilter | SRFilter) -> SourceSettings:
        """The turns of a run that are to be cloned."""
        filtered = self._at(f"{run}_filtered")
        filtering.run(filtering.FilteringSettings(runs=(self._at(run),), filter=chosen, output=filtered))
        return SourceSettings(run=self._at(run), selection=str(filtering.selection_path(filtered)))

    def _supervise(
        self, name: str, model: ModelSettings, start_from: str | None, data: SourceSettings, fit: FitSettings
    ) -> None:
        behavior_cloning.run(
            behavior_cloning.BehaviorCloningSettings(
                model=model,
                start_from=start_from,
                prompt=PROMPT,
                data=(data,),
                validation=0,
                rows="conversations",
                output=self._at(name),
                trainer=self._seeded(fit),
            )
        )

    def _seeded(self, fit: FitSettings, **values: JsonValue) -> dict[str, JsonValue]:
        return fit.adjusted(seed=self.seed, **values)

    # --- SOTOPIA-RL ---------------------------------------------------------------------------------------------

    def _force_moves(self) -> None:
        rows = self.folder / FORCED
        if not rows.exists():
            episodes = tuple(read_run(self._at("patient")))
            choices = self._choices(episodes, PATIENT, self.recipe.forced_samples)
            held_out = split_scenarios([episode.task.id for episode in episodes], 0.1, self.seed).validation
            sampled = sum(choice.tokens for choice in choices)
            write_text_atomically(self.folder / CHOICES, json.dumps({"choices": len(choices), "tokens": sampled}))
            write_text_atomically(rows, "".join(reward_rows(choices, PROMPT, held_out)))

    def _choices(self, episodes: Sequence[Episode], name: str, samples: int) -> tuple[Choice, ...]:
        """The choices of a policy in its episodes, measured by playing on with the clone."""
        return asyncio.run(measured_choices(episodes, name, self._cloned(), samples, self.recipe.words))

    def _reward_model(self, rows: str = FORCED, broken: str = BROKEN, output: str = "reward_model") -> None:
        # Broken answers of these very rows: others may hold a scenario in training that is held out here.
        if not (self.folder / broken).exists():
            lines = corrupted(self.folder / rows, self.recipe.corrupted, self.seed)
            write_text_atomically(self.folder / broken, "".join(lines))
        reward_model.run(
            reward_model.RewardModelSettings(
                model=ModelSettings(base=str(self.base), lora=None),
                prompt=PROMPT,
                rows=(self._at(rows), self._at(broken)),
                output=self._at(output),
                trainer=self._seeded(self.recipe.reward_model),
            )
        )

    def _rank(self) -> None:
        output = self.folder / RANKING
        if not output.exists():
            scorer = RewardScorer.load(self._at("reward_model"), batch_size=64)
            episodes = self._record(self._cloned(), self.split.dev, None)
            pairs = asyncio.run(ranked_pairs(self._choices(episodes, "cloned", SAMPLES), scorer))
            write_text_atomically(output, json.dumps(pairs) + "\n")

    def _single_turn(self, output: str = "single_turn", scored_by: str = "reward_model") -> None:
        self._optimise(
            output,
            self.recipe.single_turn,
            mode="single-turn",
            data=(SourceSettings(run=self._at("patient"), seats=(f"policy:{PATIENT}",)),),
            reward=RewardSettings(model=self._at(scored_by), scalarisation=VERIFIED, invalid=0.0),
            scale_rewards="none",
        )

    def _play_episodes(self, output: str, reward: RewardSettings) -> None:
        group = self.recipe.multi_turn
        tasks = self.folder / "multi_turn_tasks.jsonl"
        if not tasks.exists():
            TaskSet(self._tasks(group.prompts, "multi")).save(tasks)
        situations = self._situations(str(tasks), self.seed)
        self._optimise(output, group, mode="multi-turn", situations=situations, reward=reward)

    def _credited(self, method: Method) -> None:
        """SOTOPIA-RL as the paper has it: the clone's episodes, attributed; then a reward model, then GRPO with it."""
        attributed, rows, scored_by = (f"{method}_{name}" for name in ("attribution", "rows", "reward_model"))
        broken = f"{method}_{BROKEN}"
        runs = (self._at("own"),)
        attribution.run(
            AttributionSettings(
                runs=runs,
                seats=("policy:cloned",),
                dimensions=("goal",),
                attributors=CREDITED[method],
                methods=(method,),
                sign="shifted",
                output=self._at(attributed),
            )
        )
        reward_rows_stage.run(
            RewardRowSettings(
                attributions=self._at(attributed),
                runs=runs,
                method=method,
                weights={"goal": 1.0},
                seed=self.seed,
                prompt=PROMPT,
                output=self._at(rows),
            )
        )
        self._reward_model(f"{rows}/{ROWS}", broken, scored_by)
        self._single_turn(method, scored_by)

    def _optimise(self, name: str, group: GroupSettings, scale_rewards: str = "group", **more: Any) -> None:
        dev = self.folder.parent / "dev_tasks.jsonl"
        situations = self._situations(str(dev), 0)
        grpo.run(
            GRPOSettings(
                start_from=self._at("cloning"),
                lora=self.recipe.lora,
                dev=DevSettings(
                    situations=situations,
                    temperature=self.recipe.temperature,
                    every=group.every,
                ),
                check_memory=False,
                output=self._at(name),
                trainer=self._seeded(
                    group.fit,
                    num_generations=group.num_generations,
                    temperature=group.temperature,
                    scale_rewards=scale_rewards,
                ),
                **more,
            )
        )

    def _situations(self, tasks: str, seed: int) -> SituationSettings:
        return SituationSettings(
            tasks=tasks, partners=self.recipe.training_partners, max_turns=self.recipe.max_turns, seed=seed
        )

    # --- evaluation ---------------------------------------------------------------------------------------------

    def _evaluate(self) -> None:
        test, recipe = self.split.test, self.recipe
        self._test("results.json", lambda policy: results(policy, test, recipe, seed=0))
        if recipe.past_selves:
            past = self._loaded(self._at("cloning"), "past")
            self._test(PAST, lambda policy: past_results(policy, past, test[::3], recipe, seed=0))
        write_text_atomically(self.folder / BUDGETS, json.dumps(self._budgets()) + "\n")

    def _test(self, file: str, play: Callable[[Policy], list[dict[str, Any]]]) -> None:
        """Plays the stages that a file of results does not hold yet, and adds them."""
        output = self.folder / file
        rows = read_json(output) if output.exists() else {}
        # The untrained model is one for all seeds and is played once for all; see `learn`.
        for name in (*self.policies, *self.recipe.arms):
            if name not in rows and name != "untrained":
                rows[name] = play(self._player(name))
                write_text_atomically(output, json.dumps(rows) + "\n")

    def _player(self, name: str) -> Policy:
        if name == BEST_OF:
            return BestOfNPolicy(self._cloned(), 8, RewardScorer.load(self._at("reward_model"), batch_size=64))
        return self._loaded(self.policies[name], name)

    def _budgets(self) -> dict[str, int]:
        """Tokens that the model sampled for its training, by stage; cloning sampled none."""
        forced, own = int(read_json(self.folder / CHOICES)["tokens"]), self._sampled("own", "cloned")
        before = {"sr": own, "single_turn": forced, BEST_OF: forced}
        before |= dict.fromkeys(EPISODES, 0) | dict.fromkeys(CREDITED, own)
        ran = [name for name in before if name in (*self.policies, *self.recipe.arms)]
        return {name: before[name] + self._optimised(name) for name in ran}

    def _sampled(self, run: str, policy: str) -> int:
        return sum(sampled_tokens(episode, seat_of(episode, policy)) for episode in read_run(self._at(run)))

    def _optimised(self, name: str) -> int:
        """Tokens that were sampled in GRPO, none for stages without it."""
        file = self.folder / name / DONE
        if not file.exists():
            return 0
        figures = read_json(file)
        group = self.recipe.multi_turn if name in EPISODES else self.recipe.single_turn
        logged = [
            row["completions/mean_length"] + row.get("episodes/branch_tokens", 0.0)
            for row in figures["log"]
            if "completions/mean_length" in row
        ]
        return round(fmean(logged) * figures["steps"] * group.fit.trainer["per_device_train_batch_size"])

    def _loaded(self, directory: str, name: str) -> Policy:
        return load(directory, name=name, temperature=self.recipe.temperature, max_batch=128, constrained="off")


def _verified(scalarisation: str | dict[str, float], **credit: Any) -> RewardSettings:
    """The reward of whole episodes."""
    return RewardSettings(evaluator=EVALUATOR, scalarisation=scalarisation, invalid=-1.0, **credit)
