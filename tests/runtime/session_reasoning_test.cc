// Conversations with a model whose reasoning is between control tokens: which parts of an answer
// the template gets, and how much of the cached prefix the next prompt continues.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/runtime/runtime.h"
#include "minisgl/runtime/session.h"
#include "minisgl/text/encode_prompt.h"
#include "minisgl/text/render_prompt.h"
#include "renamed_wren.h"

namespace minisgl::runtime {
namespace {

// Reasoning as a part of the content, kept in each turn.
constexpr const char* kBlocks =
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ m['content'] }}"
    "[/INST]{% else %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for b in m['content'] %}{% if b['type'] == 'thinking' %}"
    "{{ '[THINK]' + b['thinking'] + '[/THINK]' }}{% else %}{{ b['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{{ eos_token }}{% endif %}{% endfor %}";

// The same from a field of the message.
constexpr const char* kField =
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ m['content'] }}"
    "[/INST]{% else %}{% if m.reasoning_content %}{{ '[THINK]' + m.reasoning_content + '[/THINK]' "
    "}}"
    "{% endif %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}";

// The same, but the prompt opens the reasoning.
constexpr const char* kOpened =
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ m['content'] }}"
    "[/INST][THINK]{% else %}{{ m.reasoning_content + '[/THINK]' + m['content'] + eos_token }}"
    "{% endif %}{% endfor %}";

// Reasoning in a channel, left out of earlier turns; a content that spells one is refused.
constexpr const char* kChannels =
    "{% for m in messages %}{% if m['role'] == 'user' %}"
    "{{ '<|start|>user<|message|>' + m['content'] + '<|end|>' }}{% else %}"
    "{% if '<|channel|>' in m['content'] %}{{ raise_exception('a channel in a content') }}"
    "{% endif %}{% if loop.last and not add_generation_prompt and m.thinking %}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m['content'] + '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}";

class SessionReasoningTest : public ::testing::Test {
 protected:
  static constexpr TokenId kOpen = 500, kClose = 501, kStart = 510, kChannel = 511, kMessage = 512,
                           kEnd = 513, kReturn = 514;

