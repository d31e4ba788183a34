"""Stops a loss on what the user said, no loss on what the assistant said, and chats that are split or vanish uncounted."""

import json
from pathlib import Path
from typing import Any

import chat_files as chats
import pytest
import tokenizer_files as files
from chat_files import END

from shardtools.errors import UsageError
from shardtools.sample import Field
from shardtools.transforms.chat import settle_chat

PAIRS = (("system", "be brief"), ("user", "one two"), ("assistant", "three"), ("user", "four"), ("assistant", " five\n"))


def masked(folder: Path, messages: Any, **words: str) -> str:
    outcome = files.run(chats.settled(folder, **words), [messages])
    assert not outcome.rejects
    (tokens,), (mask,) = outcome.columns["tokens"], outcome.columns["loss_mask"]
    assert mask.dtype == "uint8"
    assert len(mask) == len(tokens)
    return chats.masked_text(folder, tokens, mask)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", f"three{END} five\n{END}"),
        ("trimmed", f"three{END}five{END}"),
        ("llama2", f"three {files.EOS}five {files.EOS}"),
        ("generation", f"three{END} five\n{END}"),
        ("built", "three<|end|> five\n<|end|>"),
        ("reasoning", f"three{END} five\n{END}"),
    ],
)
def test_the_loss_is_on_the_turns_of_the_assistant(tmp_path: Path, name: str, expected: str) -> None:
    chats.chat_tokenizer(tmp_path, chats.ALL[name])
    assert masked(tmp_path, chats.messages(*PAIRS)).replace(" three", "three").replace(" five ", "five ") == expected


