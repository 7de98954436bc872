// Counter-based random numbers: number i of a stream is a function of (seed, i) alone, independent
// of when, where and in which batch it is drawn (promise 1 of src/README.md).
//
// Formula: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011),
// key = seed, counter = (index, stream). Thread-safe (no state). The same code runs on a GPU.
#pragma once

#include <cstdint>

#include "minisgl/base/host_device.h"

namespace minisgl {

struct RandomBits {
  uint32_t word[4];
};

MINISGL_HOST_DEVICE inline RandomBits PhiloxBits(uint64_t seed, uint64_t index,
                                                 uint64_t stream = 0) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Uniform in [0, 1) with 53 bits.
MINISGL_HOST_DEVICE inline double UniformDouble(uint64_t seed, uint64_t index,
                                                uint64_t stream = 0) {
  const RandomBits bits = PhiloxBits(seed, index, stream);
  const uint64_t word = (uint64_t{bits.word[0]} << 32 | bits.word[1]) >> 11;
  return static_cast<double>(word) * 0x1.0p-53;
}

// Derives the seed of row `index` from the run's seed.
MINISGL_HOST_DEVICE inline uint64_t DeriveSeed(uint64_t seed, uint64_t index) {
  const RandomBits bits = PhiloxBits(seed, index, 0x6d696e697367ull);
  return uint64_t{bits.word[2]} << 32 | bits.word[3];
}

// The seed of answer number `answer` (from 0) to a prompt with `seed`. The first answer uses `seed`
// itself. The others use words of a separate stream, so that they share no random numbers with
// answers of neighbouring seeds or of a seed from DeriveSeed.
MINISGL_HOST_DEVICE inline uint64_t AnswerSeed(uint64_t seed, uint64_t answer) {
  if (answer == 0) return seed;
  const RandomBits bits = PhiloxBits(seed, answer, 0x616e73776572ull);
  return uint64_t{bits.word[2]} << 32 | bits.word[3];
}

}  // namespace minisgl
