"""Stops chats whose ids differ from what ``apply_chat_template`` gives, which is what the model will see when it is asked."""

import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import chat_files as chats
import pytest
import tokenizer_files as files


def reference(transformers: ModuleType, folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(str(folder))


CONTENTS = (
    "hello",
    " leading and trailing \n\n",
    "\n\n\ntwo\nlines\t",
    "café e\u0301 漢字 👩\u200d👩",
    "\U000f0000\U0010fffd private",
    'quotes "x" \\ and {{ braces }} {% endfor %}',
    "x" * 3000,
    "A < B > C [INST] <x>",
)


@pytest.mark.train
@pytest.mark.parametrize("name", sorted(chats.ALL))
def test_ids_are_those_of_transformers(tmp_path: Path, transformers: ModuleType, name: str) -> None:
    chats.chat_tokenizer(tmp_path, chats.ALL[name])
    theirs = reference(transformers, tmp_path)
    rng = random.Random(3)
    given = []
    for _ in range(40):
        pairs = [(("user", "assistant")[i % 2], rng.choice(CONTENTS)) for i in range(2 * rng.randint(1, 3))]
        given.append(chats.messages(*([("system", rng.choice(CONTENTS))] if rng.random() < 0.5 else []), *pairs))
    outcome = files.run(chats.settled(tmp_path), given)
    assert not outcome.rejects
    assert outcome.ids == [theirs.apply_chat_template(messages) for messages in given]


@pytest.mark.train
def test_reasoning_and_tool_calls(tmp_path: Path, transformers: ModuleType) -> None:
    chats.chat_tokenizer(tmp_path, chats.REASONING)
    theirs = reference(transformers, tmp_path)
    call = {"name": "find", "arguments": {"z": [1, 2.5, None, True], "a\n": 'say "é" \\', "empty": {}}}
    given = [
        chats.messages(("user", "why?"), ("assistant", "<think>\nlet me see\n</think>\n\nbecause\r\n")),
        [{"role": "user", "content": "find\r\n it"}, {"role": "assistant", "content": None, "tool_calls": [call, call]}],
    ]
    outcome = files.run(chats.settled(tmp_path), given)
    assert outcome.ids == [theirs.apply_chat_template(messages) for messages in given]
    assert [chats.masked_text(tmp_path, *pair) for pair in zip(outcome.columns["tokens"], outcome.columns["loss_mask"], strict=True)] == [
        "<think>\nlet me see\n</think>\n\nbecause\r\n<|im_end|>",
        f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" * 2 + "<|im_end|>",
    ]


@pytest.mark.train
def test_the_mask_of_a_template_that_marks_generation(tmp_path: Path, transformers: ModuleType) -> None:
    chats.chat_tokenizer(tmp_path, chats.GENERATION)
    given = [chats.messages(("user", "a b"), ("assistant", " c d"), ("user", "e"), ("assistant", content)) for content in CONTENTS]
    outcome = files.run(chats.settled(tmp_path), given)
    theirs = reference(transformers, tmp_path).apply_chat_template(given, return_assistant_tokens_mask=True, return_dict=True)
    assert outcome.ids == theirs["input_ids"]
    assert [mask.tolist() for mask in outcome.columns["loss_mask"]] == theirs["assistant_masks"]


@pytest.mark.train
@pytest.mark.parametrize("num_chats", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_real_chats(corpora: Path, transformers: ModuleType, num_chats: int) -> None:
    folder = corpora / "tokenizers" / "qwen3"
    with open(corpora / "text" / "chats.jsonl", encoding="utf-8") as file:
        given = [json.loads(line)["messages"] for line in file][:num_chats]
    outcome = files.run(chats.settled(folder), given)
    theirs = reference(transformers, folder)
    assert outcome.ids == [theirs.apply_chat_template(messages) for messages in given]
    for messages, tokens, mask in zip(given, outcome.columns["tokens"], outcome.columns["loss_mask"], strict=True):
        answers = [message["content"] + "<|im_end|>" for message in messages if message["role"] == "assistant"]
        assert theirs.decode(tokens[mask == 1]) == "".join(answers)
