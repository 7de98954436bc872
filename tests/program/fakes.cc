#include "fakes.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>
#include <utility>

namespace minisgl {

Result<std::vector<TokenId>> ByteTokenizer::EncodeText(std::string_view text) const {
  std::vector<TokenId> ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return ids;
}

Result<std::vector<TokenId>> ByteTokenizer::Encode(std::span<const TextPiece> pieces) const {
  std::vector<TokenId> ids;
  for (const TextPiece& piece : pieces) {
    std::string_view text = piece.text;
    while (!text.empty()) {
      if (piece.trusted && text.starts_with("</s>")) {
        ids.push_back(kEos);
        text.remove_prefix(4);
      } else {
        ids.push_back(static_cast<uint8_t>(text[0]));
        text.remove_prefix(1);
      }
    }
  }
  return ids;
}

std::string ByteTokenizer::Decode(std::span<const TokenId> ids, bool keep_special) const {
  std::string text;
  for (const TokenId id : ids) text += keep_special ? PieceText(id) : PieceBytes(id);
  return text;
}

std::string ByteTokenizer::PieceText(TokenId id) const {
  return id == kBos ? "<s>" : id == kEos ? "</s>" : PieceBytes(id);
}

std::string ByteTokenizer::PieceBytes(TokenId id) const {
  return id < kBos ? std::string(1, static_cast<char>(id)) : "";
}

std::optional<TokenId> ByteTokenizer::IdOf(std::string_view spelling) const {
  if (spelling == "<s>") return kBos;
  if (spelling == "</s>") return kEos;
  return std::nullopt;
}

Result<std::vector<TextPiece>> LineTemplate::Render(const ChatInput& input) const {
  std::vector<TextPiece> pieces;
  for (const Json& message : input.messages.as_array()) {
    const std::string& role = message.Find("role")->as_string();
    if (role == "refused") return BadInput("template:1: the role is not known");
    pieces.push_back({role + ": ", true});
    pieces.push_back({message.Find("content")->as_string(), false});
    pieces.push_back({"\n", true});
  }
  return pieces;
}

TextModel FakeTextModel(bool with_template) {
  TextModel text;
  text.dir = "the-model";
  text.tokenizer = std::make_unique<ByteTokenizer>();
  if (with_template) text.chat_template = std::make_unique<LineTemplate>();
  return text;
}

RequestId FakeRuntime::Submit(Prompt prompt, EventQueue* queue, uint64_t tag) {
  return SubmitAll({std::move(prompt)}, queue, {tag}).front();
}

std::vector<RequestId> FakeRuntime::SubmitAll(std::vector<Prompt> prompts, EventQueue* queue,
                                              const std::vector<uint64_t>& tags) {
  std::vector<RequestId> ids;
  for (size_t i = 0; i < prompts.size(); ++i) {
    submissions.push_back({next_id_++, tags[i], std::move(prompts[i]), queue});
    ids.push_back(submissions.back().id);
    open.insert(submissions.back().id);
  }
  open_max = std::max(open_max, open.size());
  for (size_t i = submissions.size() - ids.size(); on_submit && i < submissions.size(); ++i) {
    on_submit(Submission(submissions[i]));
  }
  return ids;
}

void FakeRuntime::Abort(RequestId request) {
  if (open.count(request) == 0) return;
  Event done;
  done.finish_reason = FinishReason::kAborted;
  End(submissions[request - 1], std::move(done));
}

void FakeRuntime::Answer(const Submission& request, const std::string& text, FinishReason reason) {
  Event done;
  done.text = text;
  for (const char byte : text) done.token_ids.push_back(static_cast<uint8_t>(byte));
  done.finish_reason = reason;
  End(request, std::move(done));
}

void FakeRuntime::End(const Submission& request, Event done) {
  done.request = request.id;
  done.tag = request.tag;
  done.kind = Event::Kind::kDone;
  done.usage.prompt_tokens = static_cast<int64_t>(request.prompt.ids.size());
  done.usage.completion_tokens = static_cast<int64_t>(done.token_ids.size());
  open.erase(request.id);
  request.queue->Push(std::move(done));
}

EngineLimits SmallLimits() {
  EngineLimits limits;
  limits.vocab_size = 258;
  limits.page_size = 16;
  limits.num_pages = 16;
  limits.max_running_requests = 4;
  limits.max_seq_len = 64;
  limits.max_step_tokens = 64;
  return limits;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace minisgl
