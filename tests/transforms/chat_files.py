"""A small tokenizer for chats with templates of the kinds that models have, and what plain jinja2 makes of them."""

import json
from pathlib import Path
from typing import Any

import tokenizer_files as files
from tokenizers import AddedToken, Tokenizer

from shardtools.transforms.chat import Chat, settle_chat

START, END, CALL = "<|im_start|>", "<|im_end|>", "<tool_call>"
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRIMMED = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n\n{{ m['content'] | trim }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n\n{% endif %}"
)
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}"
    "{% for m in loop_messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m['content'] %}"
    "{% else %}{% set content = m['content'] %}{% endif %}"
    "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
GENERATION = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
    "{% else %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{% endif %}{% endfor %}"
)
BUILT = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
REASONING = (
    "{% macro show(text) %}{{ text | replace('\\r', '') }}{% endmacro %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and '</think>' in (m.content or '') %}"
    "{% set parts = m.content.split('</think>') %}"
    "<think>\n{{ parts[0].split('<think>')[-1].strip('\n') }}\n</think>\n\n{{ parts[-1].lstrip('\n') }}"
    "{% else %}{{ show(m.content or '') }}{% endif %}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n{{ call | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ALL = {"chatml": CHATML, "trimmed": TRIMMED, "llama2": LLAMA2, "generation": GENERATION, "built": BUILT, "reasoning": REASONING}


def chat_tokenizer(folder: Path, template: Any = CHATML) -> Path:
    path = files.small_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(path))
    special = (START, END, "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in (CALL, "</tool_call>")])
    tokenizer.save(str(path))
    config = {"bos_token": files.BOS, "eos_token": files.EOS, "chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def settled(folder: Path, **words: str) -> Chat:
    return settle_chat({"tokenizer": str(folder), **words})[0]


def messages(*pairs: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in pairs]


def masked_text(folder: Path, tokens: Any, mask: Any) -> str:
    """The text of the tokens in the loss."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return str(tokenizer.decode([int(token) for token, kept in zip(tokens, mask, strict=True) if kept], skip_special_tokens=False))


def text_of(folder: Path, tokens: Any) -> str:
    return masked_text(folder, tokens, [1] * len(tokens))
