// Encoding of a long text window by window, so that memory depends on a window and not on the text.
//
// Windows overlap, and each begins where a token of the one before begins. They are joined at a
// token that both have at the same place. That gives the ids of the whole wherever a text's ids are
// decided by which tokens may stand side by side: any two neighbours of the result are neighbours
// in one window. Byte-pair encoding as models are trained with it is of this kind (tests compare
// real models); the best path of a unigram model settles within a few words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::text {

// Of a text that is encoded at once: a library may take 250 bytes for each.
inline constexpr size_t kEncodeWindowBytes = size_t{64} << 10;
// How far a window reaches over the beginning of the next.
inline constexpr size_t kEncodeOverlapBytes = size_t{8} << 10;

// A token, and the first byte of what it stands for. Several may have one place: the bytes of a
// character.
struct PlacedToken {
  size_t begin = 0;
  TokenId id = 0;
};

// Gives the tokens of bytes `begin` to `end` of the text, their places counted in the whole text.
using EncodeWindow = std::function<Status(size_t begin, size_t end, std::vector<PlacedToken>*)>;

// Gives `sink` the ids of `text`, which is longer than a window. `fused`: the token that stands for
// a run of characters of any length. False where the sink wanted no more.
Result<bool> EncodeInWindows(std::string_view text, const EncodeWindow& encode,
                             std::optional<TokenId> fused, const TokenSink& sink);

}  // namespace minisgl::text
