// Encoding of a long text window by window, with memory proportional to a window.
//
// Windows overlap. Each begins where a token of the previous window begins, and the two are joined
// at a token that both have at the same place. The result equals the encoding of the whole text if
// the ids depend only on which tokens may be neighbours, because any two neighbours of the result
// are neighbours in one window. This holds for byte-pair encoding as models are trained with it
// (tests compare real models). The best path of a unigram model settles within a few words, but
// among segmentations with equal scores another one may win than in the whole text: sentencepiece
// adds scores as floats from the beginning of its input, and rounding decides between them.
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

// Maximum text that is encoded at once: a library may use 250 bytes of memory per byte of text.
inline constexpr size_t kEncodeWindowBytes = size_t{64} << 10;
// Overlap of two neighbouring windows.
inline constexpr size_t kEncodeOverlapBytes = size_t{8} << 10;

// A token and the first byte of the text it encodes. Several tokens may have the same place, for
// example the byte tokens of one character.
struct PlacedToken {
  size_t begin = 0;
  TokenId id = 0;
};

// Encodes bytes [begin, end) of the text and appends the tokens, with places in the whole text.
using EncodeWindow = std::function<Status(size_t begin, size_t end, std::vector<PlacedToken>*)>;

// Passes the ids of `text`, which is longer than a window, to `sink`. `fused`: the token that
// encodes a run of unknown characters of any length. False if the sink stopped the encoding.
Result<bool> EncodeInWindows(std::string_view text, const EncodeWindow& encode,
                             std::optional<TokenId> fused, const TokenSink& sink);

}  // namespace minisgl::text
