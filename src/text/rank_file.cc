// Recognition of a rank file by its first line.
#include "text/rank_file.h"

#include <algorithm>

#include "minisgl/base/base64.h"

namespace minisgl::text {
namespace {

// A line contains one token in base64 and its rank; real lines have at most 180 bytes.
constexpr size_t kLineBytesMax = 4096;

}  // namespace

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
