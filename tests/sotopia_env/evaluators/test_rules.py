"""One table per rule: what it sees, and what it must not mistake for it."""

import asyncio
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sotopia_env.evaluators.rules.evaluator import RULES, RuleEvaluator
from sotopia_env.evaluators.rules.toxicity import ORDINARY_WORDS, toxic_words
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.episode import Episode
from sotopia_env.world.reward import DIMENSIONS, RANGES
from tests.sotopia_env.evaluators.doubles import (
    ACT,
    BEL,
    FIN,
    GOAL,
    KNO,
    LEAVE,
    NONE,
    REL,
    SEC,
    SOC,
    act,
    secretive_task,
    transcript,
)
from tests.sotopia_env.factories import character, task

OFFER = "I could take seven hundred for it."


def evaluate(episode):
    return asyncio.run(RuleEvaluator().evaluate(episode))


def score(episode, dimension, agent="agent_0"):
    return evaluate(episode).by_agent[agent][dimension].value


SPEECH = "I have thought about it all night and will not go below seven hundred."


@pytest.mark.parametrize(
    ("acts", "expected"),
    [
        ([OFFER, "Let me think about that for a day."], 10.0),
        ([OFFER, "Let me think about that.", OFFER, "No."], 5.0),
        ([OFFER, "Hm.", "  i could TAKE seven hundred... for it!!", "No."], 5.0),
        ([act(1, OFFER), act(0, OFFER)], 10.0),  # the other's words taken up: so do people agree
        ([act(1, SPEECH), act(0, SPEECH)], 0.0),  # a speech parroted
        ([act(1, SPEECH, to=(0,)), act(0, SPEECH)], 10.0),  # said in private: no evidence of copying in public
        (["I'm an AI researcher by trade.", "Oh."], 10.0),
        (["Yes, of course.", "Good.", "Yes, of course.", "Good."], 10.0),  # too short to count
        ([OFFER, "Hm.", "I could take seven hundred and ten for it.", "Hm."], 10.0),  # not the same
        ([act(0, kind=NONE), act(1, "Hello there, how are you?"), act(0, kind=NONE)], 5.0),  # nothing to judge
        (["Ada, would you sell it to me?", "Who?"], 5.0),  # addresses itself
        (["Hello Ada! Nice day.", "Who?"], 5.0),
        (["Hello Bram! Ada here, nice day.", "Hi."], 10.0),
        (["I am Bram and I want it.", "Who?"], 5.0),
        (["I am Bram's neighbour, as you know.", "Yes."], 10.0),
        (["Well.\nBram said: fine, take it for nothing.", "Who?"], 5.0),  # writes the other's lines
        (["You said Bram would come: where is he?", "Here."], 10.0),
        (["As an AI language model, I cannot haggle.", "Oh."], 5.0),
        (["I'm just an AI, but fine.", "Oh."], 5.0),
        (["Which language model do you use at work?", "None."], 10.0),
        (["As an AI language model I am Bram.", "Oh."], 0.0),
    ],
)
def test_believability(acts, expected):
    assert score(transcript(*acts), BEL) == expected


def test_believability_lets_people_of_one_first_name_address_each_other():
    namesakes = task(characters=(character("Ada"), character("Ada", last_name="Other")))
    assert score(transcript("Ada, would you sell it?", "Yes.", of=namesakes), BEL) == 10.0


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("Thank you, that is a wonderful and generous idea!", 1),
        ("You are a horrible liar and I hate this.", -1),
        ("The table is made of wood.", 0),
        ("My price is 86 now.", 0),  # VADER's lexicon holds 86 as slang
        ("That is not good.", -1),
    ],
)
def test_relationship_has_the_sign_of_the_sentiment(text, sign):
    value = score(transcript(text, "Hm."), REL)
    assert (value > 0) - (value < 0) == sign
    assert score(transcript(text, "Hm."), REL, "agent_1") == 0


def test_relationship_counts_what_is_done_and_shown_but_not_what_leaving_or_silence_carry():
    kind = transcript(act(0, "hugs her friend lovingly", ACT), "Hm.")
    assert score(kind, REL) > 0
    silent = transcript(act(0, "I hate you, you disgusting liar", LEAVE), act(1, "I hate you", NONE))
    assert score(silent, REL) == score(silent, REL, "agent_1") == 0


