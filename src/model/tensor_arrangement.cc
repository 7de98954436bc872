// See tensor_arrangement.h.
#include "model/tensor_arrangement.h"

namespace minisgl::model {

WeightTensor ExpandMatrix(const WeightTensor& matrix, std::vector<float>* values) {
  values->resize(static_cast<size_t>(matrix.num_out() * matrix.num_in()));
  for (int64_t out = 0; out < matrix.num_out(); ++out) {
    matrix.ReadRow(out, values->data() + out * matrix.num_in());
  }
  return TensorView{reinterpret_cast<const std::byte*>(values->data()),
                    DType::kF32,
                    {matrix.num_out(), matrix.num_in()}};
}

std::vector<int64_t> HalvesOfPairs(int32_t num_heads, int32_t head_dim, int32_t rotary_dim) {
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < num_heads; ++head) {
    const int64_t first = head * head_dim;
    for (int64_t odd : {0, 1}) {
      for (int64_t i = 0; i < rotary_dim / 2; ++i) rows.push_back(first + 2 * i + odd);
    }
    for (int64_t e = rotary_dim; e < head_dim; ++e) rows.push_back(first + e);
  }
  return rows;
}

std::vector<int64_t> RotatedFirst(int32_t num_heads, int32_t plain_dim, int32_t rotary_dim,
                                  bool interleaved) {
  std::vector<int64_t> rows;
  const int64_t width = int64_t{plain_dim} + rotary_dim;
  for (int64_t first = 0; first < num_heads * width; first += width) {
    for (int64_t i = 0; i < rotary_dim; ++i) {
      const int64_t half = rotary_dim / 2;
      const int64_t from = !interleaved ? i : i < half ? 2 * i : 2 * (i - half) + 1;
      rows.push_back(first + plain_dim + from);
    }
    for (int64_t e = 0; e < plain_dim; ++e) rows.push_back(first + e);
  }
  return rows;
}

std::vector<int64_t> EvensThenOdds(int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t odd : {0, 1}) {
    for (int64_t i = odd; i < count; i += 2) rows.push_back(i);
  }
  return rows;
}

std::vector<int64_t> RowsOfParts(int64_t num_parts, int64_t width, int64_t first, int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t part = 0; part < num_parts; ++part) {
    for (int64_t i = 0; i < count; ++i) rows.push_back(part * width + first + i);
  }
  return rows;
}

StateParts Mamba2Parts(const StateConfig& states) {
  const int64_t inner = states.inner_width();
  return {.input = RowsOfParts(1, 0, inner, states.conv_width),
          .gate = RowsOfParts(1, 0, 0, inner),
          .scalars = RowsOfParts(1, 0, inner + states.conv_width, states.num_heads)};
}

StateParts DeltaPartsByGroup(const StateConfig& states) {
  const int64_t groups = states.num_groups, keys = states.key_dim;
  const int64_t heads = states.num_heads / groups;  // of a group
  const int64_t values = heads * states.value_dim;
  const int64_t width = 2 * keys + 2 * values;
  StateParts parts;
  const auto append = [](std::vector<int64_t> rows, std::vector<int64_t>* to) {
    to->insert(to->end(), rows.begin(), rows.end());
  };
  append(RowsOfParts(groups, width, 0, keys), &parts.input);
  append(RowsOfParts(groups, width, keys, keys), &parts.input);
  append(RowsOfParts(groups, width, 2 * keys, values), &parts.input);
  append(RowsOfParts(groups, width, 2 * keys + values, values), &parts.gate);
  append(RowsOfParts(groups, 2 * heads, heads, heads), &parts.scalars);
  append(RowsOfParts(groups, 2 * heads, 0, heads), &parts.scalars);
  return parts;
}

std::vector<std::vector<WeightTensor>> MatricesOfHeads(const WeightTensor& all, int64_t first,
                                                       int64_t count, int64_t step) {
  std::vector<std::vector<WeightTensor>> heads;
  for (int64_t at = first; at < all.num_out(); at += step) {
    heads.push_back({all.TakeOutputs(at, count)});
  }
  return heads;
}

std::vector<float> ChannelFactors(const StateConfig& states) {
  std::vector<float> factors(static_cast<size_t>(states.conv_width), 1.0f);
  const int64_t inner = states.inner_width();
  const int64_t queries = inner + int64_t{states.num_groups} * states.key_dim;
  const bool has_factors =
      states.value_factor != 1 || states.key_factor != 1 || states.query_factor != 1;
  for (int64_t i = 0; has_factors && i < states.conv_width; ++i) {
    factors[static_cast<size_t>(i)] = static_cast<float>(i < inner     ? states.value_factor
                                                         : i < queries ? states.key_factor
                                                                       : states.query_factor);
  }
  return factors;
}

}  // namespace minisgl::model
