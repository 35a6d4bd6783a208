"""The stages of one training seed: collect, clone, reinforce, attribute, reward model, both kinds of GRPO, tests.

The training stages are those that users run, with a YAML file of this folder, on a tiny model; the tasks, the
scripted speakers and the forced moves are the study's own. Each is a directory and is skipped when it is complete. They
run in one process, since importing TRL takes longer than some of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import JsonValue
from sotopia_training.commands import STAGES
from sotopia_training.data.samples import split_scenarios
from sotopia_training.models.policy import load
from sotopia_training.reward.scorer import RewardScorer
from sotopia_training.reward.text import ROWS
from sotopia_training.stage.directory import DONE, STAGE

from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import read_json
from sotopia_env.foundation.settings import read_settings
from sotopia_env.policies import BestOfNPolicy
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.storage import read_run
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.policy import Policy
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet
from studies.learn.broken_answers import corrupted
from studies.learn.episodes import play_all, seat_of
from studies.learn.ranking import (
    RANKING,
    SAMPLES,
    Choice,
    measured_choices,
    ranked_pairs,
    reward_rows,
    sampled_tokens,
)
from studies.learn.recipe import PROMPT, Recipe
from studies.learn.report import BUDGETS, PAST
from studies.learn.results import past_results, results
from studies.learn.speakers import PlainDealer
from studies.learn.tasks import TaskSplit

logger = logging.getLogger(__name__)
FORCED, BROKEN = "forced.jsonl", "broken.jsonl"
"""The files of the reward model's rows: measured moves, and broken answers."""
PATIENT = "patient-dealer"
"""The name of the speaker that never accepts; moves are forced in its episodes."""
CHOICES = "forced.json"
"""The file with the number of states in which moves were forced, and of the tokens sampled for it."""
MEASURED, GOAL_ALONE, TURN_CREDIT, BEST_OF = "measured", "goal_alone", "turn_credit", "best_of_8"
EPISODES = ("multi_turn", GOAL_ALONE, TURN_CREDIT)
"""Stages that train on whole episodes."""
FILES = Path(__file__).parent.absolute()
"""The directory of the stages' YAML files."""


