// Positions for the rotation of queries and keys that are not the places of tokens: around a
// picture they have a time, a height and a width.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace minisgl {

using RopePosition = std::array<int32_t, 3>;  // time, height, width

// The given positions of one request.
struct GivenPositions {
  std::vector<RopePosition> of_prompt;  // one for each token of it; empty: all are their places
  // What tokens after the prompt have beyond their place, in each of the three.
  int32_t shift = 0;

  bool empty() const { return of_prompt.empty(); }
};

// Tokens [token, token + count) of a plan have BatchPlan's rope_positions[offset...]. They are all
// tokens of their row; the others have their place three times.
struct PositionSpan {
  int32_t token = 0;
  int32_t count = 0;
  int32_t offset = 0;

  friend bool operator==(const PositionSpan&, const PositionSpan&) = default;
};

}  // namespace minisgl
