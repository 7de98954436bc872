// Finds the end of a JSON value in a text that goes on behind it, without parsing the value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minisgl::text {

struct JsonSpan {
  enum class State : uint8_t {
    kWhole,  // `end` is one past the value
    kCut,    // the text ends within the value
    kBad,    // no JSON: `end` is the first byte that is wrong
  };
  State state = State::kBad;
  size_t end = 0;
};

// The value that begins at `begin`, where no white space may stand. A number that the text's end
// ends is kCut if `goes_on`: more text may follow. Nesting deeper than kJsonDepthMax is kBad.
// Allocates no memory; time is linear in the value.
JsonSpan SpanJson(std::string_view text, size_t begin, bool goes_on);

// True if `text` is one JSON value with nothing but white space around it.
bool IsJson(std::string_view text);

inline constexpr std::string_view kJsonSpace = " \t\r\n";
// The first byte at or behind `at` that is no white space; the text's size if there is none.
size_t SkipSpace(std::string_view text, size_t at);
std::string_view WithoutSpace(std::string_view text);

}  // namespace minisgl::text
