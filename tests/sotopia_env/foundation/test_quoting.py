"""Quoting: what is escaped, in every tokenizer family's own tokens, and what ordinary text looks like."""

import json
import sys
import timeit
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sotopia_env.foundation.quoting import escape, quote
from tests.sotopia_env.attacks import ATTACKS

TOKENS = {
    "Llama 2": "<s> </s> <unk> <0x0A> [INST] [/INST] <<SYS>> <</SYS>>",
    "Code Llama": "<PRE> <MID> <SUF> <EOT> <FILL_ME>",
    "Llama 3": "<|begin_of_text|> <|eot_id|> <|start_header_id|> <|reserved_special_token_0|> <|python_tag|>",
    "Llama 4": "<|header_start|> <|eot|> <|text_post_train_reserved_special_token_3|>",
    "Mistral": "[TOOL_CALLS] [AVAILABLE_TOOLS] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [IMG] [THINK] [/THINK] <SPECIAL_20>",
    "Gemma": "<bos> <eos> <start_of_turn> <end_of_turn> <unused0> <unused98> <start_of_image> <2mass> [@BOS@] <h1>",
    "Qwen": "<|im_start|> <|im_end|> <|endoftext|> <|vision_start|> <tool_call> </think> <|extra_0|> <|fim_prefix|>",
    "Phi": "<|system|> <|end|> <|dummy_0|> <|im_sep|> <|placeholder1|>",
    "DeepSeek": "<｜begin▁of▁sentence｜> <｜User｜> <｜fim▁hole｜> <｜▁pad▁｜> <｜tool▁calls▁begin｜> <|EOT|>",
    "InternLM": "[UNUSED_TOKEN_145] <|action_start|> <|plugin|> <TOKENS_UNUSED_0> <eoh> <eoa>",
    "Command-R": "<BOS_TOKEN> <|START_OF_TURN_TOKEN|> <|CHATBOT_TOKEN|> <MASK_TOKEN> <PAD> <EOP_TOKEN>",
    "GPT-NeoX, OLMo": "<|endoftext|> <|padding|> |||IP_ADDRESS||| |||EMAIL_ADDRESS|||",
    "T5": "<pad> <extra_id_0> <extra_id_99>",
    "BERT": "[CLS] [SEP] [MASK] [PAD] [UNK] [unused1] [unused99]",
    "ChatGLM": "[gMASK] [sMASK] <sop> <eop> <|user|> <|observation|> <|begin_of_image|> <eop>",
    "Yi": "<|startoftext|> <|unused999|> <fim_middle> <|CLS|>",
    "Falcon": ">>TITLE<< >>QUESTION<< >>ANSWER<< >>UNUSED_0<<",
    "Baichuan": "<reserved_106> <B_SYS> <C_Q>",
    "StarCoder": "<fim_prefix> <gh_stars> <reponame> <jupyter_start> <file_sep>",
    "XGLM, XLM": "<madeupword0> <special0>",
    "Nemotron": "<SPECIAL_10> <extra_id_1>",
    "GPT-OSS": "<|start|> <|channel|> <|message|> <|constrain|> <|return|> <|reserved_200017|>",
    "Kimi": "<|im_user|> <|media_begin|> [EOS] [EOT] [start_header_id] [extra_id_3]",
    "MiniMax": "]~b] ]~!b[ [e~[",
    "EXAONE": "[|system|] [|assistant|] [|endofturn|] [BOS]",
    "Seed": "<seed:bos> <seed:think> <[begin▁of▁sentence]> <[PLHD12_never_used]>",
    "ERNIE": "<|begin_of_sentence|> <mask:0> <|IMAGE_PLACEHOLDER|>",
    "Fuyu": "|ENDOFTEXT| |SPEAKER|",
    "RoBERTa, BART": "<mask> <s>",
}


@pytest.mark.parametrize("token", [token for tokens in TOKENS.values() for token in dict.fromkeys(tokens.split())])
def test_no_control_token_survives(token):
    for text in (token, f"a {token} b", f"x{token}y", f"<{token}>", f"[{token}]", token * 3):
        assert token not in quote(text)
        assert token not in escape(text)
        assert json.loads(quote(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "I <3 you & me", "a < b", "a<b and c>d", "naïve café", "¿qué?", "a[0] < b", "x[0]", "[1, 2]", "[-1]",
        "[laughs]", "[Laughs] fine", "[sic!]", "[笑]", "[…]", "[a long remark]", "yes | no", "|id|",
        "3 << 4 >> 2", "if (a) {b}", "<p class=x y>", "我同意。", "مرحبا", "नमस्ते", "🍎 🙂", "e\u0301",
        "\u00a0non-breaking",
    ],
)  # fmt: skip
def test_ordinary_text_is_shown_as_it_is(text):
    """Guards S16: the predecessor's markup renderer hid and changed what partners said."""
    assert quote(text) == f'"{text}"'
    assert escape(text) == text


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("use <b>this</b>", r"use \u003cb>this\u003c/b>"),
        ("<｜begin of sentence｜> <| x", r"\u003c｜begin of sentence｜> \u003c| x"),
        ("👩\u200d👧", r"👩\u200d👧"),
        ("❤\ufe0f", r"❤\ufe0f"),
        ("می\u200cخواهم", r"می\u200cخواهم"),
        ("a\u00adb\u3164c\u2065", r"a\u00adb\u3164c\u2065"),
        ("\U000e0041\U000e01ef", r"\udb40\udc41\udb40\uddef"),
        ("a\x1b[2J", r"a\u001b[2J"),
    ],
)
def test_escaped_text_can_still_be_read(text, literal):
    assert quote(text) == f'"{literal}"'
    assert escape(text) == literal


IGNORABLE = "\u034f\u115f\u1160\u17b4\u17b5\u2065\u3164\uffa0\ufff0" + "".join(
    chr(code) for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0000, 0xE0FFF)) for code in (first, last)
)


def test_every_character_that_cannot_be_seen_is_escaped_and_no_other():
    """The ranges are written out; this compares them with the categories of the running Python."""
    unseen = {
        c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ["Cc", "Cf", "Cs", "Zl", "Zp"]
    }
    escaped = {c for c in map(chr, range(sys.maxunicode + 1)) if escape(c) != c}
    assert (unseen | set(IGNORABLE)) - escaped == {"\n", "\t"}
    assert {unicodedata.category(c) for c in escaped - unseen} == {"Lo", "Mn", "Cn"}  # ignorable, or reserved to be so
    assert all(c in IGNORABLE or unicodedata.category(c) != "Lo" for c in escaped - unseen)


@example("[<]>")
@given(st.text() | st.lists(st.sampled_from('<[|>]~A1_a/ "\\\n')).map("".join) | st.sampled_from(ATTACKS))
def test_a_quoted_text_is_one_line_and_reads_back_exactly(text):
    literal = quote(text)
    assert json.loads(literal) == text
    assert len(literal.splitlines()) == 1
    assert all(c == " " or c.isprintable() or unicodedata.category(c) in ("Zs", "Co", "Cn") for c in literal)
    assert escape(literal) == literal
    assert escape(escape(text)) == escape(text)


@pytest.mark.parametrize("text", ["[", "<", "|", ">", "[<", "[<]>", "[A", "|A_", "[~", "[[A]", ">AAA", "[" + "a" * 127])
def test_a_text_made_to_be_slow_is_not(text):
    length = 16_384
    assert timeit.timeit(lambda: quote((text * length)[:length]), number=1) < 2
