// The part of device_step.h that is about prompts that become vectors.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/device_step.h"
#include "engine/whole_texts.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::engine {
namespace {

// The bits of a device's activations as floats.
std::vector<float> FloatsOfStates(const void* states, DType dtype, int64_t count) {
  std::vector<float> floats(static_cast<size_t>(count));
  if (dtype == DType::kF32) {
    std::memcpy(floats.data(), states, floats.size() * sizeof(float));
    return floats;
  }
  const auto* const bits = static_cast<const uint16_t*>(states);
  const auto to_float = dtype == DType::kBF16 ? Bf16ToFloat : F16ToFloat;
  std::transform(bits, bits + count, floats.begin(), to_float);
  return floats;
}

size_t ArrayEnd(size_t begin, int32_t count) {
  return begin + (static_cast<size_t>(count) * sizeof(int32_t) + 15) / 16 * 16;
}

}  // namespace

StatesWanted StatesOf(const PoolingSpan& span) {
  if (span.pooling == Pooling::kLast) {
    return {span.token + span.count - 1, span.ends ? 1 : 0, 0};
  }
  const bool is_whole = span.begins && span.ends;
  if (span.pooling == Pooling::kFirst && is_whole) return {span.token + span.num_skipped, 1, 0};
  return {span.token, span.count, span.num_skipped};
}

std::vector<int32_t> TokensWanted(const PlanExtras& extras) {
  std::vector<int32_t> tokens;
  for (const PoolingSpan& span : extras.pooling) {
    const StatesWanted states = StatesOf(span);
    const auto first = static_cast<size_t>(tokens.size());
    tokens.resize(first + static_cast<size_t>(states.count));
    std::iota(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end(), states.token);
  }
  return tokens;
}

std::optional<uint64_t> StepTextBytes(const EngineLimits& limits, int64_t hidden_size,
                                      DType dtype) {
  if (!limits.lacks_head && !limits.attends_both_ways) return 0;
  // The arrays, with the half more that TakeTextRoom takes, and the states.
  constexpr uint64_t kArrayBytes = 4 * sizeof(int32_t) * 3 / 2;
  const uint64_t factors[] = {static_cast<uint64_t>(hidden_size), DTypeBytes(dtype)};
  const auto state = CheckedProduct(factors);
  const auto token = state ? CheckedAdd(*state, kArrayBytes) : std::nullopt;
  if (!token) return std::nullopt;
  const uint64_t all[] = {*token, static_cast<uint64_t>(limits.max_step_tokens),
                          static_cast<uint64_t>(limits.max_in_flight)};
  return CheckedProduct(all);
}

size_t DeviceStep::StateBytes() const {
  return static_cast<size_t>(state_->config().hidden_size) * DTypeBytes(ops_->activation_dtype());
}

Status DeviceStep::TakeTextRoom(StepTexts* texts) {
  const size_t states = static_cast<size_t>(texts->num_wanted) * StateBytes();
  if (texts->end <= texts->bytes && states <= texts->states_bytes) return Status();
  MINISGL_RETURN_IF_ERROR(quiet_());
  if (texts->end > texts->bytes) {
    MINISGL_RETURN_IF_ERROR(
        TakeRoom(texts->end + texts->end / 2, &texts->host, &texts->device, &texts->bytes));
  }
  if (states > texts->states_bytes) {
    const size_t most = static_cast<size_t>(limits().max_step_tokens) * StateBytes();
    MINISGL_RETURN_IF_ERROR(TakeRoom(std::min(most, states + states / 2), &texts->states,
                                     &texts->device_states, &texts->states_bytes));
  }
  return quiet_();
}

