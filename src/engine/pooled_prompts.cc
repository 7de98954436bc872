// See pooled_prompts.h.
#include "engine/pooled_prompts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::engine {
namespace {

// Adds the state of token `index`. `is_first`: of those that count.
void AddState(Pooling pooling, const float* state, int64_t index, bool is_first,
              std::vector<double>* values) {
  const auto width = values->size();
  switch (pooling) {
    case Pooling::kFirst:
      if (!is_first) return;
      [[fallthrough]];
    case Pooling::kLast:
      std::copy_n(state, width, values->begin());
      return;
    case Pooling::kMax:
      for (size_t i = 0; i < width; ++i) {
        const double value = state[i];
        // NaN stays.
        if (is_first || value > (*values)[i] || std::isnan(value)) (*values)[i] = value;
      }
      return;
    case Pooling::kMean:
    case Pooling::kMeanSqrt:
      for (size_t i = 0; i < width; ++i) (*values)[i] += state[i];
      return;
    case Pooling::kWeightedMean:
      for (size_t i = 0; i < width; ++i) {
        (*values)[i] += static_cast<double>(state[i]) * static_cast<double>(index + 1);
      }
      return;
  }
}

// What sums of the states of `count` tokens without the first `skipped` are divided by.
double Divisor(Pooling pooling, int64_t count, int64_t skipped) {
  const auto number = static_cast<double>(count - skipped);
  switch (pooling) {
    case Pooling::kMean:
      return number;
    case Pooling::kMeanSqrt:
      return std::sqrt(number);
    case Pooling::kWeightedMean:
      return number * static_cast<double>(count + skipped + 1) / 2;
    default:
      return 1;
  }
}

}  // namespace

void PooledPrompts::Add(int32_t table_row, Pooling pooling, const float* states, int64_t count,
                        int64_t width, int64_t num_skipped) {
  Open& open = open_[table_row];
  open.values.resize(static_cast<size_t>(width));
  for (int64_t token = 0; token < count; ++token) {
    const int64_t index = open.count++;
    if (token < num_skipped) {
      ++open.skipped;
      continue;
    }
    AddState(pooling, states + token * width, index, index == open.skipped, &open.values);
  }
}

std::vector<float> PooledPrompts::End(int32_t table_row, Pooling pooling) {
  const auto node = open_.extract(table_row);
  MINISGL_CHECK(!node.empty() && node.mapped().count > node.mapped().skipped,
                "a vector of no tokens");
  const Open& open = node.mapped();
  const double divisor = Divisor(pooling, open.count, open.skipped);
  std::vector<float> vector;
  vector.reserve(open.values.size());
  for (const double value : open.values) vector.push_back(static_cast<float>(value / divisor));
  return vector;
}

}  // namespace minisgl::engine
