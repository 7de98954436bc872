"""Makes the pictures in golden/pictures and golden/pictures.json: what Pillow decodes of each.

    python3 tests/vision/make_picture_goldens.py     # needs Pillow and numpy; made with Pillow 13.0

Each entry has the size and the SHA-256 of the RGB bytes, with alpha dropped and laid over white. Two rules are not Pillow's:
16-bit gray keeps the high byte, and the transparent gray of 2 and 4 bits is compared as stored.
"""
import hashlib
import json
import struct
import zlib
from pathlib import Path

import numpy
from PIL import Image, ImageOps

FOLDER = Path(__file__).parent / "golden"
RANDOM = numpy.random.default_rng(2026)
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def rows_of(pixels, depth):
    data = b""
    for row in pixels:
        values = row.reshape(-1)
        if depth == 16:
            packed = values.astype(">u2").tobytes()
        else:
            bits = "".join(format(int(value), f"0{depth}b") for value in values)
            bits += "0" * (-len(bits) % 8)
            packed = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
        data += b"\0" + packed
    return data


def png(pixels, depth, color, interlaced=False, key=None, palette=None):
    height, width = pixels.shape[:2]
    passes = PASSES if interlaced else ((0, 0, 1, 1),)
    parts = [pixels[y::dy, x::dx] for x, y, dx, dy in passes]
    data = b"".join(rows_of(part, depth) for part in parts if part.size)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)) +
            (chunk(b"PLTE", palette) if palette else b"") + (chunk(b"tRNS", key) if key else b"") +
            chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def over_white(rgba):
    values = numpy.array(rgba).astype(numpy.int64)
    alpha = values[..., 3:]
    return ((values[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(numpy.uint8)


def repeated(gray):
    return numpy.repeat(gray[..., None], 3, axis=2).astype(numpy.uint8)


class Goldens:
    def __init__(self):
        self.entries = []

    def add(self, name, data, drop=None, white=None):
        path = FOLDER / "pictures" / name
        path.write_bytes(data)
        picture = ImageOps.exif_transpose(Image.open(path))
        drop = numpy.array(picture.convert("RGB")) if drop is None else drop
        white = over_white(picture.convert("RGBA")) if white is None else white
        self.entries.append({"file": name, "size": [drop.shape[1], drop.shape[0]],
                             "drop": hashlib.sha256(drop.tobytes()).hexdigest(),
                             "white": hashlib.sha256(white.tobytes()).hexdigest()})

    def save(self, name, picture, **options):
        path = FOLDER / "pictures" / name
        picture.save(path, **options)
        self.add(name, path.read_bytes())


def add_pngs(goldens):
    kinds = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8), (4, 8), (4, 16), (6, 8), (6, 16)]
    for color, depth in kinds:
        for interlaced in (False, True):
            palette = RANDOM.integers(0, 256, 3 << depth if depth < 8 else 600, dtype=numpy.uint8).tobytes() if color == 3 else None
            top = len(palette) // 3 if palette else 1 << depth
            pixels = RANDOM.integers(0, top, (9, 13, CHANNELS[color]))
            key = None
            if color == 3:
                key = RANDOM.integers(0, 256, max(top // 2, 1), dtype=numpy.uint8).tobytes()
            elif color in (0, 2) and interlaced:
                key = b"".join(struct.pack(">H", int(value)) for value in pixels[4, 6])
            drop = white = None
            if color == 0 and (depth == 16 or key):
                gray = pixels[..., 0]
                level = gray >> 8 if depth == 16 else gray * 255 // ((1 << depth) - 1)
                drop = repeated(level)
                white = repeated(numpy.where(gray == pixels[4, 6, 0], 255, level)) if key else drop
            elif color == 2 and depth == 16 and key:
                is_key = (pixels == pixels[4, 6]).all(axis=2, keepdims=True)
                white = numpy.where(is_key, 255, pixels >> 8).astype(numpy.uint8)
            name = f"png_{color}_{depth}{'_interlaced' if interlaced else ''}.png"
            goldens.add(name, png(pixels, depth, color, interlaced, key, palette), drop, white)


def smooth(width, height):
    return Image.fromarray(RANDOM.integers(0, 256, (5, 7, 3), dtype=numpy.uint8)).resize((width, height), Image.Resampling.BICUBIC)


def add_jpegs(goldens):
    picture = smooth(37, 27)
    for sampling, name in enumerate(("444", "422", "420")):
        goldens.save(f"jpeg_{name}.jpg", picture, quality=80, subsampling=sampling)
        goldens.save(f"jpeg_{name}_progressive.jpg", picture, quality=80, subsampling=sampling, progressive=True)
    goldens.save("jpeg_gray.jpg", picture.convert("L"))
    goldens.save("jpeg_cmyk.jpg", picture.convert("CMYK"))
    goldens.save("jpeg_cmyk_progressive.jpg", picture.convert("CMYK"), progressive=True)
    goldens.save("jpeg_restarts.jpg", picture, restart_marker_rows=1)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        goldens.save(f"jpeg_orientation_{orientation}.jpg", picture, quality=50, exif=exif)
    exif[0x0112] = 6
    goldens.save("png_orientation_6.png", smooth(5, 3), exif=exif)
    goldens.save("webp_orientation_6.webp", smooth(5, 3), exif=exif, lossless=True)


def add_others(goldens):
    picture = smooth(31, 23)
    clear = picture.copy()
    clear.putalpha(smooth(31, 23).convert("L"))
    goldens.save("webp_lossless.webp", picture, lossless=True)
    goldens.save("webp_lossless_alpha.webp", clear, lossless=True, exact=True)
    goldens.save("webp_lossy.webp", picture, quality=60)
    goldens.save("webp_lossy_alpha.webp", clear, quality=60)
    goldens.save("webp_animated.webp", clear, save_all=True, append_images=[clear.rotate(180)], lossless=True)
    few = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=19)
    goldens.save("gif.gif", few)
    goldens.save("gif_gray.gif", picture.convert("L"))
    goldens.save("gif_interlaced.gif", few, interlace=True)
    goldens.save("gif_transparent.gif", few, transparency=3)
    goldens.save("gif_animated.gif", few, save_all=True, append_images=[few.rotate(180)])
    # A frame smaller than its screen.
    small = Image.new("P", (4, 2))
    small.putpalette([1, 2, 3, 200, 100, 50, 9, 8, 7, 60, 70, 80])
    small.putdata([0, 1, 2, 3, 3, 2, 1, 0])
    small.save(FOLDER / "pictures" / "gif_offset.gif", transparency=2)
    body = bytearray((FOLDER / "pictures" / "gif_offset.gif").read_bytes())
    begin = body.index(b"\x2c" + struct.pack("<HH", 0, 0))
    body[begin + 1:begin + 5] = struct.pack("<HH", 2, 1)
    body[6:10] = struct.pack("<HH", 9, 5)
    goldens.add("gif_offset.gif", bytes(body))
    body[6:10] = struct.pack("<HH", 3, 2)  # the frame lies partly outside: the screen grows
    goldens.add("gif_outside.gif", bytes(body))


def main():
    (FOLDER / "pictures").mkdir(parents=True, exist_ok=True)
    goldens = Goldens()
    add_pngs(goldens)
    add_jpegs(goldens)
    add_others(goldens)
    lines = ",\n".join(json.dumps(entry) for entry in goldens.entries)
    (FOLDER / "pictures.json").write_text(f"[\n{lines}\n]\n")


main()
