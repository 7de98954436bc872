// Numbers that a person types: options, commands of a chat. Thread-safe (no state).
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace minisgl {

// Returns the number that all of `text` spells, without a space or a "+". nullopt if it spells
// none, or one that Number cannot hold.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, value);
  if (error != std::errc() || end != text_end) return std::nullopt;
  return value;
}

}  // namespace minisgl
