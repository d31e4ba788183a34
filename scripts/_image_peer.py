"""Decode and scale JPEG files with whichever Pillow this Python has, as ``pack --image-resize`` does.

python _image_peer.py FOLDER SIDE         # prints the seconds of the loop and of its parts

Needs nothing but Pillow, so that it runs in an environment of its own.
"""

import sys
import time
from io import BytesIO
from pathlib import Path

from PIL import Image


def main() -> None:
    folder, side = Path(sys.argv[1]), int(sys.argv[2])
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    decode = scale = encode = 0.0
    for data in files:
        began = time.perf_counter()
        image = Image.open(BytesIO(data))
        short = min(image.size)
        size = (image.width * side // short, image.height * side // short)
        image.draft(None, (2 * size[0], 2 * size[1]))
        image.load()
        decoded = time.perf_counter()
        scaled = image.resize(size, Image.Resampling.LANCZOS)
        done = time.perf_counter()
        scaled.save(BytesIO(), "JPEG", quality=92)
        decode, scale, encode = decode + decoded - began, scale + done - decoded, encode + time.perf_counter() - done
    print(f"decode_seconds={decode:.6f}\nscale_seconds={scale:.6f}\nencode_seconds={encode:.6f}")
    print(f"loop_seconds={decode + scale:.6f}")


if __name__ == "__main__":
    main()
