"""Foreign records in the exact shapes of their files; all people and events in them are invented."""

import json
from pathlib import Path
from typing import Any

from sotopia_env.foundation.records import Record
from sotopia_env.importers.conversion import Conversion
from sotopia_env.importers.exporting import export_records
from sotopia_env.importers.foreign import Product
from sotopia_env.importers.registry import formats

AGENT = {
    "pk": "01EXAMPLEAGENT000000000001",
    "first_name": "Tova",
    "last_name": "O'Brandt",
    "age": 37,
    "occupation": "Tram Driver",
    "gender": "Woman",
    "gender_pronoun": "She/her",
    "public_info": "Tova repairs old radios.",
    "big_five": "Openness to Experience - High; Conscientiousness - Low; Extraversion - Low; Agreeableness - High; "
    "Neuroticism - Low",
    "moral_values": ["Care/Harm", "Fairness"],
    "schwartz_personal_values": ["Security", "Self-direction"],
    "personality_and_values": "Calm\nand curious.",
    "decision_making_style": "Analytical",
    "secret": "Tova failed her first licence test.",
    "model_id": "",
    "mbti": "ISTJ",
    "tag": "",
}
# JSON Lines of another export: the id's other name, no tag, nothing in many forms, one value that is not listed.
AGENT_LINE = {
    "agent_id": "A2",
    "first_name": "Ilan",
    "last_name": "Moss",
    "age": "52",
    "occupation": "Baker",
    "gender": None,
    "gender_pronoun": "",
    "big_five": "",
    "moral_values": "['Loyalty', 'Sportsmanship']",
    "schwartz_personal_values": "nan",
    "decision_making_style": "by feeling",
    "hobby": "darts",
}
AGENT_UNKNOWN = {"pk": "A3", "first_name": "Uma", "secret": "", "age": 0}
ENVIRONMENT = {
    "pk": "01EXAMPLEENV0000000000001",
    "codename": "umbrella_1",
    "source": "hand-craft",
    "scenario": 'Two colleagues share one umbrella.\nIt rains.<p viewer="environment">The bus is late.</p>'
    "<p viewer='agent_1'>Your bus goes at six.</p>",
    "agent_goals": [
        "Keep the umbrella <extra_info>You have a cold</extra_info> <strategy_hint>Cough</strategy_hint>",
        "Borrow the umbrella <clarification_hint>For an hour</clarification_hint>",
    ],
    "relationship": 2,
    "age_constraint": "[(18, 70), (18, 70)]",
    "occupation_constraint": "nan",
    "agent_constraint": None,
    "game_metadata": None,
    "tag": "",
}
ENVIRONMENT_LINE = {
    "env_id": "E2",
    "codename": "stage",
    "scenario": "Two actors wait backstage.",
    "agent_goals": ["Go first.", "Go first, too."],
    "relationship": "3",
    "age_constraint": "[(20, 60)]",
    "occupation_constraint": "[actor, actor]",
    "agent_constraint": "none",
}
RELATIONSHIP = {
    "pk": "R1",
    "agent_1_id": "A2",
    "agent_2_id": AGENT["pk"],
    "relationship": 2,
    "background_story": "They met\nat a chess club.",
    "tag": "",
}
RELATIONSHIP_LINE = {
    "relationship_id": "R2",
    "agent1_id": "A2",
    "agent2_id": "A3",
    "relationship": "0",
    "background_story": "Nothing much.",
}
COMBINATION = {"pk": "C1", "env_id": ENVIRONMENT["pk"], "agent_ids": [AGENT["pk"], "A2"]}
COMBINATION_LINE = {"combo_id": "C2", "env_id": "E2", "agent_ids": "['A2', 'A3']"}
LIST = {"pk": "L1", "name": "mine", "environments": ["E2", "E2", ENVIRONMENT["pk"]], "agent_index": ["0", "1", "0"]}

TOVA, ILAN = "Tova O'Brandt", "Ilan Moss"
_TOLD = "\nHere is the context of this interaction:\nScenario: Two colleagues share one umbrella.\nIt rains.\n"
OPENINGS = (
    f"{_TOLD}Participants: {TOVA} and {ILAN}\n{TOVA}'s background: Tova is a tram driver.\n{ILAN}'s background: Ilan "
    f"is a baker.\n{TOVA}'s goal: Keep the umbrella <extra_info>You have a cold</extra_info>\n{ILAN}'s goal: Unknown\n"
    "Conversation Starts:\n",
    f"{_TOLD}Participants: {TOVA} and {ILAN}\n{TOVA}'s background: Unknown\n{ILAN}'s background: Ilan is a baker. "
    f"Ilan's secrets: he dislikes bread.\n{TOVA}'s goal: Unknown\n{ILAN}'s goal: Borrow the umbrella\n"
    "Conversation Starts:\n",
)
SCORES = {
    "believability": 8,
    "relationship": 0,
    "knowledge": 2,
    "secret": 0,
    "social_rules": 0,
    "financial_and_material_benefits": 0,
    "goal": 4,
    "overall_score": 2.0,
}
REASONING = (
    "Environment comments: terminated: Agent 2 is leaving; \nAgent 1 comments:\nbelievability: fine\nand in character\n"
    "goal: partly\nAgent 2 comments:\ngoal: no\n"
)


