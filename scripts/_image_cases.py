"""Pillow beside pillow-simd, which is built here in a virtual environment of its own."""

import random
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from _inputs import SCRIPTS, scaled
from _measure import Case, Claim, Round, Side, say

NUM_PHOTOS = 400
_WIDTH, _HEIGHT, _SIDE = 1600, 1200, 256


def images_case(work: Path, scale: float) -> Case:
    """Photos of two megapixels decoded and made smaller to 256: a process each, its start and imports not counted."""
    simd = _pillow_simd(work / "pillow-simd")
    if simd is None:
        return Case("images", [], [])
    count = scaled(NUM_PHOTOS, scale)
    folder = str(_photos(work / f"photos-{count}", count))
    sides = [Side(name, (python, str(SCRIPTS / "_image_peer.py"), folder, str(_SIDE)), count) for name, python in simd]
    pillow, simd_pillow = sides

    def times(part: str) -> Callable[[Round], float]:
        return lambda round_: round_[pillow.name].told[f"{part}_seconds"] / round_[simd_pillow.name].told[f"{part}_seconds"]

    claims = [
        Claim("images/s decoded and scaled, pillow-simd times what is installed", times("loop"), 1.0),
        Claim("the same, scaled alone", times("scale"), 1.0),
    ]
    return Case("images", sides, claims)


def _pillow_simd(folder: Path) -> list[tuple[str, str]] | None:
    """The names and interpreters of both sides; None, after saying so, where pillow-simd cannot be built."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    done = subprocess.run([str(SCRIPTS / "install_pillow_simd.sh"), str(python)], stdout=sys.stderr, check=False)
    if done.returncode:
        say("images: not measured, since pillow-simd could not be installed")
        return None
    told = [
        subprocess.run([each, "-c", "import PIL; print(PIL.__version__)"], check=True, capture_output=True, text=True).stdout.strip()
        for each in (sys.executable, str(python))
    ]
    name = "pillow-simd" if ".post" in told[0] else "Pillow"
    return [(f"{name} {told[0]}", sys.executable), (f"pillow-simd {told[1]}, apart", str(python))]


def _photos(folder: Path, count: int) -> Path:
    """``count`` JPEG files of noise and gradients, made once."""
    from PIL import Image, ImageDraw

    numbers = random.Random(3)
    unfinished = folder.with_suffix(".unfinished")
    if not folder.exists():
        say(f"making {count:,} photos")
        unfinished.mkdir(parents=True, exist_ok=True)
        base = Image.effect_noise((_WIDTH // 8, _HEIGHT // 8), 90).resize((_WIDTH, _HEIGHT), Image.Resampling.BICUBIC).convert("RGB")
        for i in range(count):
            image = base.copy()
            box = sorted(numbers.sample(range(_WIDTH), 2)), sorted(numbers.sample(range(_HEIGHT), 2))
            ImageDraw.Draw(image).ellipse((box[0][0], box[1][0], box[0][1], box[1][1]), fill=tuple(numbers.randbytes(3)))
            output = BytesIO()
            image.save(output, "JPEG", quality=90)
            (unfinished / f"{i:05d}.jpg").write_bytes(output.getvalue())
        unfinished.rename(folder)
    return folder
