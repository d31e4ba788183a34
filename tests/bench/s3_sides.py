"""Small sides in a bucket, what is in them, and a stand-in for the program ``aws``."""

import os
import sys
from pathlib import Path
from typing import Any

from bench_sides import as_files, as_lines, as_mds, as_tars, pictures
from s3_stores import BUCKET, client_of

SAMPLES = pictures(45)
ENCODINGS = {"json": "bytes", "png": "png"}
RECORDS = [{"n": i, "text": "word " * (i % 7)} for i in range(60)]

AWS = f"""#!{sys.executable}
import sys
import boto3
s3, cp, uri, _ = sys.argv[1:]
bucket, _, key = uri.removeprefix("s3://").partition("/")
body = boto3.client(s3).get_object(Bucket=bucket, Key=key)["Body"]
try:
    for piece in body.iter_chunks(4096):
        sys.stdout.buffer.write(piece)
    sys.stdout.flush()
except BrokenPipeError:
    sys.stderr.close()
"""


def make_aws(folder: Path) -> str:
    """A folder for ``PATH`` with a program that understands ``aws s3 cp URI -``."""
    folder.mkdir(exist_ok=True)
    program = folder / "aws"
    program.write_text(AWS)
    program.chmod(0o755)
    return str(folder)


def local_sides(folder: Path) -> dict[str, str]:
    return {
        "files": as_files(folder / "files", SAMPLES),
        "wds": as_tars(folder / "wds", SAMPLES),
        "mds": as_mds(folder / "mds", SAMPLES, ENCODINGS),
        "jsonl": str(Path(as_lines(folder / "lines.jsonl", RECORDS))),
    }


def upload(environment: dict[str, str], local: dict[str, str], prefix: str) -> dict[str, str]:
    """The same in the bucket, by a plain client."""
    client: Any = client_of(environment)
    found = {}
    for kind, path in local.items():
        found[kind] = f"s3://{BUCKET}/{prefix}/{os.path.basename(path)}"
        files = [Path(path)] if os.path.isfile(path) else sorted(file for file in Path(path).rglob("*") if file.is_file())
        for file in files:
            name = os.path.relpath(file, os.path.dirname(path))
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=file.read_bytes())
    return found