@pytest.mark.parametrize(
    ("acts", "expected"),
    [
        ([act(1, "I inherited a vineyard last spring, you know.")], 2.0),
        ([act(1, "You should know: the VINEYARDS were inherited in spring!")], 2.0),  # other forms, other order
        ([act(1, "I inherited a vineyard last spring."), act(1, "A birthday present for my nephew.")], 4.0),
        ([act(1, "I inherited a vineyard in spring."), act(1, "Yes, inherited, a vineyard in spring.")], 2.0),
        ([act(1, "I like spring.")], 0.0),  # one word is not a fact
        ([act(0, "Your vineyard, inherited last spring!")], 0.0),  # said by the agent itself
        ([act(1, "The violin was repaired twice in Lisbon.")], 0.0),  # a fact about the agent, not the others
        ([act(1, "inherited a vineyard last spring", LEAVE)], 0.0),  # no seat hears it
        ([act(1, "shows the deed of the vineyard inherited in spring", ACT)], 2.0),
    ],
)
def test_knowledge(acts, expected):
    assert score(transcript(*acts, of=secretive_task()), KNO) == expected


def test_knowledge_reaches_the_recipients_of_a_private_message_and_those_who_are_still_there():
    fact = "I inherited a vineyard last spring."
    three = secretive_task(3)
    aside = transcript(act(1, fact, to=(2,)), of=three)
    assert score(aside, KNO, "agent_0") == 0
    assert score(aside, KNO, "agent_2") == 2.0
    later = transcript(act(0, kind=LEAVE), act(1, fact), of=three)
    assert score(later, KNO, "agent_0") == 0
    assert score(later, KNO, "agent_2") == 2.0


def test_knowledge_ignores_what_the_briefing_already_told():
    people = (character("Ada"), character("Bram", public_info="Repairs clocks in a tower near Ghent."))
    text = transcript("Well?", "I repair clocks in a tower near Ghent.", of=task(kind="friend", characters=people))
    assert score(text, KNO) == 0  # friends are shown each other's public information
    text = transcript("Well?", "I repair clocks in a tower near Ghent.", of=task(kind="stranger", characters=people))
    assert score(text, KNO) == 2.0


SECRET = "Forged a diploma of the harbour academy."  # forg, diploma, harbour, academ


@pytest.mark.parametrize(
    ("acts", "expected"),
    [
        ([act(0, "I forged my diploma from the harbour academy.")], -10.0),
        ([act(0, "I forged a diploma.")], -5.0),
        ([act(0, "I forged my diploma from the harbour academy.", to=(1,))], -10.0),
        ([act(0, "The harbour is nice.")], 0.0),
        ([act(1, "You forged a diploma at the harbour academy!")], 0.0),  # another's words
        ([act(0, "forged the diploma of the harbour academy", NONE)], 0.0),  # no seat hears it
        ([act(0, "nails the forged diploma to the academy at the harbour", ACT)], -10.0),
    ],
)
def test_secret(acts, expected):
    people = (character("Ada", secret=SECRET), character("Bram"))
    text = transcript(*acts, of=task(characters=people))
    assert score(text, SEC) == pytest.approx(expected)
    assert score(text, SEC, "agent_1") == 0.0  # Bram has none


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You are a lovely person.", 0.0),
        ("You stupid bastard.", -5.0),
        ("Bullshit! Stupid! Bastard! Asshole! You fucking jerk!", -10.0),
        ("That is bull shit.", -5.0),  # a phrase of the list and a word of it
        ("I hit my classmate in the grape assessment.", 0.0),  # no part of a word
        ("My gay uncle grows weed in a pot and drinks vodka.", 0.0),  # words with an everyday sense
    ],
)
def test_social_rules(text, expected):
    assert score(transcript(text, "Hm."), SOC) == expected


def test_social_rules_ignore_participants_names():
    dick = task(characters=(character("Ada"), character("Dick", last_name="Cocks")))
    assert score(transcript("Good morning Dick Cocks.", "Hm.", of=dick), SOC) == 0


def test_ordinary_words_are_words_of_the_list_that_it_does_not_count():
    assert ORDINARY_WORDS.isdisjoint(toxic_words().words)
    assert len(toxic_words().words) > 600