Status DeviceStep::UploadTexts(InFlightStep* step) {
  static const PlanExtras kNoExtras;
  const BatchPlan* const plan = step->plan.get();
  const std::vector<int32_t> wanted = TokensWanted(plan == nullptr ? kNoExtras : plan->extras);
  ForwardInput input;
  WholeTexts whole;
  if (plan != nullptr) whole.List(*plan, state_->config(), &input);
  StepTexts& texts = step->texts;
  texts.num_wanted = static_cast<int32_t>(wanted.size());
  texts.num_whole = input.key_end == nullptr ? 0 : plan->num_tokens();
  texts.has_types = input.token_types != nullptr;
  texts.key_ends = 0;
  texts.window_key_ends = ArrayEnd(texts.key_ends, texts.num_whole);
  texts.types = ArrayEnd(texts.window_key_ends, texts.num_whole);
  texts.wanted = ArrayEnd(texts.types, texts.has_types ? texts.num_whole : 0);
  texts.end = ArrayEnd(texts.wanted, texts.num_wanted);
  if (texts.end == 0) return Status();
  MINISGL_RETURN_IF_ERROR(TakeTextRoom(&texts));
  auto* const memory = static_cast<std::byte*>(texts.host.get());
  const auto copy = [&](size_t offset, const int32_t* from, int32_t count) {
    if (count > 0) std::memcpy(memory + offset, from, static_cast<size_t>(count) * sizeof(int32_t));
  };
  copy(texts.key_ends, input.key_end, texts.num_whole);
  copy(texts.window_key_ends, input.window_key_end, texts.num_whole);
  copy(texts.types, input.token_types, texts.has_types ? texts.num_whole : 0);
  copy(texts.wanted, wanted.data(), texts.num_wanted);
  ops_->CopyToDevice(texts.device.data(), memory, texts.end);
  return Status();
}

void DeviceStep::SetTexts(const InFlightStep& step, ForwardInput* input) {
  const StepTexts& texts = step.texts;
  if (texts.num_whole == 0) return;
  const auto at = [&](size_t offset) {
    return reinterpret_cast<const int32_t*>(texts.device.data() + offset);
  };
  input->key_end = at(texts.key_ends);
  input->window_key_end = at(texts.window_key_ends);
  if (texts.has_types) input->token_types = at(texts.types);
}

void DeviceStep::RunPooled(const InFlightStep& step) {
  const StepTexts& texts = step.texts;
  const auto* const wanted = reinterpret_cast<const int32_t*>(texts.device.data() + texts.wanted);
  for (int32_t begin = 0; begin < texts.num_wanted; begin += layout_.max_places) {
    const int32_t count = std::min(layout_.max_places, texts.num_wanted - begin);
    const ConstActivationPtr states =
        state_->States({.logit_tokens = wanted + begin, .num_logit_tokens = count});
    ops_->CopyOnDevice(texts.device_states.data() + static_cast<size_t>(begin) * StateBytes(),
                       states.data, static_cast<size_t>(count) * StateBytes());
  }
}

void DeviceStep::DownloadTexts(InFlightStep* step) {
  const StepTexts& texts = step->texts;
  if (texts.num_wanted == 0) return;
  ops_->CopyToHost(texts.states.get(), texts.device_states.data(),
                   static_cast<size_t>(texts.num_wanted) * StateBytes());
}

std::vector<std::vector<float>> DeviceStep::PooledVectors(const InFlightStep& step) {
  const BatchPlan& plan = *step.plan;
  const int64_t width = state_->config().hidden_size;
  const auto* next = static_cast<const std::byte*>(step.texts.states.get());
  std::vector<std::vector<float>> vectors;
  int32_t row = 0;
  for (const PoolingSpan& span : plan.extras.pooling) {
    while (plan.row_begin[row + 1] <= span.token) ++row;
    const int32_t table_row = plan.table_row[row];
    const StatesWanted states = StatesOf(span);
    if (span.begins) pooled_.Begin(table_row);
    const std::vector<float> floats =
        FloatsOfStates(next, ops_->activation_dtype(), states.count * width);
    pooled_.Add(table_row, span.pooling, floats.data(), states.count, width, states.num_skipped);
    next += static_cast<size_t>(states.count) * StateBytes();
    if (span.ends) vectors.push_back(pooled_.End(table_row, span.pooling));
  }
  return vectors;
}

}  // namespace minisgl::engine
