"""Plays a language model against a script, and prints what it cost; without a server, a scripted model answers.

python examples/language_model.py
python examples/language_model.py local/my-model http://localhost:8000/v1
"""

import asyncio
import sys

from sotopia_env import tasks
from sotopia_env.chat_model import make_model
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.policies import LLMPolicy
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.testing import ScriptedChatModel


def main(arguments: list[str]) -> None:
    """Plays two bargains in both seats."""
    if arguments:
        name, api_base = arguments
        model = make_model(name, api_base=api_base)
    else:
        model = ScriptedChatModel(lambda _: '{"action_type": "speak", "argument": "And?", "move": {"accept": true}}')
    plans = plan_episodes(tasks.generate("bargaining", 2, seed=1), [(LLMPolicy(model), "conceder")])
    for episode in asyncio.run(run_episodes(plans, evaluator=VerifiedOutcome(), progress=False)).episodes:
        refused = sum(bool(turn.violation) for turn in episode.plain_turns)
        outcome = episode.evaluations[-1].outcome
        print(episode.stop, len(episode.turns), "turns,", refused, "did not count; shares", outcome and outcome.shares)


if __name__ == "__main__":
    main(sys.argv[1:])
