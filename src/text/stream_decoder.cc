// Sentencepiece's decoding rules, applied token by token, unless the tokenizer has its own rules.
// Tokenizer::Decode uses the same code, so the concatenated pieces equal the whole by construction;
// tests compare it with the libraries.
#include "minisgl/text/stream_decoder.h"

#include "minisgl/base/utf8.h"
#include "text/piece.h"

namespace minisgl {

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, bool at_start, bool keep_special)
    : tokenizer_(tokenizer),
      own_(tokenizer->NewDecoder(at_start, keep_special)),
      at_start_(at_start),
      keep_special_(keep_special) {}

std::string StreamDecoder::Push(TokenId id) {
  if (own_ != nullptr) return own_->Push(id);
  if (tokenizer_->IsSpecial(id)) {
    // Like any token that is not a byte, it ends a run of byte tokens.
    std::string text = Drain(/*is_last=*/true);
    if (!keep_special_) return text;
    at_start_ = false;
    return text + tokenizer_->PieceText(id);
  }
  std::string bytes = tokenizer_->PieceBytes(id);
  if (at_start_ && !bytes.empty()) {
    // Drop one space for a dummy prefix; every leading space if the model removes extra white
    // space.
    const bool begins_with_space = tokenizer_->DropsLeadingSpace() &&
                                   tokenizer_->PieceText(id).starts_with(text::kSpaceSymbol);
    if (begins_with_space) bytes.erase(0, 1);
    at_start_ = begins_with_space && bytes.empty() && tokenizer_->DropsEveryLeadingSpace();
  }
  pending_ += bytes;
  return Drain(/*is_last=*/false);
}

std::string StreamDecoder::Finish() {
  return own_ != nullptr ? own_->Finish() : Drain(/*is_last=*/true);
}

// Removes complete characters from `pending_` and returns them. A byte that cannot begin a
// character becomes one U+FFFD, as in the library.
std::string StreamDecoder::Drain(bool is_last) {
  std::string text;
  size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const size_t length = Utf8CharLength(rest);
    if (length == 0 && !is_last && IsIncompleteUtf8(rest)) break;
    if (length == 0) {
      text += "\xEF\xBF\xBD";
      ++at;
    } else {
      text.append(rest.substr(0, length));
      at += length;
    }
  }
  pending_.erase(0, at);
  return text;
}

}  // namespace minisgl
