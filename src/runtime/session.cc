// Splicing: the rendered text of the whole conversation is cut where an answer stands, and the
// answer's own ids take the place of its text.
//
// An answer to messages[0, i) began right after the text of rendering those with the generation
// prompt. So where the whole text begins with that text, and goes on with the answer's, the answer
// stands there. Both the texts between answers and their cuts are then the same in every later
// turn, and so are the ids before them.
#include "minisgl/runtime/session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "minisgl/text/stream_decoder.h"

namespace minisgl {
namespace {

std::string Join(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

// The bytes [begin, end) of the text that `pieces` make.
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

bool AllTrusted(const std::vector<TextPiece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [](const TextPiece& p) { return p.trusted; });
}

}  // namespace

// The bytes [begin, end) of the rendered text that `ids` stand for.
struct Session::Splice {
  size_t begin = 0;
  size_t end = 0;
  std::vector<TokenId> ids;
};

Session::Session(const Tokenizer* tokenizer, const ChatTemplate* chat_template)
    : tokenizer_(tokenizer), chat_template_(chat_template) {}

Result<std::vector<TextPiece>> Session::Render(size_t num_messages,
                                               const Json& template_args) const {
  ChatInput input;
  Json::Array array;
  for (size_t i = 0; i < num_messages; ++i) {
    Json message;
    message.Set("role", messages_[i].role).Set("content", messages_[i].content);
    array.push_back(std::move(message));
  }
  input.messages = Json(std::move(array));
  input.bos_token = tokenizer_->bos_token();
  input.eos_token = tokenizer_->eos_token();
  input.unk_token = tokenizer_->unk_token();
  input.pad_token = tokenizer_->pad_token();
  input.extra = template_args;
  MINISGL_ASSIGN_OR_RETURN(std::vector<TextPiece> pieces, chat_template_->Render(input));
  if (parse_special_) {
    for (TextPiece& piece : pieces) piece.trusted = true;
  }
  return pieces;
}

// The text that the runtime streamed for `ids`.
std::string Session::AnswerText(const std::vector<TokenId>& ids) const {
  StreamDecoder decoder(tokenizer_, /*at_start=*/false);
  std::string text;
  for (const TokenId id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

std::vector<Session::Splice> Session::FindSplices(const std::string& text,
                                                  const std::vector<TextPiece>& pieces,
                                                  const Json& template_args) const {
  std::vector<Splice> splices;
  size_t last_end = 0;
  for (size_t i = 0; i < messages_.size(); ++i) {
    const SessionMessage& message = messages_[i];
    if (message.role != "assistant" || message.answer_ids.empty()) continue;
    const auto before = Render(i, template_args);
    if (!before.ok()) continue;
    const std::string head = Join(*before);
    const std::string& content = message.content;
    if (!text.starts_with(head) || text.compare(head.size(), content.size(), content) != 0)
      continue;

    // The last id may be an end token that the answer's text does not show.
    Splice splice{head.size(), head.size() + content.size(), message.answer_ids};
    const TokenId last = splice.ids.back();
    std::vector<TokenId> body(splice.ids.begin(), splice.ids.end() - 1);
    const bool ends = tokenizer_->IsSpecial(last) || AnswerText(splice.ids) != content;
    if (ends) {
      // The template writes the same end after it, or another one: then the answer's own is left
      // out.
      const std::string spelling = tokenizer_->PieceText(last);
      const size_t end = splice.end + spelling.size();
      if (tokenizer_->IsSpecial(last) && text.compare(splice.end, spelling.size(), spelling) == 0 &&
          AllTrusted(Cut(pieces, splice.end, end))) {
        splice.end = end;
      } else {
        splice.ids = body;
      }
    } else {
      body = splice.ids;
    }
    const bool plain = std::none_of(body.begin(), body.end(),
                                    [&](TokenId id) { return tokenizer_->IsSpecial(id); });
    if (!plain || AnswerText(body) != content || splice.begin < last_end) continue;
    last_end = splice.end;
    splices.push_back(std::move(splice));
  }
  return splices;
}

// The ids of `pieces` where they follow a control token: encoded with its spelling before them, so
// that no tokenizer takes their beginning for the beginning of a text.
Result<std::vector<TokenId>> Session::EncodeAfter(TokenId marker,
                                                  std::vector<TextPiece> pieces) const {
  pieces.insert(pieces.begin(), TextPiece{tokenizer_->PieceText(marker), true});
  MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer_->Encode(pieces));
  if (!ids.empty() && ids.front() == marker) {
    ids.erase(ids.begin());
    return ids;
  }
  pieces.erase(pieces.begin());
  return tokenizer_->Encode(pieces);
}

Result<std::vector<TokenId>> Session::EncodeSpliced(const std::vector<TextPiece>& pieces,
                                                    const std::vector<Splice>& splices) const {
  std::vector<TokenId> ids;
  size_t at = 0;
  std::optional<TokenId> marker;
  const auto append_text = [&](size_t end) {
    std::vector<TextPiece> text = Cut(pieces, at, end);
    if (text.empty()) return Status();
    MINISGL_ASSIGN_OR_RETURN(
        const std::vector<TokenId> more,
        marker ? EncodeAfter(*marker, std::move(text)) : tokenizer_->Encode(text));
    ids.insert(ids.end(), more.begin(), more.end());
    return Status();
  };
  for (const Splice& splice : splices) {
    MINISGL_RETURN_IF_ERROR(append_text(splice.begin));
    ids.insert(ids.end(), splice.ids.begin(), splice.ids.end());
    at = splice.end;
    const bool ended = !splice.ids.empty() && tokenizer_->IsSpecial(splice.ids.back());
    marker = ended ? splice.ids.back() : tokenizer_->eos_id();
  }
  MINISGL_RETURN_IF_ERROR(append_text(std::string::npos));
  return ids;
}

Result<std::vector<TokenId>> Session::PromptIds(const Json& template_args) const {
  MINISGL_ASSIGN_OR_RETURN(const std::vector<TextPiece> pieces,
                           Render(messages_.size(), template_args));
  const std::vector<Splice> splices = FindSplices(Join(pieces), pieces, template_args);
  MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> whole, tokenizer_->Encode(pieces));
  if (splices.empty()) return whole;
  MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> spliced, EncodeSpliced(pieces, splices));
  // Whatever a tokenizer makes of cut text: the model must be given the same text either way.
  const bool same = tokenizer_->Decode(spliced, /*keep_special=*/true) ==
                    tokenizer_->Decode(whole, /*keep_special=*/true);
  return same ? spliced : whole;
}

std::vector<SessionMessage> Session::TakeOldestTurn() {
  const auto is_user = [](const SessionMessage& message) { return message.role == "user"; };
  const auto first = std::find_if(messages_.begin(), messages_.end(), is_user);
  if (first == messages_.end()) return {};
  const auto next = std::find_if(first + 1, messages_.end(), is_user);
  if (next == messages_.end()) return {};
  std::vector<SessionMessage> turn(std::make_move_iterator(first), std::make_move_iterator(next));
  messages_.erase(first, next);
  return turn;
}

}  // namespace minisgl
