"""Writes a scenario with an exact reward, shows its reference points, and plays it.

python examples/own_scenario.py
"""

import asyncio
from pathlib import Path

from sotopia_env import tasks
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.world.outcome import references

SCENARIO = """
- id: garden
  context: Two neighbours share a garden and meet at the fence to settle who waters it, and what becomes of the shed.
  constraints: {relationships: [acquaintance]}
  seats:
    - goals: ["Water on few days (each costs you 1 point). A studio in the shed is worth 6. No agreement: 0."]
    - goals: ["Water on few days (each costs you 2 points). A store in the shed is worth 3. No agreement: -9."]
  outcome:
    protocol: {kind: agreement}
    issues:
      - {name: days of watering, kind: items, count: 7}
      - {name: shed, kind: choice, options: [studio, store]}
    worth:
      - {issues: {days of watering: {each: -1}, shed: {studio: 6, store: 0}}, no_agreement: 0}
      - {issues: {days of watering: {each: -2}, shed: {studio: 0, store: 3}}, no_agreement: -9}
"""


def main() -> None:
    """Loads, measures and plays the scenario."""
    path = Path("garden.yaml")
    path.write_text(SCENARIO, encoding="utf-8")
    (task, *_) = tasks.load(path)
    points = references(task)
    print("outcomes:", points.size, " best:", points.best, " Nash:", points.nash, "with", points.nash_terms)
    plans = plan_episodes([task], [("boulware", "conceder")])
    for episode in asyncio.run(run_episodes(plans, evaluator=VerifiedOutcome(), progress=False)).episodes:
        print([policy.name for policy in episode.policies], episode.evaluations[-1].outcome)


if __name__ == "__main__":
    main()
