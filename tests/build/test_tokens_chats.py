"""Stops chats that are packed with a loss on what users say, on the first token of a chat or on padding, or that are cut in two."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from token_oracle import BOS, EOS, as_lines, counts_of, documents_of, id_of, pack, plain_ids, rows_of, small_tokenizer, text_of

from shardtools import partitions as partitions_module

SEQ_LEN = 60


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small")


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch) -> None:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 3000)


def make_chats(count: int) -> list[list[dict[str, str]]]:
    chats = []
    for i in range(count):
        messages = [{"role": "system", "content": f"be {EOS} brief"}] if i % 3 == 0 else []
        for turn in range(1 + i % 2):
            messages.append({"role": "user", "content": f"question {i} {BOS} {'cat ' * (i % 7)}"})
            messages.append({"role": "assistant", "content": f"answer {turn} {'mat ' * (i % 11)}{EOS if i % 5 == 0 else 'Häuser'}"})
        chats.append(messages)
    return chats


def encoded(tokenizer: Path, messages: list[dict[str, str]]) -> tuple[list[int], list[int]]:
    """By hand what the template of ``small_tokenizer`` gives: control tokens by id, all else plain text; loss on answers and their end."""
    bos, eos = id_of(tokenizer, BOS), id_of(tokenizer, EOS)
    ids: list[int] = []
    mask: list[int] = []
    for message in messages:
        # No token of this tokenizer lies across the line break: it joins no letters to it.
        head = plain_ids(tokenizer, f"{message['role']}\n")
        body = plain_ids(tokenizer, message["content"])
        tail = plain_ids(tokenizer, "\n")
        assert head + body == plain_ids(tokenizer, f"{message['role']}\n{message['content']}")
        loss = int(message["role"] == "assistant")
        ids += [bos, *head, *body, eos, *tail]
        mask += [0] * (1 + len(head)) + [loss] * (len(body) + 1) + [0] * len(tail)
    return ids, mask


WAYS = {
    "bfd": {"seq_len": str(SEQ_LEN)},
    "bfd truncate": {"seq_len": str(SEQ_LEN), "long_docs": "truncate"},
    "none": {},
    "none drop": {"packing": "none", "seq_len": str(SEQ_LEN)},
}


@pytest.mark.parametrize("format_", ["mds", "wds"])
@pytest.mark.parametrize("way", WAYS)
def test_chats_are_whole_and_their_masks_are_the_answers(tokenizer, tmp_path, way, format_):
    words = WAYS[way]
    chats = make_chats(120)
    bad: list[Any] = ["text", [], None, [{"role": "user", "content": "no answer"}]]
    records = [{"messages": messages} for messages in [*chats[:60], *bad, *chats[60:]]]
    (tmp_path / "chats.jsonl").write_bytes(as_lines(records))
    pack(tmp_path / "chats.jsonl", tmp_path / "out", format_, tokenizer=tokenizer, chat="", doc_ids="", max_bad="100%", **words)
    rows = rows_of(tmp_path / "out")
    expected = [encoded(tokenizer, messages) for messages in chats]
    num_long = sum(len(ids) > SEQ_LEN for ids, _ in expected)
    assert 5 < num_long < 100
    if "truncate" in way:
        expected = [(ids[:SEQ_LEN], mask[:SEQ_LEN]) for ids, mask in expected]
        unanswered = [pair for pair in expected if not any(pair[1])]
        expected = [pair for pair in expected if any(pair[1])]
    elif "seq_len" in words:
        unanswered = []
        expected = [pair for pair in expected if len(pair[0]) <= SEQ_LEN]
    else:
        unanswered = []
    stored = stored_chats(rows)
    assert [stored[key] for key in sorted(stored)] == expected
    ledger = counts_of(tmp_path / "out")
    assert ledger["rejected"] == len(bad) + len(unanswered)
    assert ledger["read"] == len(records) == ledger["written"] + ledger["rejected"] + ledger["filtered"]
    assert ledger["filtered"] == (num_long if "seq_len" in words and "truncate" not in way else 0)
    assert ledger["transforms"]["packing"]["tokens-stored"] == sum(len(ids) for ids, _ in expected)
    assert ledger["transforms"]["packing"].get("padding", 0) == sum(row.num_padding for row in rows)


def stored_chats(rows) -> dict[str, tuple[list[int], list[int]]]:
    """Tokens and mask of each chat, from rows where every piece is a whole chat, or the beginning of one."""
    found = {}
    for row in rows:
        assert row.doc_ids is not None and row.loss_mask is not None
        assert len(row.loss_mask) == len(row.tokens)
        at = 0
        for name, length in zip(row.doc_ids, row.seq_lens, strict=True):
            key, _, place = name.partition("@")
            assert key not in found and place.partition(":")[0] in ("", "0")
            mask = row.loss_mask[at : at + length]
            assert mask[0] == 0 and any(mask)
            found[key] = (row.tokens[at : at + length], mask)
            at += length
        assert not any(row.loss_mask[at:])
    return found


@pytest.mark.slow
def test_real_chats_are_trained_on_exactly_what_the_assistant_says(corpora, tmp_path):
    """Decoded by the library, the masked-in tokens of a chat are its answers, each with the end of its turn."""
    tokenizer = corpora / "tokenizers" / "qwen3"
    source = corpora / "text" / "chats.jsonl"
    pack(source, tmp_path / "out", tokenizer=tokenizer, chat="", seq_len="1024", doc_ids="")
    stored = stored_chats(rows_of(tmp_path / "out"))
    chats = [json.loads(line)["messages"] for line in source.read_bytes().splitlines()]
    assert len(stored) == len(chats) == 2000
    assert {len(row.tokens) for row in rows_of(tmp_path / "out")} == {1024}
    for key, messages in zip(sorted(stored), chats, strict=True):
        ids, mask = stored[key]
        spans = np.split(np.array(ids), np.flatnonzero(np.diff(mask)) + 1)[1 - mask[0] :: 2]
        # What qwen3's template puts before an answer, an empty thought, is not the assistant's.
        answers = [text_of(tokenizer, span.tolist()).removeprefix("<think>\n\n</think>\n\n") for span in spans]
        assert answers == [message["content"] + "<|im_end|>" for message in messages if message["role"] == "assistant"]
    ledger = counts_of(tmp_path / "out")["transforms"]
    assert ledger["chat"]["loss-tokens"] == sum(sum(mask) for _, mask in stored.values())
    assert Counter(len(total) for total, _ in documents_of(rows_of(tmp_path / "out")).values()).total() == 2000
