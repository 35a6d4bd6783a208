"""The shortcuts around VADER change nothing: compared with the library itself over random mixtures of its own words."""

import random
import time

import pytest
from vaderSentiment.vaderSentiment import BOOSTER_DICT, NEGATE, SPECIAL_CASES, SentimentIntensityAnalyzer

from sotopia_env.evaluators.rules.sentiment import sentiment
from sotopia_env.evaluators.rules.utterance import spoken_acts
from sotopia_env.world.action import MAX_ARGUMENT_LENGTH
from tests.sotopia_env.evaluators.doubles import transcript

ANALYZER = SentimentIntensityAnalyzer()
LEXICON = sorted(word for word in ANALYZER.lexicon if not word.isdigit())
MODIFIERS = sorted({word for phrase in (*BOOSTER_DICT, *SPECIAL_CASES, *NEGATE) for word in phrase.split()})
WORDS = "the bicycle price table we could go to at very least so this without doubt I A and but or nor y'alln't"
PLAIN = WORDS.split()
ENDS = (".", "!", "?", "!!", "??", ",", "...?!", "!!!!!!", "😀", "👍🏻")


def sentence(generator: random.Random) -> str:
    words = []
    for _ in range(generator.randint(1, 14)):
        pool = generator.choices((LEXICON, MODIFIERS, PLAIN), weights=(2, 2, 5))[0]
        word = generator.choice(pool)
        word = word.upper() if generator.random() < 0.04 else word
        words.append(word + (generator.choice(ENDS) if generator.random() < 0.12 else ""))
    return " ".join(words)


def ours(text: str) -> float:
    return sentiment(spoken_acts(transcript(text)).utterances[0])


def test_equal_to_the_library_on_random_sentences():
    generator = random.Random(7)
    for _ in range(4000):
        text = sentence(generator)
        if not any(word.isdigit() for word in text.split()):
            assert ours(text) == ANALYZER.polarity_scores(text)["compound"], text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0.0),
        ("I could go to 85 or 86 or 4 .", 0.0),
        ("It’s not “good”", ANALYZER.polarity_scores('It\'s not "good"')["compound"]),
        ("GOOD", ANALYZER.polarity_scores("good")["compound"]),
        ("that is GOOD", ANALYZER.polarity_scores("that is GOOD")["compound"]),
    ],
)
def test_cases(text, expected):
    assert ours(text) == expected


def test_the_longest_argument_is_analysed_in_bounded_time():
    start = time.process_time()
    assert ours("good bad but " * (MAX_ARGUMENT_LENGTH // 13)) != 0
    assert ours("x" * MAX_ARGUMENT_LENGTH) == 0
    assert time.process_time() - start < 0.5  # some 30 ms; above 1 s in one piece
