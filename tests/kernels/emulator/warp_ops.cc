// The warp operations, performed when all their lanes have arrived.
//
// Fragments of ldmatrix and mma.m16n8k16 as the PTX manual lays them out; with lane = 4 * group +
// place: an 8x8 matrix has its elements (group, 2 * place) and (group, 2 * place + 1) in the lane's
// register; A's four registers are its 8x8 quarters (rows, columns) (0, 0), (8, 0), (0, 8), (8, 8);
// B's two are its upper and lower half with row and column exchanged; d[0], d[1] are (group, 2 *
// place), (group, 2 * place + 1), d[2], d[3] the same 8 rows below.
#include <fmt/core.h>

#include <bit>
#include <memory>

#include "emulator/machine.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::cuda::emulator {
namespace {

using Calls = std::array<WarpCall*, 32>;

template <typename Fn>
void ForLanes(uint32_t mask, const Fn& fn) {
  for (; mask != 0; mask &= mask - 1) fn(std::countr_zero(mask));
}

Complaint Shuffle(const Calls& calls, uint32_t mask) {
  Complaint complaint;
  ForLanes(mask, [&](int lane) {
    WarpCall& call = *calls[static_cast<size_t>(lane)];
    const int width = call.width;
    if (width <= 0 || width > 32 || !std::has_single_bit(static_cast<unsigned>(width))) {
      complaint = "a shuffle of a width that is no power of two up to 32";
      return;
    }
    const int begin = lane & ~(width - 1);
    int source = lane;
    if (call.op == WarpOp::kShuffle) {
      source = begin + (call.parameter & (width - 1));
    } else if (call.op == WarpOp::kShuffleXor) {
      source = lane ^ call.parameter;
      if (source >= begin + width) source = lane;
    } else if (call.op == WarpOp::kShuffleUp) {
      source = lane - call.parameter;
      if (source < begin) source = lane;
    } else {
      source = lane + call.parameter;
      if (source >= begin + width) source = lane;
    }
    if (source < 0 || source > 31 || !(mask >> source & 1)) {
      complaint = fmt::format("a shuffle from lane {}, which is not in the mask", source);
      return;
    }
    call.result = calls[static_cast<size_t>(source)]->value;
  });
  return complaint;
}

uint32_t Reduce(WarpOp op, uint32_t a, uint32_t b) {
  switch (op) {
    case WarpOp::kReduceAdd:
      return a + b;
    case WarpOp::kReduceMin:
      return a < b ? a : b;
    case WarpOp::kReduceMax:
      return a > b ? a : b;
    case WarpOp::kReduceAnd:
      return a & b;
    case WarpOp::kReduceOr:
      return a | b;
    default:
      return a ^ b;
  }
}

void Vote(const Calls& calls, uint32_t mask) {
  const WarpOp op = calls[static_cast<size_t>(std::countr_zero(mask))]->op;
  uint32_t ballot = 0;
  ForLanes(mask, [&](int lane) {
    if (calls[static_cast<size_t>(lane)]->value != 0) ballot |= 1u << lane;
  });
  const uint64_t result = op == WarpOp::kBallot ? ballot
                          : op == WarpOp::kAny  ? uint64_t{ballot != 0}
                                                : uint64_t{ballot == mask};
  ForLanes(mask, [&](int lane) { calls[static_cast<size_t>(lane)]->result = result; });
}

void Match(const Calls& calls, uint32_t mask) {
  ForLanes(mask, [&](int lane) {
    WarpCall& call = *calls[static_cast<size_t>(lane)];
    call.result = 0;
    ForLanes(mask, [&](int other) {
      if (calls[static_cast<size_t>(other)]->value == call.value) call.result |= 1ull << other;
    });
  });
}

void ReduceAll(const Calls& calls, uint32_t mask) {
  const WarpCall& first = *calls[static_cast<size_t>(std::countr_zero(mask))];
  uint32_t result = static_cast<uint32_t>(first.value);
  ForLanes(mask & (mask - 1), [&](int lane) {
    result =
        Reduce(first.op, result, static_cast<uint32_t>(calls[static_cast<size_t>(lane)]->value));
  });
  ForLanes(mask, [&](int lane) { calls[static_cast<size_t>(lane)]->result = result; });
}

void LoadMatrices(const Calls& calls, bool transposed) {
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t group = lane / 4, place = lane % 4;
    for (size_t matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](size_t row, size_t column) -> uint32_t {
        return calls[matrix * 8 + row]->row[column];
      };
      calls[lane]->fragments[matrix] =
          transposed ? element(2 * place, group) | element(2 * place + 1, group) << 16
                     : element(group, 2 * place) | element(group, 2 * place + 1) << 16;
    }
  }
}

