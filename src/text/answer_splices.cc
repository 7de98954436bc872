#include "text/answer_splices.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "minisgl/text/encode_after.h"
#include "minisgl/text/stream_decoder.h"

namespace minisgl::text {
namespace {

// Returns the bytes [begin, end) of the text of `pieces`, as pieces.
std::vector<TextPiece> Cut(const std::vector<TextPiece>& pieces, size_t begin, size_t end) {
  std::vector<TextPiece> cut;
  size_t at = 0;
  for (const TextPiece& piece : pieces) {
    const size_t from = std::max(begin, at), to = std::min(end, at + piece.text.size());
    if (from < to) cut.push_back({piece.text.substr(from - at, to - from), piece.trusted});
    at += piece.text.size();
  }
  return cut;
}

// `ids` replace the bytes [begin, end) of the rendered text.
struct Splice {
  size_t begin = 0;
  size_t end = 0;
  std::vector<TokenId> ids;
};

// A conversation as the template renders it.
struct RenderedText {
  explicit RenderedText(const std::vector<TextPiece>& rendered) : pieces(rendered) {
    for (const TextPiece& piece : pieces) text += piece.text;
  }

  // True if the template itself, and no content, writes `spelling` at `begin`.
  bool Writes(const std::string& spelling, size_t begin) const {
    if (text.compare(begin, spelling.size(), spelling) != 0) return false;
    const std::vector<TextPiece> there = Cut(pieces, begin, begin + spelling.size());
    return std::all_of(there.begin(), there.end(), [](const TextPiece& p) { return p.trusted; });
  }

  std::string text;
  const std::vector<TextPiece>& pieces;
};

// If the first `num_ids` ids of an answer, or those from a control token on, spell the text of
// `whole` where the answer begins: returns the splice of those ids for that text.
std::optional<Splice> MatchAnswer(const Tokenizer& tokenizer, const RenderedAnswer& answer,
                                  size_t num_ids, const RenderedText& whole) {
  const size_t at = answer.begin;
  // The spelling of the ids, and the places of control tokens in it.
  StreamDecoder decoder(&tokenizer, /*at_start=*/false, /*keep_special=*/true);
  std::string spelled;
  struct Control {
    size_t index = 0, begin = 0;
    std::string spelling;
  };
  std::vector<Control> controls;
  for (size_t i = 0; i < num_ids; ++i) {
    const TokenId id = answer.ids[i];
    spelled += decoder.Push(id);
    if (!tokenizer.IsSpecial(id)) continue;
    std::string spelling = tokenizer.PieceText(id);
    if (!spelled.ends_with(spelling)) return std::nullopt;
    controls.push_back({i, spelled.size() - spelling.size(), std::move(spelling)});
  }
  spelled += decoder.Finish();
  if (!spelled.ends_with(answer.text)) return std::nullopt;

  const auto matches = [&](size_t begin) {
    const std::string_view rest = std::string_view(spelled).substr(begin);
    if (whole.text.compare(at, rest.size(), rest) != 0) return false;
    return std::all_of(controls.begin(), controls.end(), [&](const Control& control) {
      return control.begin < begin || whole.Writes(control.spelling, at + control.begin - begin);
    });
  };
  const auto splice = [&](size_t index, size_t begin) {
    return Splice{at, at + spelled.size() - begin,
                  std::vector<TokenId>(answer.ids.begin() + static_cast<int64_t>(index),
                                       answer.ids.begin() + static_cast<int64_t>(num_ids))};
  };
  if (matches(0)) return splice(0, 0);
  for (const Control& control : controls) {
    if (matches(control.begin)) return splice(control.index, control.begin);
  }
  return std::nullopt;
}

std::vector<Splice> FindSplices(const Tokenizer& tokenizer, const RenderedText& whole,
                                std::span<const RenderedAnswer> answers) {
  std::vector<Splice> splices;
  size_t last_end = 0;
  for (const RenderedAnswer& answer : answers) {
    const std::vector<TokenId>& ids = answer.ids;
    // The last id may be an end token that is not in the answer's text: a control token, or one
    // that completed a stop string.
    const bool ends = tokenizer.IsSpecial(ids.back());
    std::optional<Splice> splice;
    if (!ends) splice = MatchAnswer(tokenizer, answer, ids.size(), whole);
    if (!splice) splice = MatchAnswer(tokenizer, answer, ids.size() - 1, whole);
    if (!splice || splice->begin < last_end) continue;
    // If the template writes the same end token after the answer, the answer's own takes its place;
    // else the answer's own is left out.
    const std::string spelling = tokenizer.PieceText(ids.back());
    if (ends && whole.Writes(spelling, splice->end)) {
      splice->end += spelling.size();
      splice->ids.push_back(ids.back());
    }
    last_end = splice->end;
    splices.push_back(std::move(*splice));
  }
  return splices;
}

Result<std::vector<TokenId>> EncodeWith(const Tokenizer& tokenizer,
                                        const std::vector<TextPiece>& pieces,
                                        const std::vector<Splice>& splices) {
  std::vector<TokenId> ids;
  size_t at = 0;
  std::optional<TokenId> marker;
  const auto append_text = [&](size_t end) {
    std::vector<TextPiece> text = Cut(pieces, at, end);
    if (text.empty()) return Status();
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> more,
                             EncodeAfter(tokenizer, marker, std::move(text)));
    ids.insert(ids.end(), more.begin(), more.end());
    return Status();
  };
  for (const Splice& splice : splices) {
    MINISGL_RETURN_IF_ERROR(append_text(splice.begin));
    ids.insert(ids.end(), splice.ids.begin(), splice.ids.end());
    at = splice.end;
    const bool ended = !splice.ids.empty() && tokenizer.IsSpecial(splice.ids.back());
    marker = ended ? splice.ids.back() : tokenizer.eos_id();
  }
  MINISGL_RETURN_IF_ERROR(append_text(std::string::npos));
  return ids;
}

}  // namespace

void DropAnswersWith(TokenId id, std::vector<RenderedAnswer>* answers) {
  std::erase_if(*answers, [id](const RenderedAnswer& answer) {
    return std::find(answer.ids.begin(), answer.ids.end(), id) != answer.ids.end();
  });
}

Result<std::vector<TokenId>> EncodeSpliced(const Tokenizer& tokenizer,
                                           const std::vector<TextPiece>& pieces,
                                           std::span<const RenderedAnswer> answers) {
  const std::vector<Splice> splices = FindSplices(tokenizer, RenderedText(pieces), answers);
  MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> whole, tokenizer.Encode(pieces));
  if (splices.empty() || whole.empty()) return whole;
  MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> spliced, EncodeWith(tokenizer, pieces, splices));
  // A tokenizer may encode cut text differently; the model must get the same text either way.
  const bool same = tokenizer.Decode(spliced, /*keep_special=*/true) ==
                    tokenizer.Decode(whole, /*keep_special=*/true);
  return same ? spliced : whole;
}

}  // namespace minisgl::text
