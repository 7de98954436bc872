// Shared by the readers of config.json: ranges of numbers, and keys with one supported value.
#pragma once

#include <optional>
#include <string_view>

#include "weights/field_reader.h"

namespace minisgl::weights {

// Far above any model, and small enough that a product of two fits int64_t.
inline constexpr IntRange kVocabRange = {1, 1 << 24};
inline constexpr IntRange kWidthRange = {1, 1 << 24};
inline constexpr IntRange kLayersRange = {1, 10000};
inline constexpr IntRange kHeadsRange = {1, 1 << 16};
inline constexpr IntRange kHeadDimRange = {2, 1 << 12};
inline constexpr IntRange kSeqLenRange = {2, 1 << 30};  // a prompt of one token, and one of answer
inline constexpr IntRange kWindowRange = {1, 1 << 30};
inline constexpr IntRange kExpertsRange = {1, 1 << 12};
inline constexpr NumberRange kEpsRange = {0, 1, true};
inline constexpr NumberRange kThetaRange = {1, 1e15};
inline constexpr NumberRange kFactorRange = {1, 1e6};
inline constexpr NumberRange kPositiveRange = {1e-6, 1e6};  // dividing by one is harmless

// Upper bound on the tensors of a configuration with one for each expert or head of each layer: ten
// times as many as in the largest known models.
inline constexpr int64_t kPartsMax = 1 << 18;

// Fails unless `key` is absent, null or, if given, `neutral`. `supported` is the end of the error
// message.
void CheckNeutral(FieldReader* reader, std::string_view key, const std::optional<Json>& neutral,
                  std::string_view supported);

}  // namespace minisgl::weights
