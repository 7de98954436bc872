// See resize.h.
#include "vision/resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace minisgl::vision {
namespace {

double Sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double Support(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kLanczos:
      return 3;
    case ResizeFilter::kBilinear:
      return 1;
    case ResizeFilter::kBicubic:
      break;
  }
  return 2;
}

double Filter(ResizeFilter filter, double x) {
  x = std::abs(x);
  switch (filter) {
    case ResizeFilter::kLanczos:
      return x < 3 ? Sinc(x) * Sinc(x / 3) : 0;
    case ResizeFilter::kBilinear:
      return x < 1 ? 1 - x : 0;
    case ResizeFilter::kBicubic:
      break;
  }
  constexpr double kA = -0.5;
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

// What each place of a pass sums: weights[i][0 .. counts[i]) times the inputs from begins[i].
struct Taps {
  std::vector<int32_t> begins, counts;
  int32_t stride = 0;  // weights of a place
  std::vector<int16_t> weights;
  int32_t precision = 0;  // the weights are of units of 2^-precision
};

// Turns weights into integers of as many bits as leave the greatest within 16 bits.
void Quantize(const std::vector<double>& weights, Taps* taps) {
  constexpr int kPrecisionMax = 22;
  const double greatest = std::max(0.0, *std::max_element(weights.begin(), weights.end()));
  while (taps->precision < kPrecisionMax &&
         0.5 + greatest * static_cast<double>(int64_t{1} << (taps->precision + 1)) < 32768) {
    ++taps->precision;
  }
  const auto unit = static_cast<double>(int64_t{1} << taps->precision);
  taps->weights.reserve(weights.size());
  for (const double weight : weights) {
    // Rounded half away from zero. (Negative weights are smaller than the greatest.)
    taps->weights.push_back(static_cast<int16_t>(weight * unit + (weight < 0 ? -0.5 : 0.5)));
  }
}

Taps TapsOf(int32_t num_in, int32_t num_out, ResizeFilter filter) {
  const double scale = static_cast<double>(num_in) / num_out;
  const double support = Support(filter) * std::max(1.0, scale);
  const double inverse = scale >= 1 ? 1 / scale : 1;
  Taps taps;
  taps.stride = static_cast<int32_t>(std::ceil(support)) * 2 + 1;
  std::vector<double> weights(static_cast<size_t>(taps.stride) * static_cast<size_t>(num_out));
  for (int32_t i = 0; i < num_out; ++i) {
    const double center = scale * (i + 0.5);
    const int32_t begin = std::max(static_cast<int32_t>(center - support + 0.5), 0);
    const int32_t end = std::min(static_cast<int32_t>(center + support + 0.5), num_in);
    const int32_t count = std::clamp(end - begin, 0, taps.stride);
    double* const own = &weights[static_cast<size_t>(i) * static_cast<size_t>(taps.stride)];
    double sum = 0;
    for (int32_t j = 0; j < count; ++j) {
      own[j] = Filter(filter, (j + begin - center + 0.5) * inverse);
      sum += own[j];
    }
    for (int32_t j = 0; j < count && sum != 0; ++j) own[j] /= sum;
    taps.begins.push_back(begin);
    taps.counts.push_back(count);
  }
  Quantize(weights, &taps);
  return taps;
}

uint8_t Round(int32_t sum, int32_t precision) {
  return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255));
}

// from[rows][num_in][3] to to[rows][num_out][3].
void PassHorizontally(const Taps& taps, size_t rows, size_t num_in, const uint8_t* from,
                      uint8_t* to) {
  const int32_t half = taps.precision == 0 ? 0 : 1 << (taps.precision - 1);
  for (size_t row = 0; row < rows; ++row, from += 3 * num_in) {
    for (size_t i = 0; i < taps.begins.size(); ++i, to += 3) {
      const int16_t* const weights = &taps.weights[i * static_cast<size_t>(taps.stride)];
      const uint8_t* at = from + 3 * static_cast<size_t>(taps.begins[i]);
      int32_t red = half, green = half, blue = half;
      for (int32_t j = 0; j < taps.counts[i]; ++j, at += 3) {
        red += at[0] * weights[j];
        green += at[1] * weights[j];
        blue += at[2] * weights[j];
      }
      to[0] = Round(red, taps.precision);
      to[1] = Round(green, taps.precision);
      to[2] = Round(blue, taps.precision);
    }
  }
}

// from[num_in][row_bytes] to to[num_out][row_bytes].
void PassVertically(const Taps& taps, size_t row_bytes, const uint8_t* from, uint8_t* to) {
  const int32_t half = taps.precision == 0 ? 0 : 1 << (taps.precision - 1);
  std::vector<int32_t> sums(row_bytes);
  for (size_t i = 0; i < taps.begins.size(); ++i, to += row_bytes) {
    std::fill(sums.begin(), sums.end(), half);
    const int16_t* const weights = &taps.weights[i * static_cast<size_t>(taps.stride)];
    for (int32_t j = 0; j < taps.counts[i]; ++j) {
      const uint8_t* const row = from + static_cast<size_t>(taps.begins[i] + j) * row_bytes;
      const int32_t weight = weights[j];
      for (size_t b = 0; b < row_bytes; ++b) sums[b] += row[b] * weight;
    }
    for (size_t b = 0; b < row_bytes; ++b) to[b] = Round(sums[b], taps.precision);
  }
}

}  // namespace

Picture Resize(const Picture& from, PictureSize size, ResizeFilter filter) {
  const auto rows = static_cast<size_t>(from.size.height);
  const auto num_in = static_cast<size_t>(from.size.width);
  const size_t row_bytes = 3 * static_cast<size_t>(size.width);
  Picture wide;
  const bool changes_width = from.size.width != size.width;
  if (changes_width) {
    wide.size = {size.width, from.size.height};
    wide.rgb.resize(rows * row_bytes);
    const Taps taps = TapsOf(from.size.width, size.width, filter);
    PassHorizontally(taps, rows, num_in, from.rgb.data(), wide.rgb.data());
  }
  if (from.size.height == size.height) return changes_width ? std::move(wide) : from;
  const std::vector<uint8_t>& rgb = changes_width ? wide.rgb : from.rgb;
  Picture result = {size, {}};
  result.rgb.resize(static_cast<size_t>(size.height) * row_bytes);
  PassVertically(TapsOf(from.size.height, size.height, filter), row_bytes, rgb.data(),
                 result.rgb.data());
  return result;
}

}  // namespace minisgl::vision
