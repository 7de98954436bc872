// Keys and values that are kept as codes of 8 bits with a power of two for each token and head
// (KvLayer): a warp loads the codes of a tile into registers before the tile before it is computed,
// and stores them as T behind that. The kernel of wide heads does the rest, with shapes of its own
// for them (attention_wide.cuh). Products of codes and scales are exact in bf16; in f16 they are
// rounded below its least normal number, whatever else the step has.
//
// Traffic. E + EV + 2 bytes of each key of each KV head, for every tile of M rows.
// Operations. 3 for each element, in f32, and half a packing of two.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_tile.cuh"
#include "kernels/coded_weights.cuh"
#include "minisgl/tensor/e4m3_scale.h"

namespace minisgl::cuda {

// Where a lane's key, its value, and its scale (but for k_scales or v_scales) begin; -1: nowhere.
struct CodedPlace {
  int64_t key, value, scale;
};

template <typename T>
MINISGL_DEVICE int64_t ScaleOffset(const CodedArguments<T>& args, KeyPlace place, int32_t kv_head) {
  if (place.page < 0) return -1;
  const int32_t page_size = 1 << args.rows.page_shift;
  return place.page * args.rows.page_stride + kv_head * page_size + (place.key & (page_size - 1));
}

// Eight codes, of which `from` is the first.
MINISGL_DEVICE device::Vec<uint32_t, 2> LoadCodes(const uint8_t* from, bool is_aligned) {
  if (is_aligned) return device::LoadVec<2>(reinterpret_cast<const uint32_t*>(from));
  device::Vec<uint32_t, 2> words;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(from[4 * half + i]) << (8 * i);
    words[half] = word;
  }
  return words;
}

// Two codes of a word, from code `first` on, times `scale`.
template <typename T>
MINISGL_DEVICE uint32_t ExpandPair(uint32_t word, int first, float scale) {
  const uint32_t codes = word >> (8 * first);
  return device::Pack2<T>(device::MulRn(E4M3Number(codes & 0xFF), scale),
                          device::MulRn(E4M3Number(codes >> 8 & 0xFF), scale));
}

// The codes of ROWS rows of WIDTH that a lane loads, some of each.
template <int ROWS, int WIDTH>
struct LaneCodes {
  static constexpr int kChunks = WIDTH / 8;
  static constexpr int kLoads = ROWS * kChunks / 32;
  static_assert(ROWS <= 32 && ROWS * kChunks % 32 == 0);

  device::Vec<uint32_t, 2> words[kLoads];
};

// Loads the rows, of `width` codes; zeros behind them. Lane i passes the begin of row i; a negative
// one gives zeros.
template <int ROWS, int WIDTH, typename T>
MINISGL_DEVICE void LoadCodeRows(const CodedArguments<T>& args, int64_t begin, int width, int lane,
                                 LaneCodes<ROWS, WIDTH>* codes) {
  constexpr int kChunks = WIDTH / 8;
#pragma unroll
  for (int i = 0; i < LaneCodes<ROWS, WIDTH>::kLoads; ++i) {
    const int chunk = i * 32 + lane, row = chunk / kChunks, column = chunk % kChunks * 8;
    const int64_t first = __shfl_sync(kAllLanes, begin, row);
    codes->words[i] = {0, 0};
    if (first >= 0 && column < width) {
      codes->words[i] = LoadCodes(args.codes + first + column, args.is_aligned);
    }
  }
}

// Stores the rows times their scales. Lane i passes the scale of row i.
template <int ROWS, int WIDTH, typename T>
MINISGL_DEVICE void StoreCodeRows(const LaneCodes<ROWS, WIDTH>& codes, float scale,
                                  device::Shared<T> to, int lane) {
  constexpr int kChunks = WIDTH / 8;
#pragma unroll
  for (int i = 0; i < LaneCodes<ROWS, WIDTH>::kLoads; ++i) {
    const int chunk = i * 32 + lane, row = chunk / kChunks, column = chunk % kChunks * 8;
    const float factor = __shfl_sync(kAllLanes, scale, row);
    device::Vec<uint32_t, 4> numbers;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t word = codes.words[i][pair / 2];
      numbers[pair] = ExpandPair<T>(word, pair % 2 * 2, factor);
    }
    device::StoreShared(to.template As<uint32_t>() + (row * kPaddedRow<WIDTH> + column) / 2,
                        numbers);
  }
}

