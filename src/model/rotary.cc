// Rotary tables. The angle of pair i at position p is p * frequency[i] with frequency[i] =
// theta^(-2i / dim), modified by the model's scaling rule. A rule that depends on the sequence
// length uses the maximum length for all sequences, so that cached keys stay valid as a sequence
// grows.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "minisgl/model/decoder.h"

namespace minisgl {
namespace {

// Llama 3.1: frequencies with a wavelength much shorter than the original training length are
// unchanged, those with a long one are divided by `factor`, and between the two bounds they are
// interpolated.
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double original = static_cast<double>(rope.original_max_seq_len);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double band = rope.high_freq_factor - rope.low_freq_factor;
  const double share = band > 0 ? (original / wavelength - rope.low_freq_factor) / band : 1.0;
  return (1.0 - share) * frequency / rope.factor + share * frequency;
}

// The index (a real number) of the pair that rotates `turns` times over the original length.
double PairOfTurns(const RopeConfig& rope, double turns) {
  const double original = static_cast<double>(rope.original_max_seq_len);
  return rope.dim * std::log(original / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

// YaRN (arXiv:2309.00071, section 3.2): pairs that rotate more than beta_fast times over the
// original length are unchanged, those that rotate less than beta_slow times are divided by
// `factor`, and between them the blend is linear in the index of the pair.
double YarnFrequency(const RopeConfig& rope, double frequency, int32_t pair) {
  double low = PairOfTurns(rope, rope.beta_fast), high = PairOfTurns(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.dim - 1.0);
  if (low == high) high += 0.001;
  const double slowed = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return slowed * frequency / rope.factor + (1.0 - slowed) * frequency;
}

// LongRoPE (arXiv:2402.13753): a divisor for each pair, from the short list up to the original
// length and from the long list beyond.
double LongRopeFrequency(const RopeConfig& rope, double frequency, int32_t pair,
                         int64_t max_seq_len) {
  const auto& factors =
      max_seq_len > rope.original_max_seq_len ? rope.long_factors : rope.short_factors;
  return frequency / factors[static_cast<size_t>(pair)];
}

// Dynamic NTK: beyond the original length L, theta grows with the length n so that the frequency of
// the slowest pair is divided by factor * n / L - (factor - 1).
double DynamicTheta(const RopeConfig& rope, int64_t max_seq_len) {
  if (max_seq_len <= rope.original_max_seq_len || rope.dim <= 2) return rope.theta;
  const double times =
      static_cast<double>(max_seq_len) / static_cast<double>(rope.original_max_seq_len);
  const double slower = rope.factor * times - (rope.factor - 1.0);
  return rope.theta * std::pow(slower, rope.dim / (rope.dim - 2.0));
}

double Frequency(const RopeConfig& rope, int32_t pair, int64_t max_seq_len) {
  const double theta =
      rope.scaling == RopeScaling::kDynamic ? DynamicTheta(rope, max_seq_len) : rope.theta;
  const double plain = std::pow(theta, -2.0 * pair / rope.dim);
  switch (rope.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kDynamic:
      return plain;
    case RopeScaling::kLinear:
      return plain / rope.factor;
    case RopeScaling::kLlama3:
      return Llama3Frequency(rope, plain);
    case RopeScaling::kYarn:
      return YarnFrequency(rope, plain, pair);
    case RopeScaling::kLongRope:
      return LongRopeFrequency(rope, plain, pair, max_seq_len);
    case RopeScaling::kProportional:
      // The frequencies of a rotation of all pairs, of which only the first ones are rotated.
      return pair < std::floor(rope.rotated_share * rope.dim / 2) ? plain / rope.factor : 0;
  }
  return plain;
}

}  // namespace

void MakeRotaryTables(const RopeConfig& rope, int64_t max_seq_len, std::vector<float>* cos,
                      std::vector<float>* sin) {
  const int32_t pairs = rope.dim / 2;
  const size_t count = static_cast<size_t>(max_seq_len) * static_cast<size_t>(pairs);
  cos->resize(count);
  sin->resize(count);
  for (int32_t pair = 0; pair < pairs; ++pair) {
    const double frequency = Frequency(rope, pair, max_seq_len);
    for (int64_t position = 0; position < max_seq_len; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      const size_t at = static_cast<size_t>(position * pairs + pair);
      (*cos)[at] = static_cast<float>(rope.attention_factor * std::cos(angle));
      (*sin)[at] = static_cast<float>(rope.attention_factor * std::sin(angle));
    }
  }
}

std::vector<float> MakeQueryScales(double beta, int64_t length, int64_t max_seq_len,
                                   int64_t first) {
  std::vector<float> scales;
  for (int64_t position = 0; position < max_seq_len; ++position) {
    const auto whole = static_cast<double>((position + first) / length);
    scales.push_back(static_cast<float>(1.0 + beta * std::log(1.0 + whole)));
  }
  return scales;
}

}  // namespace minisgl
