// Rotary tables: the angle of pair i at position p is p * frequency[i], frequency[i] = theta^(-2i /
// head_dim), bent by the model's scaling rule.
#include <cmath>
#include <numbers>

#include "minisgl/model/decoder.h"

namespace minisgl {
namespace {

// Frequencies whose wavelength is short against the length the model was first trained on stay;
// long ones are slowed by `factor`; between the two bounds the one passes into the other.
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double original = static_cast<double>(rope.original_max_seq_len);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double band = rope.high_freq_factor - rope.low_freq_factor;
  const double share = band > 0 ? (original / wavelength - rope.low_freq_factor) / band : 1.0;
  return (1.0 - share) * frequency / rope.factor + share * frequency;
}

double Frequency(const RopeConfig& rope, int32_t head_dim, int32_t pair) {
  const double plain = std::pow(rope.theta, -2.0 * pair / head_dim);
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return plain;
    case RopeScaling::kLinear:
      return plain / rope.factor;
    case RopeScaling::kLlama3:
      return Llama3Frequency(rope, plain);
  }
  return plain;
}

}  // namespace

void MakeRotaryTables(const RopeConfig& rope, int32_t head_dim, int64_t max_seq_len,
                      std::vector<float>* cos, std::vector<float>* sin) {
  const int32_t pairs = head_dim / 2;
  const size_t count = static_cast<size_t>(max_seq_len) * static_cast<size_t>(pairs);
  cos->resize(count);
  sin->resize(count);
  for (int32_t pair = 0; pair < pairs; ++pair) {
    const double frequency = Frequency(rope, head_dim, pair);
    for (int64_t position = 0; position < max_seq_len; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      const size_t at = static_cast<size_t>(position * pairs + pair);
      (*cos)[at] = static_cast<float>(std::cos(angle));
      (*sin)[at] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace minisgl
