// Fakes for the rooms below the command line: a tokenizer of bytes, a template of one line a
// message, and a runtime controlled by the test.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "load/model_loader.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/text_model.h"
#include "temporary_folder.h"

namespace minisgl {

// Ids 0..255 are bytes, 256 is <s>, 257 is </s>.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256, kEos = 257;

  Result<std::vector<TokenId>> EncodeText(std::string_view text) const override;
  Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const override;
  std::vector<TokenId> Prefix() const override { return {kBos}; }
  std::vector<TokenId> Suffix() const override { return {}; }
  std::string Decode(std::span<const TokenId> ids, bool keep_special) const override;
  TokenId vocab_size() const override { return 258; }
  bool IsSpecial(TokenId id) const override { return id >= kBos; }
  std::string PieceText(TokenId id) const override;
  std::string PieceBytes(TokenId id) const override;
  std::optional<TokenId> IdOf(std::string_view spelling) const override;
  std::optional<TokenId> bos_id() const override { return kBos; }
  std::optional<TokenId> eos_id() const override { return kEos; }
  std::string bos_token() const override { return "<s>"; }
  std::string eos_token() const override { return "</s>"; }
  std::string unk_token() const override { return ""; }
  std::string pad_token() const override { return ""; }
  bool DropsLeadingSpace() const override { return false; }
};

// "role: content\n" for each message; rejects the role "refused".
class LineTemplate : public ChatTemplate {
 public:
  Result<std::vector<TextPiece>> Render(const ChatInput& input) const override;
};

TextModel FakeTextModel(bool with_template = true);

// Requests wait until `on_submit` or the test answers them.
class FakeRuntime : public Runtime {
 public:
  struct Submission {
    RequestId id = 0;
    uint64_t tag = 0;
    Prompt prompt;
    EventQueue* queue = nullptr;
  };

  explicit FakeRuntime(const EngineLimits& limits) : limits_(limits) {}

  RequestId Submit(Prompt prompt, EventQueue* queue, uint64_t tag) override;
  std::vector<RequestId> SubmitAll(std::vector<Prompt> prompts, EventQueue* queue,
                                   const std::vector<uint64_t>& tags) override;
  void Abort(RequestId request) override;
  SessionId OpenSession() override { return 1; }
  void CloseSession(SessionId) override {}
  void FinishSaves(std::chrono::milliseconds) override {}
  void ResetPrefixCache() override { ++num_resets; }
  RuntimeStats Stats() const override { return {}; }
  const EngineLimits& limits() const override { return limits_; }
  void set_limits(const EngineLimits& limits) { limits_ = limits; }  // before any request

  // Ends a request with `text`, one token a byte.
  void Answer(const Submission& request, const std::string& text,
              FinishReason reason = FinishReason::kStop);
  void End(const Submission& request, Event done);

  std::function<void(const Submission&)> on_submit;  // called for each request
  std::vector<Submission> submissions;               // all requests, in order
  std::set<RequestId> open;
  size_t open_max = 0;
  int num_resets = 0;

 private:
  EngineLimits limits_;
  RequestId next_id_ = 1;
};

EngineLimits SmallLimits();

std::vector<std::string> Lines(const std::string& text);

}  // namespace minisgl