// All values of f16: its conversion is too slow for products.
const float* F16Table() {
  static const std::unique_ptr<float[]> table = [] {
    auto values = std::make_unique<float[]>(65536);
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      values[bits] = F16ToFloat(static_cast<uint16_t>(bits));
    }
    return values;
  }();
  return table.get();
}

// Each element: d, then the 16 products in order of k, in f32. The columns of a row are independent
// sums.
template <bool kF16>
void Mma(const Calls& calls) {
  const float* const table = kF16 ? F16Table() : nullptr;
  const auto value = [table](uint32_t word, size_t half) {
    const uint16_t bits = static_cast<uint16_t>(word >> 16 * half);
    if constexpr (kF16) {
      return table[bits];
    } else {
      (void)table;
      return Bf16ToFloat(bits);
    }
  };
  float a[16][16], b[16][8], d[16][8];  // [row][k], [k][column], [row][column]
  for (size_t lane = 0; lane < 32; ++lane) {
    const WarpCall& call = *calls[lane];
    const size_t group = lane / 4, place = lane % 4;
    for (size_t i = 0; i < 8; ++i) {
      const size_t quarter = i / 2, half = i % 2;
      a[group + 8 * (quarter % 2)][2 * place + half + 8 * (quarter / 2)] =
          value(call.a[quarter], half);
    }
    for (size_t i = 0; i < 4; ++i) {
      b[2 * place + i % 2 + 8 * (i / 2)][group] = value(call.b[i / 2], i % 2);
      d[group + 8 * (i / 2)][2 * place + i % 2] = call.d[i];
    }
  }
  for (size_t row = 0; row < 16; ++row) {
    float sums[8];
    for (size_t column = 0; column < 8; ++column) sums[column] = d[row][column];
    for (size_t k = 0; k < 16; ++k) {
      const float factor = a[row][k];
      for (size_t column = 0; column < 8; ++column) sums[column] += factor * b[k][column];
    }
    for (size_t column = 0; column < 8; ++column) d[row][column] = sums[column];
  }
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t group = lane / 4, place = lane % 4;
    for (size_t i = 0; i < 4; ++i) {
      calls[lane]->d[i] = d[group + 8 * (i / 2)][2 * place + i % 2];
    }
  }
}

}  // namespace

const char* WarpOpName(WarpOp op) {
  static constexpr const char* kNames[] = {
      "__syncwarp",        "__shfl_sync",       "__shfl_xor_sync",   "__shfl_up_sync",
      "__shfl_down_sync",  "__ballot_sync",     "__any_sync",        "__all_sync",
      "__match_any_sync",  "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
      "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync", "LoadMatrix4",
      "LoadMatrix4Trans",  "Mma16816<bf16>",    "Mma16816<f16>"};
  return kNames[static_cast<size_t>(op)];
}

Complaint RunWarpOp(const Calls& calls, uint32_t mask) {
  const WarpOp op = calls[static_cast<size_t>(std::countr_zero(mask))]->op;
  switch (op) {
    case WarpOp::kSyncWarp:
      break;
    case WarpOp::kShuffle:
    case WarpOp::kShuffleXor:
    case WarpOp::kShuffleUp:
    case WarpOp::kShuffleDown:
      return Shuffle(calls, mask);
    case WarpOp::kBallot:
    case WarpOp::kAny:
    case WarpOp::kAll:
      Vote(calls, mask);
      break;
    case WarpOp::kMatch:
      Match(calls, mask);
      break;
    case WarpOp::kLoadMatrix:
    case WarpOp::kLoadMatrixTrans:
      LoadMatrices(calls, op == WarpOp::kLoadMatrixTrans);
      break;
    case WarpOp::kMmaBf16:
    case WarpOp::kMmaF16:
      op == WarpOp::kMmaF16 ? Mma<true>(calls) : Mma<false>(calls);
      break;
    default:
      ReduceAll(calls, mask);
  }
  return {};
}

}  // namespace minisgl::cuda::emulator
