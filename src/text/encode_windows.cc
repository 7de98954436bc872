// Choice of windows, and the seams at which their tokens are joined.
#include "text/encode_windows.h"

#include <algorithm>
#include <utility>

namespace minisgl::text {
namespace {

using Tokens = std::vector<PlacedToken>;

// Returns the first byte of the character that contains `at`.
size_t CharacterBegin(std::string_view text, size_t at) {
  // At most three steps: a longer run of continuation bytes is not part of a character.
  for (int i = 0; i < 3 && at > 0 && at < text.size() && (text[at] & 0xC0) == 0x80; ++i) --at;
  return at;
}

// True if token `i` is the first at its place.
bool BeginsPlace(const Tokens& tokens, size_t i) {
  return i == 0 || tokens[i].begin > tokens[i - 1].begin;
}

// Returns the beginning of the window after [begin, end): the last token that leaves an overlap,
// otherwise the last token, otherwise `end` (if the window is a single token).
size_t NextBegin(const Tokens& tokens, size_t begin, size_t end) {
  size_t last = begin;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!BeginsPlace(tokens, i) || tokens[i].begin <= begin) continue;
    if (last > begin && tokens[i].begin + kEncodeOverlapBytes > end) break;
    last = tokens[i].begin;
  }
  return last > begin ? last : end;
}

// The place where two windows are joined: indices of the same token in both.
struct Seam {
  size_t former = 0, latter = 0;
};

Seam FindSeam(const Tokens& former, const Tokens& latter, size_t latter_begin) {
  const auto from = std::partition_point(
      former.begin(), former.end(), [&](const PlacedToken& t) { return t.begin < latter_begin; });
  const Seam fallback = {static_cast<size_t>(from - former.begin()), 0};
  size_t i = fallback.former, j = 0;
  while (i < former.size() && j < latter.size()) {
    if (former[i].begin < latter[j].begin) {
      ++i;
    } else if (latter[j].begin < former[i].begin) {
      ++j;
    } else if (former[i].id == latter[j].id && BeginsPlace(former, i) && BeginsPlace(latter, j)) {
      return {i, j};
    } else {
      ++i;
      ++j;
    }
  }
  return fallback;
}

}  // namespace

Result<bool> EncodeInWindows(std::string_view text, const EncodeWindow& encode,
                             std::optional<TokenId> fused, const TokenSink& sink) {
  size_t begin = 0, end = CharacterBegin(text, std::min(kEncodeWindowBytes, text.size()));
  Tokens tokens;
  MINISGL_RETURN_IF_ERROR(encode(begin, end, &tokens));
  size_t written = 0;  // of `tokens`
  std::vector<TokenId> ids;
  std::optional<TokenId> last_id;
  const auto write = [&](size_t until) {
    ids.clear();
    for (; written < until; ++written) ids.push_back(tokens[written].id);
    if (!ids.empty()) last_id = ids.back();
    return sink(ids);
  };
  while (end < text.size()) {
    const size_t next = NextBegin(tokens, begin, end);
    const size_t next_end = CharacterBegin(text, std::min(next + kEncodeWindowBytes, text.size()));
    Tokens next_tokens;
    MINISGL_RETURN_IF_ERROR(encode(next, next_end, &next_tokens));
    const Seam seam = FindSeam(tokens, next_tokens, next);
    if (!write(std::max(seam.former, written))) return false;
    tokens = std::move(next_tokens);
    written = seam.latter;
    // A run of characters that is split between two windows is one token.
    const bool goes_on = next == end && fused && last_id == fused;
    if (goes_on && written < tokens.size() && tokens[written].id == *fused) ++written;
    begin = next;
    end = next_end;
  }
  return write(tokens.size());
}

}  // namespace minisgl::text
