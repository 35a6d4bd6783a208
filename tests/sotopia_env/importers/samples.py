"""A record or several of every format, as its files have them, and values of no format."""

import contextlib
from typing import Any

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.importers.conversion import Conversion
from tests.sotopia_env.importers import records
from tests.sotopia_env.importers.test_social_reasoning import calendar, marketplace
from tests.sotopia_env.importers.test_training_files import AMPO_RESULT, AMPO_ROW, ANNOTATED, ROWS, SCENE

_TEXTS = {
    "description": "{{char}} repairs radios and teases {{user}}.",
    "personality": "calm",
    "scenario": "A workshop.",
    "first_mes": "Hello, {{user}}.",
    "mes_example": "<START>{{char}}: Hm.",
}
CARD = {
    "spec": "chara_card_v2",
    "spec_version": "2.0",
    "data": {
        "name": "Tova Brandt",
        **_TEXTS,
        "creator_notes": "",
        "tags": [],
        "character_book": None,
        "extensions": {},
    },
    "name": "Tova Brandt",
    **_TEXTS,
    "create_date": "2026",
}
FLAT_CARD = {"name": "Tova Brandt", **_TEXTS}
PYGMALION_CARD = {
    "char_name": "Tova Brandt",
    "char_persona": _TEXTS["description"],
    "world_scenario": "A workshop.",
    "char_greeting": "Hello.",
    "example_dialogue": "",
}
_CHAT = [("system", "Be kind."), ("user", "Hi."), ("assistant", "Hello."), ("user", "You?"), ("assistant", "Fine.")]
_MESSAGES = [{"role": role, "content": text} for role, text in _CHAT]
_QUESTION = {"role": "user", "content": [{"type": "text", "value": "Well?"}]}
_YES, _NO = ({"role": "assistant", "content": text} for text in ("Yes.", "No."))
_BEGINNING = "\n\nHuman: Well?\n\nAssistant: What?\n\nHuman: Yes or no?\n\nAssistant:"


def _member(name: str, **profile: Any) -> dict[str, Any]:
    fields = {"age": 30, "occupation": "Clerk", "gender": "", "gender_pronoun": "", "secret": f"{name} is tired."}
    return {"first_name": name, "last_name": "Moss", "profile": {**fields, **profile}, "goal": f"{name} speaks first."}


GROUP = {
    "scenario": "Three clerks share a desk.",
    "agents": [_member("Ada"), _member("Bo"), _member("Cy", moral_values=["Care"])],
    "models": {"env": "m", "agents": ["m", "m", "m"]},
    "action_order": "simultaneous",
}
GAME = {
    "scenario": "Hares",
    "description": "A game of hares and foxes. The players are {agent_names}. A fox wins {alone}.",
    "role_goals": {"Hare": "Find the foxes.", "Fox": "Stay unseen."},
    "role_secrets": {"Fox": "You are a fox."},
    "agents": [
        {"name": "Ada", "role": "Hare", "team": "Hares"},
        {"name": "Bo", "role": "Fox", "team": "Foxes"},
        {"name": "Cy", "role": "Fox", "team": "Foxes"},
    ],
    "initial_state": "Night",
    "state_transition": {"Night": "Day", "Day": "Night"},
    "state_properties": {
        "Night": {"acting_roles": ["Fox"], "actions": ["action"], "visibility": "team"},
        "Day": {"actions": ["speak"], "visibility": "public"},
    },
    "end_conditions": [{"type": "parity", "team": "Foxes", "winner": "Foxes"}],
}

VOTE_GAME = {
    **GAME,
    "scenario": "Owls",
    "role_goals": {"Hare": "Find the foxes.", "Fox": "Stay unseen.", "Owl": "Watch the foxes."},
    "agents": [
        {"name": "Ada", "role": "Hare", "team": "Hares"},
        {"name": "Bo", "role": "Fox", "team": "Foxes"},
        {"name": "Cy", "role": "Fox", "team": "Foxes"},
        {"name": "Di", "role": "Owl", "team": "Hares"},
        {"name": "Ed", "role": "Hare", "team": "Hares"},
    ],
    "state_transition": {"Night": "Day", "Day": "Vote", "Vote": "Night"},
    "state_properties": {
        **GAME["state_properties"],
        "Vote": {"actions": ["action"], "action_order": "simultaneous", "visibility": "public"},
    },
    "end_conditions": [
        {"type": "team_eliminated", "team": "Foxes", "winner": "Hares", "message": "No fox is left."},
        {"type": "parity", "team": "Foxes", "other": "Hares", "winner": "Foxes", "message": "Too many foxes."},
    ],
}
WEREWOLF_CONFIG = {
    "game_config": {
        "seed": 3,
        "discussion_protocol": {
            "name": "RoundRobinDiscussion",
            "params": {"max_rounds": 2, "first_to_speak": "random"},
        },
        "day_voting_protocol": {"name": "SimultaneousMajority", "params": {"tie_break": "random"}},
        "werewolf_night_vote_protocol": {"name": "SequentialVoting"},
        "night_elimination_reveal_level": "role",
        "day_exile_reveal_level": "no_reveal",
        "agents": [
            {"role": role, "id": name, "agent_id": "random", "display_name": f"Random {name}"}
            for role, name in (("Villager", "Ada"), ("Werewolf", "Bo"), ("Seer", "Cy"), ("Villager", "Di"))
        ],
    }
}


