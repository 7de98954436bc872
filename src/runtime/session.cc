// Splices the sampled ids of answers into the rendered text of the whole conversation.
//
// An answer to messages[0, i) began right after the text that those messages render to with the
// generation prompt. If the whole text begins with that text and continues with the answer's, the
// answer is there, and its ids replace that part. A template that leaves out earlier reasoning
// continues with only the end of the answer, from the control token that begins that end. The texts
// between answers, and their cuts, are then the same in every later turn, and so are the ids before
// them.
#include "minisgl/runtime/session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "minisgl/text/chat_messages.h"
#include "minisgl/text/continue_message.h"
#include "minisgl/text/stream_decoder.h"

namespace minisgl {
namespace {

std::string Join(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

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

bool AllTrusted(const std::vector<TextPiece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [](const TextPiece& p) { return p.trusted; });
}

// Returns a message as templates take it.
Json MessageJson(const SessionMessage& message, bool reasoning_in_blocks) {
  if (!message.given.is_null()) return message.given;
  Json json;
  json.Set("role", message.role);
  if (message.reasoning.empty()) {
    json.Set("content", message.content);
  } else if (reasoning_in_blocks) {
    Json reasoning, text;
    reasoning.Set("type", "thinking").Set("thinking", message.reasoning);
    text.Set("type", "text").Set("text", message.content);
    json.Set("content", Json(Json::Array{std::move(reasoning), std::move(text)}));
  } else {
    json.Set("content", message.content).Set("reasoning_content", message.reasoning);
  }
  return json;
}

}  // namespace

// `ids` replace the bytes [begin, end) of the rendered text.
struct Session::Splice {
  size_t begin = 0;
  size_t end = 0;
  std::vector<TokenId> ids;
};

// A conversation as the template renders it.
struct Session::Rendered {
  std::string text;
  std::vector<TextPiece> pieces;

  // True if the template itself, and no content, writes `spelling` at `begin`.
  bool Writes(const std::string& spelling, size_t begin) const {
    return text.compare(begin, spelling.size(), spelling) == 0 &&
           AllTrusted(Cut(pieces, begin, begin + spelling.size()));
  }
};

Session::Session(const Tokenizer* tokenizer, const ChatTemplate* chat_template)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      tags_(FindReasoningTags(*chat_template, *tokenizer, &kept_special_ids_)),
      reasoning_in_blocks_(!tags_.none() && !ShowsReasoning(false, "", "") &&
                           ShowsReasoning(true, tags_.open, tags_.close)) {}

SessionMessage Session::AnswerMessage(const std::string& text, std::vector<TokenId> ids,
                                      const ReasoningTags& tags) const {
  if (kept_special_ids_.empty()) return {"assistant", text, std::move(ids)};
  ReasoningPiece parts = SplitReasoningExactly(tags, text);
  return {"assistant", std::move(parts.text), std::move(ids), std::move(parts.reasoning)};
}

// True if the template writes the reasoning of an answer that is passed in this form.
bool Session::ShowsReasoning(bool in_blocks, std::string_view open, std::string_view close) const {
  const std::string reasoning = "r4s0n";  // a text that no template writes by itself
  const SessionMessage answer = {"assistant", "a", {}, reasoning};
  ChatInput input =
      InputOf({MessageJson({"user", "a", {}}, false), MessageJson(answer, in_blocks)}, Json());
  input.add_generation_prompt = false;
  const auto pieces = RenderMessages(*chat_template_, &input);
  if (!pieces.ok()) return false;
  const std::string shown = std::string(open) + reasoning + std::string(close);
  return Join(*pieces).find(shown) != std::string::npos;
}

ChatInput Session::InputOf(Json::Array messages, const Json& template_args) const {
  ChatInput input;
  input.messages = Json(std::move(messages));
  input.bos_token = tokenizer_->bos_token();
  input.eos_token = tokenizer_->eos_token();
  input.unk_token = tokenizer_->unk_token();
  input.pad_token = tokenizer_->pad_token();
  input.extra = template_args;
  input.tools = inputs_.tools;
  input.documents = inputs_.documents;
  input.cancelled = inputs_.cancelled;
  return input;
}

Result<std::vector<TextPiece>> Session::Render(size_t num_messages,
                                               const Json& template_args) const {
  Json::Array messages;
  for (size_t i = 0; i < num_messages; ++i) {
    messages.push_back(MessageJson(messages_[i], reasoning_in_blocks_));
  }
  std::vector<TextPiece> pieces;
  const bool is_whole = num_messages == messages_.size();
  ChatInput input = InputOf(std::move(messages), template_args);
  if (is_whole && continues_) {
    MINISGL_ASSIGN_OR_RETURN(pieces,
                             RenderContinued(*chat_template_, std::move(input), NewMessages()));
  } else {
    MINISGL_ASSIGN_OR_RETURN(pieces, RenderMessages(*chat_template_, &input));
    if (is_whole) {
      MINISGL_RETURN_IF_ERROR(CheckNothingIsLeftOut(*chat_template_, input, pieces, NewMessages()));
    }
  }
  if (parse_special_) {
    for (TextPiece& piece : pieces) piece.trusted = true;
  }
  return pieces;
}

CheckedMessages Session::NewMessages() const {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                 [](const auto& message) { return !message.answer_ids.empty(); });
  return {static_cast<size_t>(messages_.rend() - last), inputs_.index_offset};
}

