// Decoding of base64, and recognition of a rank file by its first line.
#include "text/rank_file.h"

#include <algorithm>
#include <cstdint>

namespace minisgl::text {
namespace {

// A line contains one token in base64 and its rank; real lines have at most 180 bytes.
constexpr size_t kLineBytesMax = 4096;

int Base64Value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int num_bits = 0;
  for (char c : text) {
    const int value = Base64Value(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits & 0xFF);
    bits &= (1u << num_bits) - 1;
  }
  // The unused bits of the last character must be zero, so that no two texts decode to the same
  // bytes.
  return bits == 0 ? std::optional<std::string>(std::move(bytes)) : std::nullopt;
}

bool IsRankFile(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, std::min(bytes.find('\n'), kLineBytesMax));
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size()) return false;
  std::string_view rank = line.substr(space + 1);
  if (rank.ends_with('\r')) rank.remove_suffix(1);
  return DecodeBase64(line.substr(0, space)).has_value() && !rank.empty() &&
         std::all_of(rank.begin(), rank.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace minisgl::text