  void SetUp() override {
    const RenamedWren model({{kOpen, "[THINK]"},
                             {kClose, "[/THINK]"},
                             {kStart, "<|start|>"},
                             {kChannel, "<|channel|>"},
                             {kMessage, "<|message|>"},
                             {kEnd, "<|end|>"},
                             {kReturn, "<|return|>"}});
    auto tokenizer = Tokenizer::Load(model.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    text_.tokenizer = std::move(tokenizer).value();
    ASSERT_TRUE(text_.tokenizer->IsSpecial(kClose));
    ASSERT_EQ(text_.tokenizer->PieceText(kClose), "[/THINK]");
  }
  Session MakeSession(const char* source) {
    auto chat = ChatTemplate::Parse(source, "template");
    EXPECT_TRUE(chat.ok()) << chat.status().message();
    text_.chat_template = std::move(chat).value();
    Session session(text_.tokenizer.get(), text_.chat_template.get());
    session.messages() = {{"user", "Why?", {}}};
    return session;
  }

  RenderedPrompt Rendered(const Session& session) const {
    auto rendered = RenderPrompt(text_, session.ToConversation());
    EXPECT_TRUE(rendered.ok()) << rendered.status().message();
    return rendered.ok() ? std::move(rendered).value() : RenderedPrompt();
  }
  std::vector<TokenId> Ids(const Session& session) const {
    auto encoded = EncodePrompt(text_, Rendered(session));
    EXPECT_TRUE(encoded.ok()) << encoded.status().message();
    return encoded.ok() ? std::move(encoded->ids) : std::vector<TokenId>();
  }
  std::string Text(const std::vector<TokenId>& ids) const {
    return text_.tokenizer->Decode(ids, true);
  }
  // One character per token, unlike the tokenizer's own cuts; then `control`.
  std::vector<TokenId> Letters(const std::string& text, std::vector<TokenId> control = {}) const {
    std::vector<TokenId> ids;
    for (const char c : text) {
      auto id = text_.tokenizer->IdOf(c == ' ' ? "\xE2\x96\x81" : std::string(1, c));
      if (!id) id = text_.tokenizer->IdOf(fmt::format("<0x{:02X}>", c));
      EXPECT_TRUE(id.has_value()) << c;
      ids.push_back(id.value_or(0));
    }
    return Joined(ids, control);
  }
  static std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  // Returns the answer of `ids` with the text that the runtime reports.
  SessionMessage Answer(const Session& session, const std::vector<TokenId>& ids) const {
    Prompt prompt;
    prompt.reasoning = Rendered(session).reasoning;
    prompt.kept_special_ids = session.kept_special_ids();
    TextParts parts;
    const std::string text = AnswerText(prompt, ids, *text_.tokenizer, &parts);
    return session.AnswerMessage(text, parts, ids);
  }
  // Checks the prompt after an answer of `ids` and one more message: it is the first prompt, then
  // `text`, with the answer's own ids as `kept`.
  void ExpectGoesOn(Session* session, const std::vector<TokenId>& ids,
                    const std::vector<TokenId>& kept, const std::string& text) const {
    const std::vector<TokenId> prompt = Ids(*session);
    session->messages().push_back(Answer(*session, ids));
    session->messages().push_back({"user", "So?", {}});
    const std::vector<TokenId> longer = Ids(*session);
    EXPECT_EQ(Text(longer), Text(prompt) + text);
    const std::vector<TokenId> expected = Joined(prompt, kept);
    ASSERT_GE(longer.size(), expected.size());
    EXPECT_EQ(std::vector<TokenId>(longer.begin(),
                                   longer.begin() + static_cast<int64_t>(expected.size())),
              expected);
  }
  TokenId Eos() const { return *text_.tokenizer->eos_id(); }

  TextModel text_;  // with the template of the session made last
};

TEST_F(SessionReasoningTest, AnAnswerIsGivenBackWhole) {
  for (const char* source : {kBlocks, kField}) {
    Session session = MakeSession(source);
    const auto answer = Joined({kOpen}, Letters("as it is", {kClose}));
    const auto ids = Joined(answer, Letters("so be it", {Eos()}));
    ExpectGoesOn(&session, ids, ids, "[THINK]as it is[/THINK]so be it</s>[INST]So?[/INST]");
    EXPECT_EQ(session.messages()[1].content, "so be it");
    EXPECT_EQ(session.messages()[1].reasoning, "as it is");
  }
}

TEST_F(SessionReasoningTest, WhiteSpaceBesideTheTagsStays) {
  for (const char* source : {kBlocks, kField}) {
    Session session = MakeSession(source);
    const auto answer = Joined({kOpen}, Letters(" a ", {kClose}));
    const auto ids = Joined(answer, Letters("  b ", {Eos()}));
    ExpectGoesOn(&session, ids, ids, "[THINK] a [/THINK]  b </s>[INST]So?[/INST]");
  }
}

TEST_F(SessionReasoningTest, APromptMayOpenTheReasoning) {
  Session session = MakeSession(kOpened);
  const auto ids = Joined(Letters("as it is", {kClose}), Letters("so", {Eos()}));
  ExpectGoesOn(&session, ids, ids, "as it is[/THINK]so</s>[INST]So?[/INST][THINK]");
  EXPECT_EQ(session.messages()[1].reasoning, "as it is");
}

TEST_F(SessionReasoningTest, AnAnswerCutInItsReasoningIsClosedByTheTemplate) {
  Session session = MakeSession(kBlocks);
  const auto ids = Joined({kOpen}, Letters("as it"));
  ExpectGoesOn(&session, ids, Joined(ids, {kClose, Eos()}),
               "[THINK]as it[/THINK]</s>[INST]So?[/INST]");
  EXPECT_EQ(session.messages()[1].content, "");
}

TEST_F(SessionReasoningTest, AnAnswerWithoutReasoningIsPlain) {
  Session session = MakeSession(kBlocks);
  const auto ids = Letters("so", {Eos()});
  ExpectGoesOn(&session, ids, ids, "so</s>[INST]So?[/INST]");
  EXPECT_EQ(session.messages()[1].reasoning, "");
}

// The answer after its reasoning keeps its ids, so the text before it is cut as before.
TEST_F(SessionReasoningTest, ReasoningThatATemplateLeavesOutIsNotInThePrompt) {
  Session session = MakeSession(kChannels);
  auto ids = Joined({kChannel}, Letters("analysis", {kMessage}));
  ids = Joined(ids, Letters("as it is", {kEnd, kStart}));
  ids = Joined(ids, Letters("assistant"));
  const auto final = Joined(Joined({kChannel}, Letters("final", {kMessage})), Letters("so be it"));
  ids = Joined(Joined(ids, final), {kReturn});
  ExpectGoesOn(&session, ids, Joined(final, {kEnd}),
               "<|channel|>final<|message|>so be it<|end|><|start|>user<|message|>So?<|end|>"
               "<|start|>assistant");
  EXPECT_EQ(session.messages()[1].content, "so be it");
  EXPECT_EQ(session.messages()[1].reasoning, "as it is");
}

TEST_F(SessionReasoningTest, AnAnswerInItsOwnChannelIsNoReasoning) {
  Session session = MakeSession(kChannels);
  auto ids = Joined(Joined({kChannel}, Letters("final", {kMessage})), Letters("so be it"));
  ExpectGoesOn(&session, Joined(ids, {kReturn}), Joined(ids, {kEnd}),
               "<|channel|>final<|message|>so be it<|end|><|start|>user<|message|>So?<|end|>"
               "<|start|>assistant");
  EXPECT_EQ(session.messages()[1].content, "so be it");
}

TEST_F(SessionReasoningTest, WhatWasLoadedIsWrittenWithControlTokens) {
  Session session = MakeSession(kBlocks);
  session.messages().push_back({"assistant", "b", {}, "a"});
  session.messages().push_back({"user", "So?", {}});
  const std::vector<TokenId> ids = Ids(session);
  EXPECT_EQ(Text(ids), "<s>[INST]Why?[/INST][THINK]a[/THINK]b</s>[INST]So?[/INST]");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kOpen), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kClose), 1);
}