def messages(*steps: tuple[str, str]) -> list[Any]:
    """Steps of (first action, second action), with what the environment says before and after."""
    notices, result = list(OPENINGS), []
    for number, step in enumerate(steps):
        environment = [["Environment", name, notices[seat]] for seat, name in enumerate((TOVA, ILAN))]
        result.append([*environment, [TOVA, "Environment", step[0]], [ILAN, "Environment", step[1]]])
        acts = [(TOVA, step[0]), (ILAN, step[1])]
        summary = "; ".join(f"{name} {text.strip()}" for name, text in acts if text.strip() != "did nothing")
        notices = [f"Turn #{number}: {summary}\n"] * 2
    return [*result, [["Environment", name, notices[seat]] for seat, name in enumerate((TOVA, ILAN))]]


NOTHING = "did nothing"
STEPS = (
    (' said: "It is pouring.\n\nAnd "cold", too."', NOTHING),
    (NOTHING, "[non-verbal communication] shivers"),
    ("[action] opens the umbrella", NOTHING),
    (NOTHING, 'said: "I did nothing wrong."'),
    (NOTHING, NOTHING),
    (NOTHING, "left the conversation"),
)


def log(**changes: Any) -> dict[str, Any]:
    """An ``EpisodeLog``."""
    return {
        "pk": "01EXAMPLEEPISODE",
        "environment": ENVIRONMENT["pk"],
        "agents": [AGENT["pk"], "A2"],
        "tag": "demo",
        "models": ["judge-m", "m1", "m2"],
        "agent_classes": [],
        "messages": messages(*STEPS),
        "reasoning": REASONING,
        "rewards": [[2.0, SCORES], [16 / 7, {**SCORES, "relationship": 2, "overall_score": 16 / 7}]],
        "rewards_prompt": "",
        **changes,
    }


def line(**changes: Any) -> dict[str, Any]:
    """A published line."""
    rewards = log()["rewards"]
    return {
        "episode_id": "E-1",
        "environment_id": ENVIRONMENT["pk"],
        "agent_ids": [AGENT["pk"], "A2"],
        "experiment_tag": "demo",
        "experiment_model_name_pairs": ["gpt-4", "gpt-4", "gpt-3.5-turbo"],
        "raw_messages": messages(*STEPS),
        "raw_rewards": rewards,
        "raw_rewards_prompt": "",
        "scenario": "Two colleagues share one umbrella.",
        "codename": "umbrella_1",
        "agents_background": {TOVA: "Tova is a tram driver.\nTova's secrets: none", ILAN: "Ilan is a baker."},
        "social_goals": {TOVA: "Keep it. <strategy_hint>Cough</strategy_hint>", ILAN: "Borrow it."},
        "social_interactions": "\n\n".join(
            (
                f'{TOVA} said: "It is pouring.\n\nAnd "cold", too."',
                f"{ILAN}: [non-verbal communication] shivers",
                f"{TOVA}: [action] opens the umbrella",
                f'{ILAN} said: "I did nothing wrong."',
                f"{ILAN} left the conversation",
            )
        ),
        "reasoning": REASONING,
        "rewards": rewards,
        **changes,
    }


def write(path: Path, records: list[Any]) -> Path:
    """Writes JSON Lines, or an array into a ``.json`` file, or lines of text into a ``.txt`` file."""
    if path.suffix == ".json":
        path.write_text(json.dumps(records, indent=1), encoding="utf-8")
    else:
        texts = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def convert(folder: Path, *files: list[Any], keep_going: bool = False) -> tuple[list[Product], Conversion]:
    """What files of these records become, each beginning a new file."""
    paths = [write(folder / f"{number}.jsonl", records) for number, records in enumerate(files)]
    conversion = Conversion(paths, keep_going=keep_going)
    return list(conversion.products()), conversion


def again(folder: Path, name: str) -> list[Any]:
    """What the records of an import become when they are written in a format and read once more, as JSON."""
    back = folder / f"again-{name}.json"
    export_records(folder / "out", back, format=name)
    conversion = Conversion([back])
    kind = formats()[name].kind
    return [plain(product.value) for product in conversion.products() if product.kind is kind]


def plain(record: Any) -> Any:
    """A record as JSON."""
    return record.model_dump(mode="json") if isinstance(record, Record) else record