def tom_agent(number: int, role: str, facts: dict[str, Any], *lists: list[str]) -> dict[str, Any]:
    """An agent of a SOTOPIA-TOM scenario; a private fact is ``[text]``, lists are wants, bars, shares and secrets."""
    wants, bars, shares, secrets = [*lists, [], [], [], []][:4]
    return {
        "agent_id": number,
        "role": role,
        "pre_interaction_knowledge": {
            key: {"value": value, "sensitivity": "private" if isinstance(value, list) else "public"}
            for key, value in facts.items()
        },
        "post_interaction_knowledge": {"desired_knowledge": wants, "cannot_know_knowledge": bars},
        "goals": {
            "primary_objective": f"The {role} wants the fair to open.",
            "sharing_policy": {"what_to_share": shares, "what_not_to_share": secrets},
        },
    }


TOM_AGENTS = [
    tom_agent(1, "Baker",
              {"Number of loaves": "ninety", "Recipe (sourdough)": ["rye", "salt"], "Oven repair": ["Tuesday"]},
              ["rent of the stall", "Colour of the tent", "Name of the guest"], [], ["Loaves"], ["Recipe (sourdough)"]),
    tom_agent(2, "Host", {"Rent of the stall": "40 coins", "Guest of honour": ["the old mayor"]},
              ["Number of loaves", "Recipe (sourdough)"], ["The oven repair date"], ["Rent of the stall"],
              ["Guest of honour (until noon)"]),
    tom_agent(3, "Clerk of works", {"Queue plan": "two rows"}, ["Oven repair"], ["Guest of honour"], ["Queue plan"]),
]  # fmt: skip
TOM_SCENARIO = {
    "scenario_id": 7,
    "scenario_goal": "Agree on when the fair opens.",
    "knowledge_domain_map": {"food": "Baker", "ground": ["Host", "Clerk of works"]},
    "agents": TOM_AGENTS,
}


def _node(name: str, parent: str | None, role: str, *parts: Any, kind: str = "text") -> dict[str, Any]:
    message = {"id": name, "author": {"role": role}, "content": {"content_type": kind, "parts": list(parts)}}
    return {name: {"id": name, "parent": parent, "children": [], "message": message}}


EXPORT = {
    "title": "A question",
    "mapping": {
        "root": {"id": "root", "parent": None, "children": ["s"], "message": None},
        **_node("s", "root", "system", ""),
        **_node("u", "s", "user", "Hi."),
        **_node("old", "u", "assistant", "Go away."),
        **_node("a", "u", "assistant", "Hello."),
        **_node("t", "a", "tool", {"asset": 1}, kind="multimodal_text"),
        **_node("v", "t", "user", "You?"),
        **_node("b", "v", "assistant", "Fine."),
    },
    "current_node": "b",
    "conversation_id": "x",
}
_LINE = {"is_system": False, "send_date": "", "extra": {}}
TAVERN = [
    {"user_name": "unused", "character_name": "unused", "create_date": "", "chat_metadata": {"integrity": "x"}},
    {"name": "Tova", "is_user": False, "mes": "Come in.", **_LINE},
    {"name": "Guest", "is_user": True, "mes": "Hi.", **_LINE},
    {"name": "Tova", "is_user": False, "mes": "Hello.", **_LINE},
    {"name": "Program", "is_user": False, "mes": "Saved.", **_LINE, "is_system": True},
]


def corpus_line(id: str, conversation: str, speaker: str, text: str, time: Any = None, **more: Any) -> dict[str, Any]:
    """A line of ``utterances.jsonl``."""
    line = {"id": id, "conversation_id": conversation, "text": text, "speaker": speaker, "meta": {"score": 1}}
    return {**line, "reply-to": None if id == conversation else conversation, "timestamp": time, "vectors": [], **more}


