// See scaled_matrix.h.
#include "scaled_matrix.h"

#include <algorithm>

#include "coded_matrix.h"
#include "cuda_api.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

static_assert(kMatmulBlock == kScaledInputs);

bool HasForm(const CodedRun& run, InputRounding rounding, int64_t num_in) {
  const CodeForm& form = run.form;
  if (form.codes != RowCodes::kE4M3 || form.scales != GroupScales::kStored) return false;
  if (form.num_groups(num_in) == 1) {
    return rounding != InputRounding::kGroups || num_in <= kScaledInputs;
  }
  return rounding == InputRounding::kGroups && form.group_inputs == kScaledInputs;
}

float ScaleAt(const WeightTensor& part, int64_t out, int64_t group) {
  return part.ScaleOf(out, part.first_input() / part.quantized()->group_inputs + group);
}

// A scale for each row.
void AddVectors(std::span<const WeightTensor> parts, std::span<const CodedRun> runs,
                ScaledForm* form) {
  for (size_t i = 0; i < runs.size(); ++i) {
    form->matrix.rows.push_back({.first = runs[i].first,
                                 .count = runs[i].count,
                                 .run = i,
                                 .scales_at = static_cast<size_t>(runs[i].first)});
  }
  for (const WeightTensor& part : parts) {
    for (int64_t out = 0; out < part.num_out(); ++out) {
      form->scales.push_back(ScaleAt(part, out, 0));
    }
  }
}

// Appends the scales of a part's blocks. False if weights of a block have several.
bool AddBlocksOf(const WeightTensor& part, ScaledForm* form) {
  const int64_t num_groups = CeilDiv(part.num_in(), kScaledInputs);
  const int64_t stride = MatmulBlockStride(part.num_in());
  for (int64_t first = 0; first < part.num_out(); first += kMatmulBlock) {
    const int64_t end = std::min(first + kMatmulBlock, part.num_out());
    for (int64_t group = 0; group < stride; ++group) {
      const float scale = group < num_groups ? ScaleAt(part, first, group) : 0;
      for (int64_t out = first; out < end && group < num_groups; ++out) {
        if (ScaleAt(part, out, group) != scale) return false;
      }
      form->scales.push_back(scale);
    }
  }
  return true;
}

// A product has neighbouring parts, except behind a part that ends within a block.
bool AddBlocks(std::span<const WeightTensor> parts, std::span<const CodedRun> runs,
               ScaledForm* form) {
  std::vector<ScaledRows>& rows = form->matrix.rows;
  int64_t first = 0;
  size_t run = 0;
  for (const WeightTensor& part : parts) {
    while (first >= runs[run].first + runs[run].count) ++run;
    const bool goes_on =
        !rows.empty() && rows.back().run == run && rows.back().count % kMatmulBlock == 0;
    if (!goes_on) rows.push_back({.first = first, .run = run, .scales_at = form->scales.size()});
    rows.back().count += part.num_out();
    if (!AddBlocksOf(part, form)) return false;
    first += part.num_out();
  }
  return true;
}

}  // namespace

std::optional<ScaledForm> ScaledFormOf(std::span<const WeightTensor> parts,
                                       std::span<const CodedRun> runs) {
  ScaledForm form;
  for (const WeightTensor& part : parts) {
    if (part.quantized() == nullptr || part.num_out() == 0) return std::nullopt;
    const QuantizedWeights& its = *part.quantized();
    if (&part == parts.data()) {
      form.matrix.rounding = its.e4m3_inputs;
      form.matrix.input_scale = its.input_scale;
    }
    if (its.e4m3_inputs != form.matrix.rounding) return std::nullopt;
    form.matrix.input_scale = std::max(form.matrix.input_scale, its.input_scale);
  }
  const InputRounding rounding = form.matrix.rounding;
  const int64_t num_in = parts[0].num_in();
  if (rounding == InputRounding::kNone ||
      !std::all_of(runs.begin(), runs.end(),
                   [&](const CodedRun& run) { return HasForm(run, rounding, num_in); })) {
    return std::nullopt;
  }
  if (rounding != InputRounding::kGroups) {
    AddVectors(parts, runs, &form);
  } else if (!AddBlocks(parts, runs, &form)) {
    return std::nullopt;
  }
  return form;
}

}  // namespace minisgl::cuda
