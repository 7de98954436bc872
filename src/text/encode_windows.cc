#include "text/encode_windows.h"

#include <algorithm>
#include <utility>

namespace minisgl::text {
namespace {

using Tokens = std::vector<PlacedToken>;

// The first byte of the character that `at` lies in.
size_t CharacterBegin(std::string_view text, size_t at) {
  // A run of stray continuation bytes has no character to be kept whole.
  for (int i = 0; i < 3 && at > 0 && at < text.size() && (text[at] & 0xC0) == 0x80; ++i) --at;
  return at;
}

// Whether the first token at its place.
bool BeginsPlace(const Tokens& tokens, size_t i) {
  return i == 0 || tokens[i].begin > tokens[i - 1].begin;
}

// Where the window after one from `begin` to `end` begins: at its last token that leaves an
// overlap, or else at its last; at `end` where it has one token alone.
size_t NextBegin(const Tokens& tokens, size_t begin, size_t end) {
  size_t last = begin;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!BeginsPlace(tokens, i) || tokens[i].begin <= begin) continue;
    if (last > begin && tokens[i].begin + kEncodeOverlapBytes > end) break;
    last = tokens[i].begin;
  }
  return last > begin ? last : end;
}

// Where two windows are joined: a token of the former, and the same in the latter.
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
    // One run of characters, in two windows.
    const bool goes_on = next == end && fused && last_id == fused;
    if (goes_on && written < tokens.size() && tokens[written].id == *fused) ++written;
    begin = next;
    end = next_end;
  }
  return write(tokens.size());
}

}  // namespace minisgl::text
