// Hidden states that an engine hands to a model beside its own: one that drafts.
#pragma once

#include <cstdint>

namespace minisgl {

// A request wants the hidden states of its tokens from this place on, in prompt and answer. Only a
// token that a step computes has one; a token that a cache serves has none.
struct HiddenWanted {
  int64_t from = 0;
};

// Tokens [token, token + count) of one row of a plan.
struct HiddenSpan {
  int32_t token = 0;
  int32_t count = 0;

  friend bool operator==(const HiddenSpan&, const HiddenSpan&) = default;
};

}  // namespace minisgl