SAMPLES: dict[str, list[Any]] = {
    "sotopia-agents": [records.AGENT, records.AGENT_LINE, records.AGENT_UNKNOWN],
    "sotopia-environments": [records.ENVIRONMENT, records.ENVIRONMENT_LINE],
    "sotopia-relationships": [records.RELATIONSHIP, records.RELATIONSHIP_LINE],
    "sotopia-combos": [records.COMBINATION, records.COMBINATION_LINE],
    "sotopia-lists": [records.LIST],
    "sotopia-splits": [{"used": ["01H7VFHNV13MHN97GAH73E3KM8"], "hard": ["01H7VFHN5WVC5HKKVBHZBA553R"]}],
    "sotopia-logs": [records.log()],
    "sotopia-episodes": [records.line()],
    "agentsense": [SCENE],
    "srb-marketplace": [marketplace()],
    "srb-calendar": [calendar()],
    "ampo-dialogues": [AMPO_ROW, AMPO_RESULT],
    "ampo-hard": [[0, 7]],
    "sotopia-rl-annotated": [ANNOTATED],
    **ROWS,
    "sotopia-groups": [GROUP],
    "sotopia-games": [GAME, VOTE_GAME],
    "kaggle-werewolf": [WEREWOLF_CONFIG],
    "sotopia-tom": [TOM_SCENARIO],
    "convokit": [[corpus_line("u1", "u1", "ann", "Hello?"), corpus_line("u2", "u1", "bob", "Hi.")]],
    "character-card": [CARD],
    "character-card-v1": [FLAT_CARD, PYGMALION_CARD],
    "people": [{"name": "Tova Brandt", "age": 37, "pronouns": "she/her", "shoes": "38"}],
    "situations": [
        {"context": "A lift stands still.", "goal_0": "Get out.", "goal_1": "Stay calm.", "hint_0": "Knock."}
    ],
    "sharegpt": [
        {
            "system": "Be kind.",
            "conversations": [{"from": {"user": "human"}.get(role, "gpt"), "value": text} for role, text in _CHAT[1:]],
        }
    ],
    "chat-messages": [{"messages": _MESSAGES}, {"conversation": _MESSAGES, "model": "m", "turn": 2}],
    "chatgpt-export": [EXPORT],
    "sillytavern-chat": [TAVERN],
    "completion-rows": [{"prompt": "Well?", "completion": "Yes.", "label": True}],
    "preference-rows": [
        {"prompt": "Well?", "chosen": "Yes.", "rejected": "No."},
        {"prompt": _MESSAGES[:2], "chosen": [_YES], "rejected": [_NO]},
        {"chosen": [*_MESSAGES[:2], _YES], "rejected": [*_MESSAGES[:2], _NO]},
        {"chosen": f"{_BEGINNING} Yes.", "rejected": f"{_BEGINNING} No."},
    ],
    "sharegpt-preferences": [
        {
            "conversations": [{"from": "human", "value": "Well?"}],
            "chosen": {"from": "gpt", "value": "Yes."},
            "rejected": {"from": "gpt", "value": "No."},
        }
    ],
    "message-preferences": [{"chosen_messages": [_QUESTION, _YES], "rejected_messages": [_QUESTION, _NO]}],
}
"""Samples by the name of their format; each becomes a file of its own."""
OTHERS: list[Any] = [
    {"colours": ["red", "blue"]},
    {"colours": {"red": 1}},
    {"name": "x", "value": 3, "tags": ["a"]},
    {"messages": "hello"},
    {"prompt": "a question"},
    {"scenario": "A lift."},
    {"title": None, "rows": [[1, 2], [3, 4]]},
    {},
    [[1], [2]],
    ["red", "blue"],
    [1.5, None, True],
    "nonsense",
    '"half',
]
"""Values of no format."""


def outcome(path: Any, format: str | None = None) -> tuple[str, int]:
    """The sentence with which a file is refused, empty if it is read, and the number of its products.

    Any other exception than a sentence of ours fails the test.
    """
    conversion = Conversion([path], format)
    try:
        products = list(conversion.products())
    except SotopiaError as error:
        sentence = str(error)
        assert sentence
        assert "\n" not in sentence
        return sentence, 0
    return "", len(products)


def misreadings(write: Any, own: dict[str, list[Any]], others: dict[str, list[Any]]) -> list[tuple[str, str, int]]:
    """Formats of ``own`` that read a sample of another format of ``others``, with that format and the sample's number.

    ``write`` writes a value into a file and returns its path.
    """
    files = {(name, n): write(value) for name, values in others.items() for n, value in enumerate(values)}
    return [
        (format, name, number)
        for format in own
        for (name, number), path in files.items()
        if name != format and not outcome(path, format)[0]
    ]


def detected(path: Any) -> str | None:
    """The format that a file is read as; ``None`` if it has no known one."""
    conversion = Conversion([path])
    with contextlib.suppress(SotopiaError):
        list(conversion.products())
    return conversion.counts[0].format if conversion.counts else None
