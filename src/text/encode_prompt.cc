#include "minisgl/text/encode_prompt.h"

#include <algorithm>
#include <span>
#include <utility>

#include "minisgl/text/encode_after.h"
#include "minisgl/text/tokenizer.h"
#include "text/answer_splices.h"
#include "text/image_placeholders.h"

namespace minisgl {
namespace {

// A longer text is not tokenized to its end just to report its length.
constexpr size_t kCountedBytes = size_t{1} << 20;

// Collects ids as they are produced; keeps only the last ones.
class IdsInOrder {
 public:
  explicit IdsInOrder(std::optional<size_t> kept_max) : kept_max_(kept_max) {}

  void Add(std::span<const TokenId> ids) {
    if (ids.empty()) return;
    if (!prompt.first) prompt.first = ids.front();
    prompt.total += std::ssize(ids);
    std::vector<TokenId>& last = prompt.ids;
    last.insert(last.end(), ids.begin(), ids.end());
    if (!kept_max_ || last.size() <= 2 * *kept_max_) return;
    last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(*kept_max_));
  }

  EncodedPrompt prompt;

 private:
  const std::optional<size_t> kept_max_;
};

// True if `pieces` are to be counted to their end.
bool Counts(const std::vector<TextPiece>& pieces, const EncodeBounds& bounds) {
  size_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.text.size();
  return !bounds.counted_max || bytes <= kCountedBytes;
}

// Encodes `pieces` part by part, as far as `bounds` say.
Status AddPieces(const Tokenizer& tokenizer, const std::vector<TextPiece>& pieces, bool counts,
                 const EncodeBounds& bounds, IdsInOrder* ids) {
  if (pieces.empty()) return Status();
  EncodedPrompt& prompt = ids->prompt;
  return tokenizer.EncodeTo(pieces, [&](std::span<const TokenId> more) {
    ids->Add(more);
    prompt.is_whole = counts || prompt.total <= *bounds.counted_max;
    return prompt.is_whole && (bounds.cancelled == nullptr || !bounds.cancelled->load());
  });
}

// Encodes what `prompt` is made of, in order.
Status AddParts(const TextModel& text, RenderedPrompt prompt, const EncodeBounds& bounds,
                IdsInOrder* ids) {
  const Tokenizer& tokenizer = *text.tokenizer;
  ids->Add(prompt.before);
  if (prompt.adds_prefix) ids->Add(tokenizer.Prefix());
  if (!prompt.before.empty()) {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> more,
                             EncodeAfter(tokenizer, tokenizer.eos_id(), std::move(prompt.pieces)));
    ids->Add(more);
  } else if (prompt.goes_on) {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> all,
                             text::EncodeSpliced(tokenizer, prompt.pieces, prompt.answers));
    ids->Add(all);
  } else {
    const bool counts = Counts(prompt.pieces, bounds);
    const int64_t least = counts ? 0 : tokenizer.MinTokens(prompt.pieces);
    if (!counts && least > *bounds.counted_max) {
      ids->prompt.total = least;
      ids->prompt.is_whole = false;
      return Status();
    }
    MINISGL_RETURN_IF_ERROR(AddPieces(tokenizer, prompt.pieces, counts, bounds, ids));
  }
  if (prompt.adds_suffix) ids->Add(tokenizer.Suffix());
  ids->Add(prompt.after);
  return Status();
}

}  // namespace

Result<EncodedPrompt> EncodePrompt(const TextModel& text, RenderedPrompt prompt,
                                   const EncodeBounds& bounds) {
  if (text.parse_special) {
    for (TextPiece& piece : prompt.pieces) piece.trusted = true;
  }
  std::vector<LaidOutImage> pictures = std::move(prompt.images);
  const bool has_pictures = !pictures.empty();
  if (has_pictures) text::DropAnswersWith(text.images->token_id, &prompt.answers);
  IdsInOrder ids(has_pictures ? std::nullopt : bounds.kept_max);
  MINISGL_RETURN_IF_ERROR(AddParts(text, std::move(prompt), bounds, &ids));
  EncodedPrompt& encoded = ids.prompt;
  const bool is_cancelled = bounds.cancelled != nullptr && bounds.cancelled->load();
  if (has_pictures && encoded.is_whole && !is_cancelled) {
    MINISGL_ASSIGN_OR_RETURN(encoded.images,
                             text::FindImageRuns(*text.images, encoded.ids, std::move(pictures)));
  }
  return std::move(encoded);
}

}  // namespace minisgl
