#include "load/chat_share.h"

#include <algorithm>
#include <cmath>

#include "minisgl/model/token_weights.h"

namespace minisgl::load {
namespace {

constexpr double kRoomOfToken = 1000;
constexpr double kRoomMax = 1e9;
// A step of so many times the room beside a chat is long: the time saved by planning it beside
// another one is a negligible part of it.
constexpr int64_t kLongSteps = 4;

// Bytes that are read in the time of a product with one weight, of a row among few. Measured on
// the CPU with AVX-512: 0.13 to 0.2 of bf16, 0.06 to 0.17 of codes (tests/bench/NOTES.md). Others
// compute less for each byte. A GPU computes some 130 such products while it reads two bytes.
constexpr double kHostDense = 3.0 / 8;
constexpr double kHostCodes = 3.0 / 16;
constexpr double kDevice = 1.0 / 64;

double BytesOfProduct(const WeightFormat& format, bool is_device) {
  if (is_device) return kDevice;
  return format.quantization == Quantization::kNone ? kHostDense : kHostCodes;
}

// Codes of a checkpoint have 4 bits or more.
WeightFormat AtLeast(const WeightFormat& format) {
  return format.quantization == Quantization::kStored
             ? WeightFormat(format.dtype, Quantization::kInt4)
             : format;
}

}  // namespace

RoomBesideChat RoomForShare(double share, const ModelConfig& config, const MemoryPlan& plan,
                            bool is_device) {
  if (!(share > 0)) return {};
  const TokenWeights weights = CountTokenWeights(config);
  const WeightFormat format = AtLeast(plan.weight_format);
  const double alone = StepWeightBytes(weights, format);
  const double products =
      (weights.layers + weights.head) * BytesOfProduct(plan.weight_format, is_device);
  const double token = products + weights.chosen_experts * BytesPerWeight(format);
  RoomBesideChat result;
  result.room = static_cast<int64_t>(
      std::clamp(kRoomOfToken * (1 / share - 1) * alone / token, 1.0, kRoomMax));
  // On a GPU even the longest step takes milliseconds, and planning it beside another saves more.
  if (!is_device) {
    result.long_step_tokens =
        std::max<int64_t>(result.room * kLongSteps / static_cast<int64_t>(kRoomOfToken), 1);
  }
  if (plan.kv_bytes_per_token > 0) {
    const double keys = token / static_cast<double>(plan.kv_bytes_per_token);
    result.keys_per_token = static_cast<int64_t>(std::clamp(keys, 1.0, kRoomMax));
  }
  return result;
}

}  // namespace minisgl::load
