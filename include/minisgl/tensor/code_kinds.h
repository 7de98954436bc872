// The kinds of codes and scales of CodeForm (code_form.h), for the host and for kernels.
#pragma once

#include <cstdint>

namespace minisgl {

enum class RowCodes : uint8_t {
  kTable4,  // 4 bits; CodeForm::numbers
  kInt6,    // 6 bits; the number of code c is numbers[0] + c
  kInt8,    // two's complement
  kE4M3,
};

// How the publisher of a checkpoint rounds the inputs of products with a matrix of type e4m3.
// Engines may round them so, too.
enum class InputRounding : uint8_t {
  kNone,    // not to e4m3, or in a way that is none of these
  kToken,   // to e4m3, with one scale for each token, found as the model runs
  kTensor,  // with a fixed scale for all tokens
  kGroups,  // with a scale for each token and kScaledInputs neighbouring inputs
};
inline constexpr int64_t kScaledInputs = 128;

// What the scale of a group is, and its offset if it has one.
enum class GroupScales : uint8_t {
  kStored,       // a number of CodeForm::scale_type
  kSteps,        // a step, an integer of 8 bits, times a base of scale_type
  kE4M3Steps,    // a step of type e4m3 times a base in f32, which all groups of a row share
  kE4M3Divided,  // the same step divided by the base
};

}  // namespace minisgl
