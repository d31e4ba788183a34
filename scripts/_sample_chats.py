"""Chats of made-up words, and a small tokenizer with a chat template, trained on the records beside them."""

import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

VOCABULARY = 4000
TRAINED_RECORDS = 2000
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path, docs: Path) -> None:
    """Byte-level BPE of a few thousand words: ``tokenizer.json`` and ``tokenizer_config.json``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    with open(docs, encoding="utf-8") as file:
        tokenizer.train_from_iterator((json.loads(line)["text"] for line in islice(file, TRAINED_RECORDS)), trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|endoftext|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def write_chats(path: Path, count: int, text: Callable[[random.Random], str], seed: int) -> None:
    """One to four questions and answers each, some after a system message."""
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            rng = random.Random(f"{seed} chat {i}")
            messages = [{"role": "system", "content": "Answer briefly."}] if rng.random() < 0.3 else []
            for _ in range(rng.randint(1, 4)):
                messages += [{"role": "user", "content": text(rng)}, {"role": "assistant", "content": text(rng)}]
            file.write(json.dumps({"id": f"chat-{i:06d}", "messages": messages}, ensure_ascii=False) + "\n")
