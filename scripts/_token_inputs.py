"""Distinct text to tokenize: the corpora, and the documentation and source text of what is installed. Repeated text flatters caches."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from _inputs import SCRIPTS
from _measure import run_command, say
from _token_peers import EOS

CORPORA = "SHARDTOOLS_CORPORA"
_SUFFIXES = (".html", ".md", ".py", ".rst", ".txt")
_NUM_PARTS = 8
_MOST_OF_A_PACKAGE_BYTES = 12_000_000
"""Large packages are generated code, every file of which says the same."""
_MOST_OF_A_DOCUMENT_BYTES = 1_000_000


def tokenizer_folder() -> Path | None:
    """The gpt2 of the corpora."""
    folder = Path(os.environ.get(CORPORA, ""), "tokenizers", "gpt2")
    return folder if os.environ.get(CORPORA) and (folder / "tokenizer.json").exists() else None


def distinct_text(work: Path, num_bytes: int, *, with_corpora: bool) -> tuple[Path, int]:
    """A folder of ``parts/*.jsonl``, about ``num_bytes`` of text, with ``tokenizer/`` and ``counts.json``, and how many documents it has.

    Made once. In the order of the texts' hashes, so that any beginning of it is a fair sample.
    """
    tokenizer = tokenizer_folder()
    assert tokenizer is not None, "the case is left out without it"
    folder = work / f"text-{num_bytes}{'-corpora' if with_corpora else ''}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        (unfinished / "parts").mkdir(parents=True)
        shutil.copytree(tokenizer, unfinished / "tokenizer", copy_function=shutil.copyfile)
        # In a process of its own, for the sake of this one's peak memory.
        made_of = [CORPORA] if with_corpora else []
        run_command([sys.executable, str(SCRIPTS / "_token_inputs.py"), str(unfinished), str(num_bytes), *made_of])
        run_command([sys.executable, str(SCRIPTS / "_token_peers.py"), "count-tokens", str(unfinished), str(unfinished)])
        unfinished.rename(folder)
    facts = json.loads((folder / "facts.json").read_text())
    say(f"distinct text: {facts['documents']:,} documents, {facts['bytes'] / 1e6:,.1f} MB")
    return folder, facts["documents"]


def one_document(work: Path) -> Path:
    """What takes no time to tokenize: what is left is starting, and loading the tokenizer."""
    path = work / "one-document.jsonl"
    path.write_text('{"text": "one"}\n')
    return path


def datatrove_python(work: Path) -> Path | None:
    """The Python of a virtual environment with datatrove and our version of tokenizers, made once; None where it cannot be."""
    venv = work / "datatrove"
    python = venv / "bin" / "python"
    packages = ["datatrove", "orjson", "numpy"]
    try:
        packages.append(f"tokenizers=={version('tokenizers')}")
        if not (venv / ".installed").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, stdout=sys.stderr)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True, stdout=sys.stderr)
            (venv / ".installed").touch()
        check = "import datatrove.pipeline.tokens, importlib.metadata; print(importlib.metadata.version('datatrove'))"
        found = subprocess.run([str(python), "-c", check], check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError, PackageNotFoundError) as error:
        say(f"datatrove is left out, since it cannot be installed: {error}")
        return None
    say(f"datatrove {found}")
    return python


def _write(parts: Path, num_bytes: int, with_corpora: bool) -> tuple[int, int]:
    """How many documents, and bytes of text, it wrote."""
    found = _corpora() if with_corpora else {}
    total = sum(map(len, found.values()))
    for digest, text in sorted(_installed().items()):
        if total >= num_bytes:
            break
        if digest not in found:
            found[digest] = text
            total += len(text)
    texts = [text.decode() for _, text in sorted(found.items())]
    for i in range(_NUM_PARTS):
        lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts[i::_NUM_PARTS])
        (parts / f"{i}.jsonl").write_bytes("".join(lines).encode())
    return len(found), total


def _corpora() -> dict[bytes, bytes]:
    paths = sorted(Path(os.environ[CORPORA], "text").glob("*.jsonl"))
    records = (json.loads(line) for path in paths for line in path.read_bytes().splitlines())
    return _by_digest(record["text"].encode() for record in records if "text" in record)


def _installed() -> dict[bytes, bytes]:
    roots = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    return _by_digest(text for root in sorted(roots) for text in _texts(Path(root)))


def _texts(root: Path) -> Iterator[bytes]:
    """Of every package a bounded part."""
    sizes = Counter[str]()
    for folder, subfolders, names in os.walk(root):
        # The standard library has a folder of packages in it that this Python may not even see.
        subfolders[:] = sorted(name for name in subfolders if name not in ("site-packages", "__pycache__"))
        for name in sorted(names):
            path = Path(folder, name)
            package = path.relative_to(root).parts[0]
            if path.suffix in _SUFFIXES and sizes[package] < _MOST_OF_A_PACKAGE_BYTES and not path.is_symlink():
                data = path.read_bytes()
                sizes[package] += len(data)
                yield data


def _by_digest(texts: Iterator[bytes]) -> dict[bytes, bytes]:
    """Those that every tool takes for the same text: UTF-8, not empty, not huge, without the token that some parse."""
    found = {}
    for text in texts:
        if 0 < len(text) <= _MOST_OF_A_DOCUMENT_BYTES and EOS.encode() not in text and _is_utf8(text):
            found[hashlib.sha256(text).digest()] = text
    return found


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def main() -> None:
    folder, num_bytes, *made_of = sys.argv[1:]
    num_documents, found_bytes = _write(Path(folder, "parts"), int(num_bytes), CORPORA in made_of)
    Path(folder, "facts.json").write_text(json.dumps({"documents": num_documents, "bytes": found_bytes}))


if __name__ == "__main__":
    main()
