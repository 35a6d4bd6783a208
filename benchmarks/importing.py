"""Importing SOTOPIA's episodes: time as a ratio of ``json.loads`` of the same lines, and episodes a minute."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, cpu_rounds
from sotopia_env.importers.importing import import_files

EPISODES, STEPS = 60, 20
NAMES = ("Ada Ek", "Bo Lind")


def log(number: int) -> dict[str, Any]:
    """An ``EpisodeLog`` of twenty turns with scores and reasoning."""
    observations = [
        f"\nScenario: Two neighbours share garden {number % 20}.\n{name}'s background: {name} gardens.\n"
        f"{name}'s goal: Plant what you like.\nConversation Starts:\n"
        for name in NAMES
    ]
    messages = []
    # As in SOTOPIA's logs: in every step both seats read the environment and answer it, one of them with nothing.
    for step in range(STEPS):
        words = f'said: "I would rather plant beans in bed {step}, and I say why at some length, as people do."'
        texts = [words if seat == step % 2 else "did nothing" for seat in (0, 1)]
        environment = [["Environment", name, observations[seat]] for seat, name in enumerate(NAMES)]
        messages.append([*environment, *([name, "Environment", texts[seat]] for seat, name in enumerate(NAMES))])
        observations = [f"Turn #{step}: {NAMES[step % 2]} {words}\n"] * 2
    messages.append([["Environment", name, observations[seat]] for seat, name in enumerate(NAMES)])
    scores = {"believability": 9, "relationship": 2, "knowledge": 3, "secret": 0, "social_rules": 0}
    scores |= {"financial_and_material_benefits": 1, "goal": 7, "overall_score": 22 / 7}
    return {
        "pk": f"E{number}",
        "environment": f"garden-{number % 20}",
        "agents": ["A1", "A2"],
        "tag": "bench",
        "models": ["judge", "m1", "m2"],
        "messages": messages,
        "reasoning": "Environment comments: over\nAgent 1 comments:\ngoal: well done\nAgent 2 comments:\ngoal: too\n",
        "rewards": [[22 / 7, scores], [22 / 7, scores]],
        "rewards_prompt": "",
    }


def figures() -> list[Figure]:
    """The ratio, and episodes a minute on one core."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logs.jsonl"
        texts = [json.dumps(log(number)) for number in range(EPISODES)]
        file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")

        def read() -> int:
            return sum(1 for text in texts if json.loads(text))

        def convert() -> int:
            return import_files([file], Path(folder) / "out", progress=False).written["episodes.jsonl"]

        times = cpu_rounds({"json": read, "import": convert}, rounds=3)
    return [
        Figure("import of an episode log / json.loads of its line", times["import"] / times["json"], "x", 60),
        Figure("episode logs imported in a minute of CPU", 60e6 / times["import"], "episodes", 5_000, at_most=False),
    ]
