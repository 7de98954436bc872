// The tile registers of AMX: matrices of at most 16 rows of 64 bytes, and the product of two of
// them in bf16.
//
// HardwareTiles are the registers of the calling thread. SoftwareTiles compute the same bits
// without them, slowly: kernels are written over either, so that machines without AMX can test
// them.
//
// The product adds to each f32 sum, with x[m] of 16 pairs of inputs and w[n] likewise,
//   (x0 w0 + x2 w2 + ...) + (x1 w1 + x3 w3 + ...)
// Both chains are fused multiply-adds from 0 on, in order; then the chains are added to each other,
// and their sum to the element. Subnormal numbers count as 0, as operands and as results. (Intel 64
// and IA-32 Architectures Software Developer's Manual, TDPBF16PS.) The product of integers takes
// rows of 64 bytes and is exact (TDPBSSD).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "minisgl/tensor/dtype.h"

namespace minisgl::cpu {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;
inline constexpr int64_t kTileInputs = kTileRowBytes / 2;  // of bf16 in a row
inline constexpr int64_t kTileFloats = kTileBytes / 4;
inline constexpr int kNumTiles = 8;

// The operand of LDTILECFG.
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  // No rows, or rows of no bytes: the tile is not used.
  void Set(int tile, int64_t num_rows, int64_t bytes = kTileRowBytes) {
    row_bytes[tile] = static_cast<uint16_t>(num_rows == 0 ? 0 : bytes);
    rows[tile] = static_cast<uint8_t>(bytes == 0 ? 0 : num_rows);
  }
};
static_assert(sizeof(TileConfig) == 64);

#if defined(__x86_64__)

// Assembly, because the intrinsics of GCC 12 do not tell the compiler which memory they access.
// REQUIRES that the system has lent the registers (targets.h: kAmx is available).
class HardwareTiles {
 public:
  // To be called before the thread sleeps: tiles in use keep its core from saving power. (Not in a
  // destructor, which a thread's end would run on processors without tiles too.)
  void Release() { asm volatile("tilerelease" ::: "memory"); }
  // Sets the shapes of all tiles, and all tiles to 0.
  void Configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
  template <int kTile>
  void SetZero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  // Rows are `stride` bytes apart.
  template <int kTile>
  void Load(const std::byte* from, int64_t stride) {
    asm volatile("tileloadd (%1,%2), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride) : "memory");
  }
  template <int kTile>
  void Store(float* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2)" ::"i"(kTile), "r"(to), "r"(stride) : "memory");
  }
  // kSum += kX kW
  template <int kSum, int kX, int kW>
  void MultiplyAdd() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kX), "i"(kW));
  }
  // The same of integers: kSum, of 32 bits, += the products of the signed bytes of kX and kW.
  template <int kSum, int kX, int kW>
  void MultiplyAddBytes() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kX), "i"(kW));
  }
  // Writes 64 bytes past the caches. REQUIRES aligned pointers. Other threads see them after Fence.
  static void Stream(const float* from, float* to) {
    asm volatile("vmovaps (%0), %%zmm0\n\tvmovntps %%zmm0, (%1)" ::"r"(from), "r"(to)
                 : "memory", "xmm0");
  }
  static void Fence() { asm volatile("sfence\n\tvzeroupper" ::: "memory"); }
};

#endif

class SoftwareTiles {
 public:
  void Release() { Configure({}); }
  void Configure(const TileConfig& config) {
    config_ = config;
    std::memset(tiles_, 0, sizeof(tiles_));
  }
  template <int kTile>
  void SetZero() {
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void Load(const std::byte* from, int64_t stride) {
    SetZero<kTile>();
    for (int row = 0; row < config_.rows[kTile]; ++row) {
      std::memcpy(tiles_[kTile][row], from + row * stride, config_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void Store(float* to, int64_t stride) {
    auto* const bytes = reinterpret_cast<std::byte*>(to);
    for (int row = 0; row < config_.rows[kTile]; ++row) {
      std::memcpy(bytes + row * stride, tiles_[kTile][row], config_.row_bytes[kTile]);
    }
  }
  template <int kSum, int kX, int kW>
  void MultiplyAdd() {
    for (int row = 0; row < config_.rows[kSum]; ++row) {
      for (int column = 0; column < config_.row_bytes[kSum] / 4; ++column) {
        float chain[2] = {0, 0};
        for (int input = 0; input < 2 * config_.rows[kW]; ++input) {
          float* const sum = &chain[input % 2];
          *sum = Flushed(std::fma(Bf16At(tiles_[kX][row], input),
                                  Bf16At(tiles_[kW][input / 2], 2 * column + input % 2), *sum));
        }
        float element;
        float* const at = tiles_[kSum][row] + column;
        std::memcpy(&element, at, sizeof(element));
        *at = Flushed(element + Flushed(chain[0] + chain[1]));
      }
    }
  }

  template <int kSum, int kX, int kW>
  void MultiplyAddBytes() {
    for (int row = 0; row < config_.rows[kSum]; ++row) {
      for (int column = 0; column < config_.row_bytes[kSum] / 4; ++column) {
        int32_t sum;
        std::memcpy(&sum, tiles_[kSum][row] + column, sizeof(sum));
        for (int input = 0; input < 4 * config_.rows[kW]; ++input) {
          sum += ByteAt(tiles_[kX][row], input) *
                 ByteAt(tiles_[kW][input / 4], 4 * column + input % 4);
        }
        std::memcpy(tiles_[kSum][row] + column, &sum, sizeof(sum));
      }
    }
  }

  static void Stream(const float* from, float* to) { std::memcpy(to, from, kTileRowBytes); }
  static void Fence() {}

  static float Flushed(float value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value)
                                                                : value;
  }

 private:
  static int32_t ByteAt(const float* row, int index) {
    return reinterpret_cast<const int8_t*>(row)[index];
  }
  static float Bf16At(const float* row, int index) {
    uint16_t bits;
    std::memcpy(&bits, reinterpret_cast<const std::byte*>(row) + 2 * index, sizeof(bits));
    return Flushed(Bf16ToFloat(bits));
  }

  TileConfig config_;
  float tiles_[kNumTiles][kTileRows][kTileRowBytes / 4] = {};
};

}  // namespace minisgl::cpu
