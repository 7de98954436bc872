// What this processor can do at most, measured: bytes read from memory, and operations of the
// instructions that matrix products are made of.
//
// Each instruction is a function of its own target, chosen at run time, so that the program runs on
// any x86-64 and passes over what is missing; on other architectures only reading is measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minisgl {

enum class OperandKind { kF32, kBf16, kInt8 };

struct InstructionRate {
  OperandKind kind;
  std::string name;  // "vpdpbusd zmm"
  int vector_bits;
  bool is_dot;   // an instruction of its own for products of this kind: VNNI, AVX512_BF16
  double per_s;  // operations of all threads; a multiplication and an addition are two
};

struct CpuCeilings {
  int num_threads = 1;
  uint64_t read_bytes = 0;  // size of what was read
  double read_bytes_per_s = 0;
  std::vector<InstructionRate> rates;

  // The fastest of `kind` with vectors of at most `bits_max` bits, of those without a dot product
  // of their own where `with_dot` is false; null where there is none.
  const InstructionRate* Best(OperandKind kind, int bits_max, bool with_dot) const;
};

// The better of reading with and without prefetching, the best of several runs each.
CpuCeilings MeasureCpuCeilings(int num_threads);

// Of the last-level cache that the system tells of; 0 where it tells none.
uint64_t LastLevelCacheBytes();

// More than any cache keeps: 4 x the last level, at least `least`, at most a third of what memory
// is free.
uint64_t ColdBytes(uint64_t least);

}  // namespace minisgl
