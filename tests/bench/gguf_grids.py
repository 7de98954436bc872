"""Blocks of the types of GGUF files with codebooks, for gguf_perplexity.py: each row of numbers becomes the nearest row of the
codebook, without llama.cpp's search and weights. Needs the packages gguf and numpy."""
import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

CLASSES = gguf.quants._type_traits


def grid_of(kind):
    its = CLASSES[kind]
    its.init_grid()
    return its.grid.reshape(its.grid_shape).astype(np.float32)


def nearest_rows(values, grid):
    """The index of the row of `grid` that is nearest to each row of `values`."""
    half = (grid * grid).sum(axis=1) / 2
    parts = [(part @ grid.T - half).argmax(axis=1) for part in np.array_split(values, len(values) // 4096 + 1)]
    return np.concatenate(parts)


def halves(values):
    return values.astype(np.float16).view(np.uint8).reshape(len(values), 2)


def ratio(values, scale):
    return np.divide(values, scale, out=np.zeros(np.broadcast(values, scale).shape, np.float32), where=scale != 0)


def scaled(blocks, group, largest, steps, factor):
    """Numbers of groups in units of d * factor * (2 s + 1), with s below `steps`: (numbers [N, 256], s, d)."""
    groups = blocks.reshape(len(blocks), -1, group)
    wanted = np.abs(groups).max(axis=2) / largest
    d = (wanted.max(axis=1) / (factor * (2 * steps - 1))).astype(np.float16).astype(np.float32)
    s = np.clip(np.round((ratio(wanted, d[:, None] * factor) - 1) / 2), 0, steps - 1).astype(np.uint32)
    numbers = ratio(groups, (d[:, None] * factor * (2 * s + 1))[:, :, None])
    return numbers.reshape(len(blocks), -1), s, d


def signs_of(numbers, even):
    """The signs of each eight numbers as bits. `even`: an even number of them is set; the smallest number pays for it."""
    eight = numbers.reshape(-1, 8).copy()
    if even:
        odd = (eight < 0).sum(axis=1) % 2 == 1
        smallest = np.abs(eight).argmin(axis=1)
        rows = np.flatnonzero(odd)
        eight[rows, smallest[rows]] = np.where(eight[rows, smallest[rows]] < 0, 1, -1)
    return ((eight < 0) << np.arange(8)).sum(axis=1).reshape(len(numbers), -1).astype(np.uint32)


def nibbles(s):
    return (s[:, ::2] | s[:, 1::2] << 4).astype(np.uint8)


def words(signs, s):
    """Four times 7 bits of signs and a scale in 32 bits."""
    four = signs.reshape(len(signs), -1, 4) & 0x7F
    return (four << np.array([0, 7, 14, 21], np.uint32)).sum(axis=2).astype(np.uint32) | s << np.uint32(28)


def rows_of(numbers, kind, width):
    return nearest_rows(np.abs(numbers).reshape(-1, width), grid_of(kind)).reshape(len(numbers), -1).astype(np.uint32)


def iq2_xxs(blocks):
    numbers, s, d = scaled(blocks, 32, 43, 16, 1 / 8)
    rows = rows_of(numbers, Type.IQ2_XXS, 8).astype(np.uint8).reshape(len(blocks), 8, 4)
    signs = words(signs_of(numbers, True), s)
    return [halves(d), np.concatenate([rows, signs.view(np.uint8).reshape(len(blocks), 8, 4)], axis=2).reshape(len(blocks), -1)]


def iq2_xs(blocks):
    numbers, s, d = scaled(blocks, 16, 43, 16, 1 / 8)
    both = rows_of(numbers, Type.IQ2_XS, 8) | (signs_of(numbers, True) & 0x7F) << 9
    return [halves(d), both.astype(np.uint16).view(np.uint8).reshape(len(blocks), -1), nibbles(s)]


def iq2_s(blocks):
    numbers, s, d = scaled(blocks, 16, 43, 16, 1 / 8)
    rows = rows_of(numbers, Type.IQ2_S, 8)
    upper = ((rows >> 8).reshape(len(blocks), 8, 4) << np.array([0, 2, 4, 6], np.uint32)).sum(axis=2)
    return [halves(d), (rows & 0xFF).astype(np.uint8), signs_of(numbers, False).astype(np.uint8), upper.astype(np.uint8), nibbles(s)]


def iq3_xxs(blocks):
    numbers, s, d = scaled(blocks, 32, 62, 16, 1 / 4)
    signs = words(signs_of(numbers, True), s)
    return [halves(d), rows_of(numbers, Type.IQ3_XXS, 4).astype(np.uint8), signs.view(np.uint8).reshape(len(blocks), -1)]


def iq3_s(blocks):
    numbers, s, d = scaled(blocks, 32, 15, 16, 1)
    rows = rows_of(numbers, Type.IQ3_S, 4)
    ninth = ((rows >> 8).reshape(len(blocks), 8, 8) << np.arange(8, dtype=np.uint32)).sum(axis=2)
    return [halves(d), (rows & 0xFF).astype(np.uint8), ninth.astype(np.uint8), signs_of(numbers, False).astype(np.uint8), nibbles(s)]


def iq1_rows(numbers, of_delta):
    """The nearest rows of IQ1, with an eighth added, or subtracted, whichever suits each run of `of_delta` numbers better."""
    grid = grid_of(Type.IQ1_S)
    found = []
    for delta in (0.125, -0.125):
        rows = nearest_rows(numbers.reshape(-1, 8) - np.float32(delta), grid)
        error = ((grid[rows] + delta - numbers.reshape(-1, 8)) ** 2).reshape(-1, of_delta).sum(axis=1)
        found.append((rows.reshape(-1, of_delta // 8), error))
    minus = found[1][1] < found[0][1]
    rows = np.where(minus[:, None], found[1][0], found[0][0])
    return rows.reshape(len(numbers), -1).astype(np.uint32), minus.reshape(len(numbers), -1).astype(np.uint32)


def iq1_s(blocks):
    numbers, s, d = scaled(blocks, 32, 1.125, 8, 1)
    rows, minus = iq1_rows(numbers, 32)
    upper = ((rows >> 8).reshape(len(blocks), 8, 4) << np.array([0, 3, 6, 9], np.uint32)).sum(axis=2)
    word = upper.astype(np.uint32) | s << 12 | minus << 15
    return [halves(d), (rows & 0xFF).astype(np.uint8), word.astype(np.uint16).view(np.uint8).reshape(len(blocks), -1)]


def iq1_m(blocks):
    numbers, s, d = scaled(blocks, 16, 1.125, 8, 1)
    rows, minus = iq1_rows(numbers, 8)
    upper = rows >> 8 | minus << 3
    scales = (s.reshape(len(blocks), 4, 4) << np.array([0, 3, 6, 9], np.uint32)).sum(axis=2).astype(np.uint16)
    scales |= (d.astype(np.float16).view(np.uint16)[:, None] >> np.array([0, 4, 8, 12], np.uint16) & 15) << 12
    return [(rows & 0xFF).astype(np.uint8), nibbles(upper), scales.view(np.uint8).reshape(len(blocks), -1)]


def nvfp4(blocks):
    groups = blocks.reshape(len(blocks), 4, 16)
    scales = CLASSES[Type.NVFP4].fp32_to_ue4m3(np.abs(groups).max(axis=2) / 6)
    d = CLASSES[Type.NVFP4].ue4m3_to_fp32(scales)
    numbers = np.array(CLASSES[Type.NVFP4].kvalues, np.float32)
    codes = np.abs(ratio(groups, d[:, :, None])[..., None] - numbers).argmin(axis=-1).astype(np.uint8)
    return [scales.astype(np.uint8), (codes[:, :, :8] | codes[:, :, 8:] << 4).reshape(len(blocks), -1)]


OWN = {Type.IQ1_S: iq1_s, Type.IQ1_M: iq1_m, Type.IQ2_XXS: iq2_xxs, Type.IQ2_XS: iq2_xs, Type.IQ2_S: iq2_s, Type.IQ3_XXS: iq3_xxs,
       Type.IQ3_S: iq3_s, Type.NVFP4: nvfp4}