@dataclass
class SeedRun:
    """One seed's stages.

    Attributes:
        recipe: the numbers and names of the recipe.
        base: the directory of the base model, ``../base/model`` from ``folder``.
        split: the tasks.
        seed: the training seed.
        folder: the directory of the stages, as an absolute path.
    """

    recipe: Recipe
    base: Path
    split: TaskSplit
    seed: int
    folder: Path

    def run(self, only: Collection[str] | None = None) -> None:
        """Runs the incomplete stages; afterwards ``results.json`` holds the figures of every test episode.

        Args:
            only: names of stages, as they are logged; ``None`` for all.
        """
        logging.getLogger("sotopia_training").setLevel(logging.WARNING)
        started = time.perf_counter()
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, stage in self.stages():
            if only is not None and name not in only:
                continue
            begun = time.perf_counter()
            # Directories in the YAML files are relative to the seed's.
            with contextlib.chdir(self.folder):
                stage()
            logger.warning(
                "seed %d: %-16s %5.1f s (%.0f s in all)",
                self.seed,
                name,
                time.perf_counter() - begun,
                time.perf_counter() - started,
            )

    def stages(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yields the stages in their order, each with its name."""
        yield "expert", self._record_expert
        yield "expert filtered", lambda: self._stage("filter", "expert_filtered", seeded=None)
        yield "cloning", lambda: self._stage("bc", "cloning")
        yield "own episodes", self._record_own
        yield "own filtered", lambda: self._stage("filter", "own_filtered", seeded=None)
        yield "reinforcing", lambda: self._stage("sr", "reinforcing")
        yield "patience", self._record_patience
        yield "reward model", lambda: self._attributed_reward_model("uniform", (), "reward_model")
        yield "ranking", self._rank
        yield "grpo single-turn", self._single_turn
        yield "grpo multi-turn", self._play_episodes
        samples = self.recipe.turn_samples
        arms: dict[str, Callable[[], object]] = {
            MEASURED: self._measured,
            "direct": self._direct,
            GOAL_ALONE: lambda: self._play_episodes(GOAL_ALONE, scalarisation="goal"),
            TURN_CREDIT: lambda: self._play_episodes(
                TURN_CREDIT, scalarisation="goal", turns="counterfactual", samples=samples
            ),
        }
        yield from ((name, arms[name]) for name in self.recipe.arms if name in arms)
        yield "evaluation", self._evaluate

    def _stage(
        self, stage: str, config: str, changes: Mapping[str, Any] | None = None, seeded: str | None = "trainer.seed"
    ) -> None:
        """Runs a stage with a file of this package.

        Args:
            stage: the stage's name in :data:`sotopia_training.commands.STAGES`.
            config: the name of the file, without its suffix.
            changes: settings that replace the file's, by key.
            seeded: the setting that takes this seed.
        """
        # The recipe's changes come last: they replace both the file's settings and the study's.
        own = {} if seeded is None else {seeded: self.seed}
        settings = {**own, **(changes or {}), **self.recipe.changes.get(config, {})}
        command = STAGES[stage]()
        overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        command.run(read_settings(FILES / f"{config}.yaml", command.settings, overrides))

    @property
    def policies(self) -> dict[str, str]:
        """Directory of every trained model by the stage's name in the report."""
        trained = {"bc": "cloning", "sr": "reinforcing", "single_turn": "single_turn", "multi_turn": "multi_turn"}
        trained |= {name: name for name in self.recipe.arms if name != BEST_OF}
        return {"untrained": str(self.base)} | {name: str(self.folder / folder) for name, folder in trained.items()}

    # --- episodes ---------------------------------------------------------------------------------------------

    def _record(self, policy: Policy, tasks: Sequence[Task], output: str | None, repeats: int = 1) -> Sequence[Episode]:
        """Plays ``policy`` in both seats of every task against a seen partner, evaluated."""
        plans = []
        for number, settings in enumerate(self.recipe.training_partners):
            mine = tasks[number :: len(self.recipe.training_partners)]
            matchup = (policy, settings)
            plans += plan_episodes(mine, [matchup], repeats=repeats, rules=self.recipe.rules, seed=self.seed)
        return play_all(plans, VerifiedOutcome(), output)

    def _tasks(self, count: int, purpose: str) -> list[Task]:
        return random.Random(f"{self.seed}:{purpose}").sample(self.split.train, count)

    def _record_expert(self) -> None:
        expert = PlainDealer(self.recipe.expert_patience, self.recipe.words)
        self._record(expert, self._tasks(self.recipe.expert_tasks, "expert"), "expert")

    def _record_own(self) -> None:
        tasks = self._tasks(self.recipe.own_tasks, "own")
        self._record(self._cloned(), tasks, "own", self.recipe.own_repeats)

    def _record_patience(self) -> None:
        """Episodes in which nothing is accepted, so that states late in an episode occur, too."""
        patient = PlainDealer(words=self.recipe.words, name=PATIENT)
        self._record(patient, self._tasks(self.recipe.forced_tasks, "forced"), "patient")

    def _cloned(self) -> Policy:
        return self._loaded("cloning", "cloned")

    # --- SOTOPIA-RL ---------------------------------------------------------------------------------------------

    def _force_moves(self) -> None:
        rows = Path(FORCED)
        if not rows.exists():
            episodes = tuple(read_run("patient"))
            choices = self._choices(episodes, PATIENT, self.recipe.forced_samples)
            held_out = split_scenarios([episode.task.id for episode in episodes], 0.1, self.seed).validation
            sampled = sum(choice.tokens for choice in choices)
            write_text_atomically(Path(CHOICES), json.dumps({"choices": len(choices), "tokens": sampled}))
            write_text_atomically(rows, "".join(reward_rows(choices, PROMPT, held_out)))

    def _choices(self, episodes: Sequence[Episode], name: str, samples: int) -> tuple[Choice, ...]:
        """The choices of a policy in its episodes, measured by playing on with the clone."""
        return asyncio.run(measured_choices(episodes, name, self._cloned(), samples, self.recipe.words))

    def _reward_model(self, rows: str, broken: str, output: str) -> None:
        # Broken answers are made from these rows only: other rows may contain scenarios that are held out here.
        if not Path(broken).exists():
            lines = corrupted(Path(rows), self.recipe.corrupted, self.seed)
            write_text_atomically(Path(broken), "".join(lines))
        self._stage("rm", "reward_model", {"rows": [rows, broken], "output": output})

    def _rank(self) -> None:
        output = Path(RANKING)
        if not output.exists():
            scorer = RewardScorer.load("reward_model", batch_size=64)
            episodes = self._record(self._cloned(), self.split.dev, None)
            pairs = asyncio.run(ranked_pairs(self._choices(episodes, "cloned", SAMPLES), scorer))
            write_text_atomically(output, json.dumps(pairs) + "\n")

    def _single_turn(self, output: str = "single_turn", scored_by: str = "reward_model") -> None:
        self._grpo("single_turn", output, {"reward.model": scored_by})

    def _play_episodes(self, output: str = "multi_turn", **reward: JsonValue) -> None:
        tasks = Path("multi_turn_tasks.jsonl")
        if not tasks.exists():
            TaskSet(self._tasks(self.recipe.prompts, "multi")).save(tasks)
        changes = {f"reward.{key}": value for key, value in reward.items()}
        self._grpo("multi_turn", output, {"situations.seed": self.seed, **self._partners("situations"), **changes})

    def _grpo(self, config: str, output: str, changes: Mapping[str, Any]) -> None:
        dev = {"dev.temperature": self.recipe.temperature, **self._partners("dev.situations")}
        self._stage("grpo", config, {**dev, "output": output, **changes})

    def _partners(self, situations: str) -> dict[str, Any]:
        """The recipe's partners and rules, which the episodes of all other stages have, too."""
        partners, rules = list(self.recipe.training_partners), self.recipe.rules
        values = {"partners": partners, "max_turns": rules.max_turns, "worths": rules.worths}
        return {f"{situations}.{name}": value for name, value in values.items()}

    def _attributed_reward_model(self, method: str, attributors: Sequence[str], output: str) -> None:
        """The reward model of SOTOPIA-RL: on the clone's own episodes, whose scores are attributed to their turns."""
        attributed, rows = f"{method}_attribution", f"{method}_rows"
        ways = {"methods": [method], "attributors": list(attributors)}
        self._stage("attribute", "attribution", {"output": attributed, **ways}, seeded=None)
        combined = {"attributions": attributed, "method": method, "output": rows}
        self._stage("rewards", "rows", combined, seeded="seed")
        self._reward_model(f"{rows}/{ROWS}", f"{method}_{BROKEN}", output)

    def _direct(self) -> None:
        self._attributed_reward_model("direct", ("acts",), "direct_reward_model")
        self._single_turn("direct", "direct_reward_model")

    def _measured(self) -> None:
        """A reward model of moves whose values were measured by playing on, instead of attributed episodes."""
        self._force_moves()
        self._reward_model(FORCED, BROKEN, "measured_reward_model")
        self._single_turn(MEASURED, "measured_reward_model")

    # --- evaluation ---------------------------------------------------------------------------------------------

    def _evaluate(self) -> None:
        test, recipe = self.split.test, self.recipe
        self._test("results.json", lambda policy: results(policy, test, recipe, seed=0))
        if recipe.past_selves:
            past = self._loaded("cloning", "past")
            self._test(PAST, lambda policy: past_results(policy, past, test[::3], recipe, seed=0))
        write_text_atomically(Path(BUDGETS), json.dumps(self._budgets()) + "\n")

    def _test(self, file: str, play: Callable[[Policy], list[dict[str, Any]]]) -> None:
        """Plays the stages that are missing from a file of results, and adds them."""
        output = Path(file)
        rows = read_json(output) if output.exists() else {}
        # The untrained model is the same for all seeds and is played once; see `learn`.
        for name in (*self.policies, *self.recipe.arms):
            if name not in rows and name != "untrained":
                rows[name] = play(self._player(name))
                write_text_atomically(output, json.dumps(rows) + "\n")

    def _player(self, name: str) -> Policy:
        if name == BEST_OF:
            return BestOfNPolicy(self._cloned(), 8, RewardScorer.load("reward_model", batch_size=64))
        return self._loaded(self.policies[name], name)

    def _budgets(self) -> dict[str, int]:
        """The number of tokens that the model sampled for its training, by stage; cloning sampled none."""
        own = self._sampled("own", "cloned")
        # Tokens sampled before the stage itself: own episodes, or continuations of forced moves.
        before = dict.fromkeys(("sr", "single_turn", "direct", BEST_OF), own) | dict.fromkeys(EPISODES, 0)
        if MEASURED in self.recipe.arms:
            before[MEASURED] = int(read_json(CHOICES)["tokens"])
        ran = [name for name in before if name in (*self.policies, *self.recipe.arms)]
        return {name: before[name] + self._optimised(name) for name in ran}

    def _sampled(self, run: str, policy: str) -> int:
        return sum(sampled_tokens(episode, seat_of(episode, policy)) for episode in read_run(run))

    def _optimised(self, name: str) -> int:
        """The number of tokens sampled in GRPO; 0 for stages without it."""
        file = Path(name) / DONE
        if not file.exists():
            return 0
        figures, trainer = read_json(file), read_json(Path(name) / STAGE)["settings"]["trainer"]
        # The log has mean lengths, so tokens are mean length × answers; continuations of turns are counted apart.
        logged = [
            row["completions/mean_length"] + row.get("episodes/continuation_tokens", 0.0)
            for row in figures["log"]
            if "completions/mean_length" in row
        ]
        return round(fmean(logged) * float(figures["steps"]) * float(trainer["per_device_train_batch_size"]))

    def _loaded(self, directory: str, name: str) -> Policy:
        return load(directory, name=name, temperature=self.recipe.temperature, max_batch=128, constrained="off")
