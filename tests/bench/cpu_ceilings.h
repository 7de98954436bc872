// Measures the limits of this processor: bytes read from memory, and operations of the instructions
// used by matrix products.
//
// Each instruction is in a function with its own target, chosen at run time, so that the program
// runs on any x86-64 and skips missing instructions. On other architectures, only reading is
// measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minisgl {

enum class OperandKind { kF32, kBf16, kInt8 };

struct InstructionRate {
  OperandKind kind;
  std::string name;  // "vpdpbusd zmm"
  int vector_bits;   // of tiles: all bits of one
  bool is_dot;       // a dedicated dot product instruction: VNNI, AVX512_BF16
  double per_s;      // operations of all threads; a multiply-add counts as two
};

struct CpuCeilings {
  int num_threads = 1;
  uint64_t read_bytes = 0;  // bytes that were read
  double read_bytes_per_s = 0;
  std::vector<InstructionRate> rates;

  // Returns the fastest of `kind` with vectors (or tiles) of at most `bits_max` bits, without
  // dedicated dot products if not `with_dot`; null if there is none.
  const InstructionRate* Best(OperandKind kind, int bits_max, bool with_dot) const;
};

// Reading: the better of with and without prefetching. Each figure is the best of several runs.
CpuCeilings MeasureCpuCeilings(int num_threads);

// Size of the last-level cache as reported by the system; 0 if unknown.
uint64_t LastLevelCacheBytes();

// Returns a size larger than any cache: 4 x the last level, at least `least`, at most a third of
// free memory.
uint64_t ColdBytes(uint64_t least);

}  // namespace minisgl
