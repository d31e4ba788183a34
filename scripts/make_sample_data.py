"""Make a small-file dataset and a JSONL file to pack, the same bytes on each run with the same Pillow.

``OUT/images/00/000123.jpg`` and ``.json`` are pairs of about 3 KB: an encoded image, and its caption, size and label.
``OUT/docs.jsonl`` holds records of about 1 KB: made-up words in ten scripts, drawn as unevenly as words of real text are,
so that a compressor finds what it finds in text and no more. ``OUT/tokenizer`` is a small tokenizer trained on them, and
``OUT/chats.jsonl`` holds chats.
"""

import argparse
import os
import random
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
from _sample_chats import write_chats, write_tokenizer
from PIL import Image, ImageDraw

SEED = 20_240_501
PAIRS_PER_FOLDER = 1000
NUM_BASE_IMAGES = 384
"""Encoded once each; every file made of one carries a comment of its own, so no two files are equal."""
NUM_WORDS = 6000
"""Words a language has."""
BLOCK_BYTES = 1 << 20

COLOURS = ("crimson", "orange", "gold", "olive", "teal", "navy", "purple", "gray")
SHAPES = ("gradient", "circles", "polygon", "stripes", "noise", "mosaic")
PLACES = ("on a hill", "by the river", "at dawn", "under a bridge", "in fog", "near the harbour", "after rain", "in a hall")
SITES = ("atlas", "archive", "harbour", "journal", "library", "meadow", "observatory", "workshop")
TOPICS = ("art", "biology", "cities", "energy", "food", "geology", "history", "law", "maps", "music", "sport", "trade", "weather")