// If the first `num_ids` ids of an answer, or those from a control token on, spell the text of
// `whole` from `at` on: returns the splice of those ids for that text.
std::optional<Session::Splice> Session::MatchAnswer(const SessionMessage& message, size_t num_ids,
                                                    const Rendered& whole, size_t at) const {
  // The spelling of the ids, and the places of control tokens in it.
  StreamDecoder decoder(tokenizer_, /*at_start=*/false, /*keep_special=*/true);
  std::string spelled;
  struct Control {
    size_t index = 0, begin = 0;
    std::string spelling;
  };
  std::vector<Control> controls;
  for (size_t i = 0; i < num_ids; ++i) {
    const TokenId id = message.answer_ids[i];
    spelled += decoder.Push(id);
    if (!tokenizer_->IsSpecial(id)) continue;
    std::string spelling = tokenizer_->PieceText(id);
    if (!spelled.ends_with(spelling)) return std::nullopt;
    controls.push_back({i, spelled.size() - spelling.size(), std::move(spelling)});
  }
  spelled += decoder.Finish();
  if (!spelled.ends_with(message.content)) return std::nullopt;

  const auto matches = [&](size_t begin) {
    const std::string_view rest = std::string_view(spelled).substr(begin);
    if (whole.text.compare(at, rest.size(), rest) != 0) return false;
    return std::all_of(controls.begin(), controls.end(), [&](const Control& control) {
      return control.begin < begin || whole.Writes(control.spelling, at + control.begin - begin);
    });
  };
  const auto splice = [&](size_t index, size_t begin) {
    return Splice{at, at + spelled.size() - begin,
                  std::vector<TokenId>(message.answer_ids.begin() + static_cast<int64_t>(index),
                                       message.answer_ids.begin() + static_cast<int64_t>(num_ids))};
  };
  if (matches(0)) return splice(0, 0);
  for (const Control& control : controls) {
    if (matches(control.begin)) return splice(control.index, control.begin);
  }
  return std::nullopt;
}

std::vector<Session::Splice> Session::FindSplices(const Rendered& whole,
                                                  const Json& template_args) const {
  std::vector<Splice> splices;
  size_t last_end = 0;
  for (size_t i = 0; i < messages_.size(); ++i) {
    const SessionMessage& message = messages_[i];
    const std::vector<TokenId>& ids = message.answer_ids;
    if (message.role != "assistant" || ids.empty()) continue;
    const auto before = Render(i, template_args);
    if (!before.ok()) continue;
    const std::string head = Join(*before);
    if (!whole.text.starts_with(head)) continue;
    // The last id may be an end token that is not in the answer's text: a control token, or one
    // that completed a stop string.
    const bool ends = tokenizer_->IsSpecial(ids.back());
    std::optional<Splice> splice;
    if (!ends) splice = MatchAnswer(message, ids.size(), whole, head.size());
    if (!splice) splice = MatchAnswer(message, ids.size() - 1, whole, head.size());
    if (!splice || splice->begin < last_end) continue;
    // If the template writes the same end token after the answer, the answer's own takes its place;
    // else the answer's own is left out.
    const std::string spelling = tokenizer_->PieceText(ids.back());
    if (ends && whole.Writes(spelling, splice->end)) {
      splice->end += spelling.size();
      splice->ids.push_back(ids.back());
    }
    last_end = splice->end;
    splices.push_back(std::move(*splice));
  }
  return splices;
}

Result<std::vector<TokenId>> Session::EncodeSpliced(const std::vector<TextPiece>& pieces,
                                                    const std::vector<Splice>& splices) const {
  std::vector<TokenId> ids;
  size_t at = 0;
  std::optional<TokenId> marker;
  const auto append_text = [&](size_t end) {
    std::vector<TextPiece> text = Cut(pieces, at, end);
    if (text.empty()) return Status();
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> more,
                             EncodeAfter(*tokenizer_, marker, std::move(text)));
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
  const std::vector<Splice> splices = FindSplices({Join(pieces), pieces}, template_args);
  MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> whole, tokenizer_->Encode(pieces));
  if (whole.empty()) return BadInput("the chat template renders nothing for this conversation");
  if (splices.empty()) return whole;
  MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> spliced, EncodeSpliced(pieces, splices));
  // A tokenizer may encode cut text differently; the model must get the same text either way.
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