def test_the_first_token_is_never_in_the_loss(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path, "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    assert masked(tmp_path, chats.messages(("assistant", "the cat"), ("user", "x"))) == f" cat{END}"


def test_text_that_a_block_or_macro_hands_on_is_still_followed(tmp_path: Path) -> None:
    template = "{% macro show(text) %}{{ text }}{% endmacro %}{% for m in messages %}{{ m.role }}"
    template += "{% set kept %}{{ show(m.content) }}{% endset %}{{ kept.strip() }}<|im_end|>{% endfor %}"
    chats.chat_tokenizer(tmp_path, template)
    assert masked(tmp_path, chats.messages(("user", " a "), ("assistant", " the cat\n"))) == f"the cat{END}"


def test_answers_in_a_row_are_turns_of_their_own(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path)
    assert masked(tmp_path, chats.messages(("user", "a"), ("assistant", "one"), ("assistant", "two"))) == f"one{END}two{END}"


def test_a_template_without_an_end_of_turn(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    transform, notes = settle_chat({"tokenizer": str(tmp_path)})
    assert transform.turns.end_of_turn is None
    assert any("the template has none" in note for note in notes)
    assert masked(tmp_path, chats.messages(("user", "a"), ("assistant", "dog"), ("user", "b"))).strip() == "dog"


@pytest.mark.parametrize("pairs", [(("user", "x"),), (("user", "x"), ("assistant", "")), (("system", "a"), ("user", "b"))])
def test_nothing_to_learn_is_a_bad_sample(tmp_path: Path, pairs: Any) -> None:
    chats.chat_tokenizer(tmp_path)
    outcome = files.run(chats.settled(tmp_path), [chats.messages(*pairs), chats.messages(*PAIRS)])
    assert outcome.keys == [b"d/000001"]
    assert [(reject.reason, reject.where) for reject in outcome.rejects] == [("no-assistant-turn", "value 0")]


def test_an_answer_of_which_only_the_first_token_of_the_chat_is_left_is_none(tmp_path: Path) -> None:
    """That token is never in the loss, so the mask would be all zero."""
    chats.chat_tokenizer(tmp_path, "{% for m in messages %}{{ m.content }}{% endfor %}")
    outcome = files.run(chats.settled(tmp_path), [chats.messages(("assistant", "a")), chats.messages(("assistant", "the cat"))])
    assert outcome.keys == [b"d/000001"]
    assert [reject.reason for reject in outcome.rejects] == ["no-assistant-turn"]


def test_long_docs_are_dropped_whole_or_lose_their_end(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path)
    short, long = chats.messages(("user", "a"), ("assistant", "b")), chats.messages(*PAIRS)
    whole = files.run(chats.settled(tmp_path), [short, long])
    length = len(whole.ids[1])
    dropped = files.run(chats.settled(tmp_path, seq_len=str(length - 1)), [short, long])
    assert dropped.ids == whole.ids[:1]
    assert (dropped.counts["chats-dropped"], dropped.counts["tokens-dropped"]) == (1, length)
    assert dropped.counts["tokens-in"] == sum(map(len, whole.ids))
    cut = files.run(chats.settled(tmp_path, seq_len=str(length - 1), long_docs="truncate"), [short, long])
    assert cut.ids == [whole.ids[0], whole.ids[1][:-1]]
    assert cut.columns["loss_mask"][1].tolist() == whole.columns["loss_mask"][1].tolist()[:-1]
    assert (cut.counts["chats-truncated"], cut.counts["tokens-truncated"]) == (1, 1)
    assert files.run(chats.settled(tmp_path, seq_len=str(length)), [short, long]).ids == whole.ids


def test_a_cut_that_leaves_no_answer_is_a_bad_sample(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path)
    outcome = files.run(chats.settled(tmp_path, seq_len="5", long_docs="truncate"), [chats.messages(*PAIRS)])
    assert [reject.reason for reject in outcome.rejects] == ["no-assistant-turn"]
    assert not outcome.keys


def test_ends_asked_for_are_added_once(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path, chats.TRIMMED)
    messages = chats.messages(("user", "a"), ("assistant", "b"))
    plain = files.run(chats.settled(tmp_path), [messages])
    ended = files.run(chats.settled(tmp_path, bos=files.BOS, eos=files.EOS), [messages])
    assert ended.ids[0][:-1] == plain.ids[0]  # the template begins with BOS already
    assert ended.counts["bos-present"] == 1
    assert ended.columns["loss_mask"][0].tolist() == [*plain.columns["loss_mask"][0].tolist(), 1]


@pytest.mark.parametrize("bad", [None, [], "x", {"role": "user"}, [1], [{"content": "x"}], [[]], [{"role": "user", "content": "\ud800"}]])
def test_what_is_no_chat_costs_nobody_else(tmp_path: Path, bad: Any) -> None:
    chats.chat_tokenizer(tmp_path)
    outcome = files.run(chats.settled(tmp_path), [bad, chats.messages(*PAIRS)])
    assert outcome.keys == [b"d/000001"]
    assert [reject.where for reject in outcome.rejects] == ["value 0"]


def test_what_a_template_refuses(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path, chats.LLAMA2)
    outcome = files.run(chats.settled(tmp_path), [chats.messages(("user", "a"), ("user", "b")), chats.messages(*PAIRS)])
    assert [reject.reason for reject in outcome.rejects] == ["chat-template"]
    assert "roles must alternate" in outcome.rejects[0].sentence


def test_templates_cannot_reach_out(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path, "{{ messages.__class__.__mro__ }}{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(UsageError, match="unsafe"):
        chats.settled(tmp_path)


def test_todays_date_is_no_input(tmp_path: Path) -> None:
    dated = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}2024{% endif %}"
    chats.chat_tokenizer(tmp_path, dated + chats.CHATML)
    outcome = files.run(chats.settled(tmp_path), [chats.messages(*PAIRS)])
    assert chats.text_of(tmp_path, outcome.columns["tokens"][0]).startswith("2024<|im_start|>")


def test_where_templates_are_found(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": chats.CHATML}]
    chats.chat_tokenizer(tmp_path, named)
    assert chats.settled(tmp_path).template == chats.CHATML
    (tmp_path / "chat_template.jinja").write_text(chats.TRIMMED)
    assert chats.settled(tmp_path).template == chats.TRIMMED
    (tmp_path / "chat_template.jinja").unlink()
    for template, message in (
        (None, "got none"),
        (named[:1], "named 'default'"),
        ("{% if %}", "jinja2"),
        ("{{ raise_exception('no') }}", "no"),
    ):
        chats.chat_tokenizer(tmp_path, template)
        with pytest.raises(UsageError, match=message):
            chats.settled(tmp_path)


def test_the_recipe_and_the_fields(tmp_path: Path) -> None:
    chats.chat_tokenizer(tmp_path)
    transform = chats.settled(tmp_path)
    assert transform.fields((Field("messages", "json"),)) == (Field("tokens", "ndarray:uint16"), Field("loss_mask", "ndarray:uint8"))
    with pytest.raises(UsageError, match="expected one field"):
        transform.fields((Field("text", "str"),))
    assert str(tmp_path) not in json.dumps(transform.recipe())
    for words in ({"seq_len": "9"}, {"long_docs": "truncate"}, {"special_in_text": "reject"}, {"eos": files.EOS}, {"dtype": "int32"}):
        assert chats.settled(tmp_path, **words).recipe() != transform.recipe()
    chats.chat_tokenizer(tmp_path, chats.TRIMMED)
    assert chats.settled(tmp_path).recipe() != transform.recipe()
