#include "minisgl/text/encode_after.h"

#include <utility>

namespace minisgl {

Result<std::vector<TokenId>> EncodeAfter(const Tokenizer& tokenizer, std::optional<TokenId> marker,
                                         std::vector<TextPiece> pieces) {
  if (!marker || pieces.empty()) return tokenizer.Encode(pieces);
  pieces.insert(pieces.begin(), TextPiece{tokenizer.PieceText(*marker), true});
  MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer.Encode(pieces));
  if (!ids.empty() && ids.front() == *marker) {
    ids.erase(ids.begin());
    return ids;
  }
  pieces.erase(pieces.begin());
  return tokenizer.Encode(pieces);
}

}  // namespace minisgl