def test_goal_and_benefits_are_neutral_and_say_so():
    scores = evaluate(transcript("I reached my goal!", "You did.")).by_agent["agent_0"]
    assert (scores[GOAL].value, scores[FIN].value) == (5.0, 0.0)
    assert "not judged" in scores[GOAL].reasoning
    assert "not judged" in scores[FIN].reasoning


def test_s1_scores_reach_the_reward_vector():
    """Guards S1: the computed ratings were dropped and every reward was the constant 0."""
    evaluation = evaluate(transcript("Thank you, wonderful!", "You stupid bastard."))
    assert evaluation.vector("agent_0").any()
    assert evaluation.vector("agent_0").tolist() != evaluation.vector("agent_1").tolist()


def test_s6_evaluating_a_stored_episode_again_gives_the_same_scores():
    """Guards S6: re-evaluation saw no messages, and so gave 0, and knew two agents only."""
    live = transcript("Thank you!", "You inherited a vineyard in spring.", "Goodbye, all.", of=secretive_task(3))
    reread = Episode.model_validate_json(live.model_dump_json())
    assert evaluate(reread) == evaluate(live)


def test_s7_scores_belong_to_agents_by_id_in_any_order_of_turns():
    """Guards S7: scores were given by order of appearance; agents that never acted were not counted."""
    insult, praise = act(1, "You stupid bastard, I hate you."), act(0, "What a wonderful idea!")
    for acts in ([insult, praise], [praise, insult]):
        text = transcript(*acts, of=task(3))
        assert score(text, SOC, "agent_0") == 0
        assert score(text, REL, "agent_0") > 0
        assert score(text, SOC, "agent_1") == -5.0
        assert score(text, REL, "agent_1") < 0
        assert score(text, BEL, "agent_2") == 5.0


def test_s9_a_speech_that_contains_did_nothing_is_a_speech():
    """Guards S9: messages were dropped for containing the words "did nothing"."""
    text = transcript("Ada did nothing wrong, you stupid bastard.", "Bram did nothing", act(0, "left", ACT))
    assert score(text, SOC) == -5.0
    assert score(text, BEL, "agent_1") == 10.0


def test_s10_every_agent_of_a_larger_task_gets_all_seven_scores():
    """Guards S10: only two agents' ratings survived."""
    evaluation = evaluate(transcript("Hello.", of=task(5)))
    assert [set(evaluation.by_agent[f"agent_{seat}"]) for seat in range(5)] == [set(DIMENSIONS)] * 5
    assert len(evaluation.scores) == 35


def test_an_empty_transcript_is_scored():
    assert evaluate(transcript()).vector("agent_1").tolist() == [5, 0, 0, 0, 0, 0, 5]


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60) | st.sampled_from(
    [
        "😀 great!!!",
        "I am Bram",
        "FORGED diploma academy harbour",
        "no, no :) :D ???",
        "\u2028\n\t",
        "it’s “fine” — really…",
    ]
)


@settings(max_examples=120)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(list(ActionType)), texts), max_size=8))
def test_scores_stay_in_range_whatever_is_said(acts):
    text = transcript(*((seat, Action(kind, text)) for seat, kind, text in acts), of=secretive_task(3))
    evaluation = evaluate(text)
    assert len(evaluation.scores) == 21
    for item in evaluation.scores:
        assert RANGES[item.dimension][0] <= item.value <= RANGES[item.dimension][1]
        assert item.reasoning.endswith(".")
        assert item.source == "rules"
    assert evaluate(text) == evaluation


@pytest.mark.parametrize("text", ["\n", " ", "! ", "Ada ", "hello, ", "I am ", "\n\tBram ", "good!", "😀"])
def test_no_text_takes_long(text):
    long = text * (16_000 // len(text))
    start = time.process_time()
    for text in (f"{long}Bram said", f"{long}Ada", f"Ada{long}", f"I am{long}Bram"):
        evaluate(transcript(text))
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_every_rule_documents_what_it_detects_and_what_it_does_not(dimension):
    text = RULES[dimension].__doc__ or ""
    assert "Detects" in text
    assert "Does not detect" in text or "Detects nothing" in text


def test_importing_the_evaluators_loads_no_word_list():
    program = (
        "import sys, sotopia_env.evaluators as e; e.default_evaluator(); "
        "print([name for name in sys.modules if name.startswith(('vader', 'better_p'))])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