struct NoCodes {};

// The keys and values of a tile that a warp loads, on their way to shared memory.
template <int ROWS, int WIDTH>
struct CodedTile {
  LaneCodes<ROWS, WIDTH> keys, values;
  uint32_t key_scale, value_scale;  // of the lane's key

  template <typename T>
  MINISGL_DEVICE void Load(const CodedArguments<T>& args, const CodedPlace& place, int lane) {
    key_scale = value_scale = kE4M3ScaleMin;
    if (place.scale >= 0) {
      key_scale = args.codes[place.scale + args.k_scales];
      value_scale = args.codes[place.scale + args.v_scales];
    }
    LoadCodeRows(args, place.key, args.key_dim, lane, &keys);
    LoadCodeRows(args, place.value, args.value_dim, lane, &values);
  }
  template <typename T>
  MINISGL_DEVICE void Store(device::Shared<T> to_keys, device::Shared<T> to_values,
                            int lane) const {
    const auto number = [](uint32_t scale) {
      return device::BitsToFloat(E4M3ScaleBits(static_cast<uint8_t>(scale)));
    };
    StoreCodeRows(keys, number(key_scale), to_keys, lane);
    StoreCodeRows(values, number(value_scale), to_values, lane);
  }
};

// Expands ROWS rows of `width` codes, and puts zeros behind them up to WIDTH. Lane i passes the
// begin and the scale of row i; a negative begin gives zeros.
template <int ROWS, int WIDTH, typename T>
MINISGL_DEVICE void ExpandRows(const CodedArguments<T>& args, device::Shared<T> to, int64_t begin,
                               float scale, int width, int lane) {
  constexpr int kChunks = WIDTH / 8;
  static_assert(ROWS <= 32 && ROWS * kChunks % 32 == 0);
#pragma unroll(4)
  for (int i = 0; i < ROWS * kChunks / 32; ++i) {
    const int chunk = i * 32 + lane, row = chunk / kChunks, column = chunk % kChunks * 8;
    const int64_t first = __shfl_sync(kAllLanes, begin, row);
    const float factor = __shfl_sync(kAllLanes, scale, row);
    device::Vec<uint32_t, 4> numbers = {0, 0, 0, 0};
    if (first >= 0 && column < width) {
      const auto words = LoadCodes(args.codes + first + column, args.is_aligned);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        numbers[pair] = ExpandPair<T>(words[pair / 2], pair % 2 * 2, factor);
      }
    }
    device::StoreShared(to.template As<uint32_t>() + (row * kPaddedRow<WIDTH> + column) / 2,
                        numbers);
  }
}

// Expands the keys and values of a tile that a warp copies at once, for heads that would take too
// many registers otherwise.
template <int ROWS, int WIDTH, typename T>
MINISGL_DEVICE void ExpandCodes(const CodedArguments<T>& args, device::Shared<T> keys,
                                device::Shared<T> values, const CodedPlace& place, int lane) {
  float of_key = 0, of_value = 0;
  if (place.scale >= 0) {
    of_key = device::BitsToFloat(E4M3ScaleBits(args.codes[place.scale + args.k_scales]));
    of_value = device::BitsToFloat(E4M3ScaleBits(args.codes[place.scale + args.v_scales]));
  }
  ExpandRows<ROWS, WIDTH>(args, keys, place.key, of_key, args.key_dim, lane);
  ExpandRows<ROWS, WIDTH>(args, values, place.value, of_value, args.value_dim, lane);
}

}  // namespace minisgl::cuda