TEST_F(SessionReasoningTest, WhatAnAnswerSpellsInLettersIsNoControlToken) {
  Session session = MakeSession(kBlocks);
  const auto answer = Joined({kOpen}, Letters("[THINK]", {kClose}));
  const auto ids = Joined(answer, Letters("[/THINK]", {Eos()}));
  ExpectGoesOn(&session, ids, ids, "[THINK][THINK][/THINK][/THINK]</s>[INST]So?[/INST]");
  for (SessionMessage& message : session.messages()) message.answer_ids.clear();
  const std::vector<TokenId> plain = Ids(session);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), kClose), 1);
}

// If a model's tags are words, they stay in the content, where its template looks for them.
TEST_F(SessionReasoningTest, TagsThatAreTextStayInTheContent) {
  Session session = MakeSession(
      "{% for m in messages %}{{ m['content'].split('</think>')[-1] + eos_token }}{% endfor %}");
  EXPECT_TRUE(session.kept_special_ids().empty());
  EXPECT_EQ(session.reasoning_tags().close, "</think>");
  const std::string text = "<think>a</think>b";
  const SessionMessage message =
      session.AnswerMessage(text, PartsOfText(session.reasoning_tags(), text), {});
  EXPECT_EQ(message.content, "<think>a</think>b");
  EXPECT_EQ(message.reasoning, "");
}

}  // namespace
}  // namespace minisgl::runtime