# Onsets, vowels and codas that words are made of; Chinese and Japanese words are drawn from ranges of characters.
SYLLABLES = {
    "en": ("b c d f g h l m n p r s t v w th st br cl tr", "a e i o u ea ou ai", "n r l s t nd st ck rm ng"),
    "de": ("b d f g h k l m n r s t w z sch st pf", "a e i o u ä ö ü ei au", "n r l t s ch nd rt ng st"),
    "tr": ("b c ç d f g h k l m n p r s ş t y z", "a e ı i o ö u ü", "n r l k t m ş z"),
    "ru": ("б в г д ж з к л м н п р с т ф х ч ш", "а е и о у ы я ю", "н р л т с к м ль ть"),
    "el": ("β γ δ θ κ λ μ ν π ρ σ τ φ χ", "α ε η ι ο υ ω ου αι", "ν ρ σ ς"),
    "ar": ("ب ت ث ج ح خ د ر ز س ش ص ط ع غ ف ق ك ل م ن", "ا و ي", "ب د ر ن م ل ة"),
    "hi": ("क ख ग च ज ट ड त द न प ब म य र ल व श स ह", "ा ि ी ु े ो", "न र ल त म"),
    "ko": ("가 나 다 라 마 바 사 아 자 하", "각 난 달 람 밥 상 을 정 항 서 도 시", "은 는 이 를 에 의"),
}
CHARACTERS = {"zh": (0x4E00, 0x62FF), "ja": (0x3042, 0x3093)}
UNSPACED = frozenset(CHARACTERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write into")
    parser.add_argument("--pairs", type=int, default=2000, help="JPEG and JSON pairs (default: %(default)s)")
    parser.add_argument("--records", type=int, default=20_000, help="JSONL records (default: %(default)s)")
    parser.add_argument("--chats", type=int, default=2000, help="JSONL chats, and a tokenizer (default: %(default)s)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.pairs:
        num_bytes = write_pairs(arguments.out / "images", arguments.pairs)
        print(f"{arguments.out / 'images'}: {arguments.pairs:,} pairs, {num_bytes:,} bytes")
    if arguments.records:
        num_bytes = write_records(arguments.out / "docs.jsonl", arguments.records)
        print(f"{arguments.out / 'docs.jsonl'}: {arguments.records:,} records, {num_bytes:,} bytes")
    if arguments.chats and arguments.records:
        words = vocabulary("en")
        write_tokenizer(arguments.out / "tokenizer", arguments.out / "docs.jsonl")
        write_chats(arguments.out / "chats.jsonl", arguments.chats, lambda rng: document(rng, "en", words), SEED)
        print(f"{arguments.out / 'chats.jsonl'}: {arguments.chats:,} chats")


def write_pairs(folder: Path, num_pairs: int) -> int:
    """Write pairs 0 to ``num_pairs``, 1,000 a folder; each depends on its number alone. Returns the bytes written."""
    images = base_images(min(num_pairs, NUM_BASE_IMAGES))
    written = 0
    for begin in range(0, num_pairs, PAIRS_PER_FOLDER):
        subfolder = folder / f"{begin // PAIRS_PER_FOLDER:02d}"
        subfolder.mkdir(parents=True, exist_ok=True)
        for i in range(begin, min(begin + PAIRS_PER_FOLDER, num_pairs)):
            caption, jpeg, meta = pair(i, images[i % len(images)])
            written += write_file(f"{subfolder}/{i:06d}.jpg", with_comment(jpeg, f"{i:06d}: {caption}"))
            written += write_file(f"{subfolder}/{i:06d}.json", orjson.dumps(meta))
    return written


def pair(i: int, image: tuple[bytes, dict[str, Any]]) -> tuple[str, bytes, dict[str, Any]]:
    """Caption, JPEG and description of pair ``i``."""
    rng = random.Random(f"{SEED} pair {i}")
    jpeg, facts = image
    place = rng.choice(PLACES)
    caption = f"{facts['colour']} {facts['label_name']} {place}, photo {rng.randrange(10**6)} of the {rng.choice(SITES)} series"
    meta = {
        "caption": caption,
        "width": facts["width"],
        "height": facts["height"],
        "label": facts["label"],
        "label_name": facts["label_name"],
        "score": rng.randrange(10**4) / 10**4,
        "tags": rng.sample(TOPICS, rng.randint(1, 4)),
        "source": f"https://{rng.choice(SITES)}.example/{rng.choice(TOPICS)}/{rng.randrange(10**8):08d}.jpg",
    }
    return caption, jpeg, meta


def base_images(count: int) -> list[tuple[bytes, dict[str, Any]]]:
    """Encoded images of many kinds and sizes, each with what is known of it."""
    rng = random.Random(f"{SEED} images")
    images = []
    for i in range(NUM_BASE_IMAGES):
        label = i % len(SHAPES)
        size = (rng.randrange(64, 137, 8), rng.randrange(64, 137, 8))
        colour = "gray" if i % 11 == 10 else rng.choice(COLOURS)
        image = PAINTERS[label](rng, size, colour)
        if colour == "gray":
            image = image.convert("L")
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=rng.randrange(55, 90), progressive=i % 7 == 6)
        facts = {"width": size[0], "height": size[1], "label": label, "label_name": SHAPES[label], "colour": colour}
        images.append((buffer.getvalue(), facts))
        if len(images) == count:
            break
    return images


def write_file(path: str, data: bytes) -> int:
    """Write a small file at once; without file objects, which would take longer than the writing."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def with_comment(jpeg: bytes, text: str) -> bytes:
    """The same picture with a comment segment right after the start marker, where JPEG allows one."""
    comment = text.encode("ascii")
    return jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:]


Size = tuple[int, int]


def gradient(rng: random.Random, size: Size, colour: str) -> Image.Image:
    ramp = Image.linear_gradient("L").rotate(rng.randrange(4) * 90).resize(size)
    return Image.composite(Image.new("RGB", size, colour), grain(rng, size, 24), ramp)


def circles(rng: random.Random, size: Size, colour: str) -> Image.Image:
    image = grain(rng, size, 20)
    draw = ImageDraw.Draw(image)
    for _ in range(rng.randint(3, 9)):
        x, y, radius = rng.randrange(size[0]), rng.randrange(size[1]), rng.randint(6, 40)
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=rng.choice((colour, *COLOURS)), outline="black")
    return image


def polygon(rng: random.Random, size: Size, colour: str) -> Image.Image:
    image = grain(rng, size, 16)
    points = [(rng.randrange(size[0]), rng.randrange(size[1])) for _ in range(rng.randint(3, 8))]
    ImageDraw.Draw(image).polygon(points, fill=colour, outline="white")
    return image


def stripes(rng: random.Random, size: Size, colour: str) -> Image.Image:
    image = Image.radial_gradient("L").resize(size).convert("RGB")
    draw = ImageDraw.Draw(image)
    for x in range(0, size[0], rng.randint(9, 24)):
        draw.line((x, 0, x + rng.randint(-30, 30), size[1]), fill=colour, width=rng.randint(1, 5))
    return image


def noise(rng: random.Random, size: Size, colour: str) -> Image.Image:
    return Image.blend(grain(rng, size, 40), Image.new("RGB", size, colour), rng.uniform(0.3, 0.6))


def mosaic(rng: random.Random, size: Size, colour: str) -> Image.Image:
    tiles = grain(rng, size, 10).resize(size, Image.Resampling.NEAREST)
    ImageDraw.Draw(tiles).rectangle((8, 8, size[0] // 2, size[1] // 2), fill=colour)
    return tiles


def grain(rng: random.Random, size: Size, cells: int) -> Image.Image:
    """Random colours on a grid of about ``cells`` a side, made smooth."""
    return Image.frombytes("RGB", (cells, cells), rng.randbytes(3 * cells * cells)).resize(size, Image.Resampling.BICUBIC)


PAINTERS: tuple[Callable[[random.Random, Size, str], Image.Image], ...] = (gradient, circles, polygon, stripes, noise, mosaic)


def write_records(path: Path, num_records: int) -> int:
    """Write records 0 to ``num_records``, each a line. Returns the bytes written."""
    written = 0
    block: list[bytes] = []
    block_bytes = 0
    with open(path, "wb") as file:
        for record in records(num_records):
            line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
            block.append(line)
            block_bytes += len(line)
            if block_bytes >= BLOCK_BYTES:
                written += file.write(b"".join(block))
                block, block_bytes = [], 0
        written += file.write(b"".join(block))
    return written


def records(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(f"{SEED} records")
    vocabularies = {language: vocabulary(language) for language in (*SYLLABLES, *CHARACTERS)}
    languages = [*vocabularies, "en", "en", "de", "zh"]
    for i in range(count):
        language = rng.choice(languages)
        text = document(rng, language, vocabularies[language])
        yield {
            "id": f"doc-{i:09d}",
            "text": text,
            "url": f"https://{rng.choice(SITES)}.example/{language}/{rng.choice(TOPICS)}/{rng.randrange(10**9):09d}?page={i % 97}",
            "score": rng.randrange(10**6) / 10**6,
            "lang": language,
            "num_characters": len(text),
            "tags": rng.sample(TOPICS, rng.randint(0, 4)),
        }


def vocabulary(language: str) -> list[str]:
    """The language's words, each as often as Zipf's law has it, so that ``choices`` needs no weights; short ones are common."""
    rng = random.Random(f"{SEED} words {language}")
    words: dict[str, None] = {}
    while len(words) < NUM_WORDS:
        words[word(rng, language)] = None
    ranked = sorted(words, key=lambda known: len(known) * rng.random())
    return [known for rank, known in enumerate(ranked, 2) for _ in range(max(1, NUM_WORDS // rank))]


def word(rng: random.Random, language: str) -> str:
    if language in CHARACTERS:
        return "".join(chr(rng.randint(*CHARACTERS[language])) for _ in range(rng.randint(1, 4)))
    onsets, vowels, codas = (part.split() for part in SYLLABLES[language])
    syllables = [rng.choice(onsets) + rng.choice(vowels) for _ in range(rng.randint(1, 3))]
    return "".join(syllables) + (rng.choice(codas) if rng.random() < 0.6 else "")


def document(rng: random.Random, language: str, words: list[str]) -> str:
    """Sentences in paragraphs, 300 to 1,300 bytes of UTF-8; with quotes, numbers and line ends, which JSON has to escape."""
    room = rng.randint(300, 1300)
    unspaced = language in UNSPACED
    stop = "。" if unspaced else ". "
    sentences: list[str] = []
    while room > 0:
        drawn = rng.choices(words, k=rng.randint(5, 22))
        extra = rng.random()
        if extra < 0.2:
            drawn[2] = f'"{drawn[2]}"'
        elif extra < 0.4:
            drawn[3] = str(rng.randrange(10_000))
        sentence = ("" if unspaced else " ").join(drawn) + ("\n" if extra > 0.9 else stop)
        sentences.append(sentence.capitalize())
        room -= len(sentence.encode())
    return "".join(sentences).rstrip()


if __name__ == "__main__":
    main()
