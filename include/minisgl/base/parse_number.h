// Numbers in words of a person: options, commands of a chat.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace minisgl {

// Returns the number that `text` is as a whole: no space, no "+", nothing after it. nullopt if it
// is none, or none that Number can hold.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, value);
  if (error != std::errc() || end != text_end) return std::nullopt;
  return value;
}

}  // namespace minisgl
