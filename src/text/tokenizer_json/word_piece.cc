// See word_piece.h.
#include "text/tokenizer_json/word_piece.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::text {

WordPiece::WordPiece(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  hidden_.resize(static_cast<size_t>(vocabulary_->ids_end()));
  for (const TokenId id : options_.never) {
    if (vocabulary_->Has(id)) hidden_[static_cast<size_t>(id)] = true;
  }
  for (TokenId id = 0; id < vocabulary_->ids_end(); ++id) {
    piece_bytes_max_ = std::max(piece_bytes_max_, vocabulary_->Spelling(id).size());
  }
}

void WordPiece::Encode(std::string_view word, BpeScratch* /*scratch*/,
                       std::vector<TokenId>* ids) const {
  const size_t first = ids->size();
  const auto is_lead = [](char c) { return (c & 0xC0) != 0x80; };
  // The test of the bytes bounds the work of counting.
  const bool is_long = word.size() / 4 > options_.characters_max ||
                       static_cast<size_t>(std::count_if(word.begin(), word.end(), is_lead)) >
                           options_.characters_max;
  std::string spelling;
  for (size_t begin = 0; begin < word.size() && !is_long;) {
    std::optional<TokenId> found;
    size_t end = std::min(word.size(), begin + piece_bytes_max_);
    for (; end > begin; --end) {
      if (end < word.size() && !is_lead(word[end])) continue;
      spelling = begin > 0 ? options_.continuing_subword_prefix : std::string();
      spelling += word.substr(begin, end - begin);
      found = vocabulary_->Find(spelling);
      if (found && !hidden_[static_cast<size_t>(*found)]) break;
      found.reset();
    }
    if (!found) {
      ids->resize(first);
      break;
    }
    ids->push_back(*found);
    begin = end;
  }
  if (ids->size() == first && !word.empty()) ids->push_back(options_.unk_id);
}

}  // namespace minisgl::text
