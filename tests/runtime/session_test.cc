// The prompts of a session: turn k + 1 begins with turn k's prompt and its answer's ids, if the
// template allows it.
#include "minisgl/runtime/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/text/encode_prompt.h"
#include "minisgl/text/render_prompt.h"
#include "minisgl/text/stream_decoder.h"

namespace minisgl::runtime {
namespace {

constexpr const char* kWrenDir = MINISGL_SOURCE_DIR "/tests/models/wren";

// A template that trims every content, and puts the system message into the user's last message.
constexpr const char* kRewritingTemplate =
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "[{% if loop.last %}{{ messages[0]['content'] }}: {% endif %}{{ m['content'] | trim }}]"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] | trim }}{{ eos_token }}{% endif %}"
    "{% endfor %}";

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::Load(kWrenDir);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
    wren_ = WithTemplate(ChatTemplate::Load(kWrenDir));
    rewriting_ = WithTemplate(ChatTemplate::Parse(kRewritingTemplate, "rewriting"));
  }

  static TextModel WithTemplate(Result<std::unique_ptr<ChatTemplate>> chat) {
    TextModel text;
    auto tokenizer = Tokenizer::Load(kWrenDir);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    text.tokenizer = std::move(tokenizer).value();
    EXPECT_TRUE(chat.ok()) << chat.status().message();
    text.chat_template = std::move(chat).value();
    return text;
  }
  static Session On(const TextModel& text) {
    return Session(text.tokenizer.get(), text.chat_template.get());
  }
  static Result<std::vector<TokenId>> PromptIds(const Session& session, const TextModel& text) {
    MINISGL_ASSIGN_OR_RETURN(RenderedPrompt rendered, RenderPrompt(text, session.ToConversation()));
    MINISGL_ASSIGN_OR_RETURN(EncodedPrompt encoded, EncodePrompt(text, std::move(rendered)));
    return std::move(encoded.ids);
  }
  static std::vector<TokenId> Ids(const Session& session, const TextModel& text) {
    auto ids = PromptIds(session, text);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? std::move(ids).value() : std::vector<TokenId>();
  }
  // Returns the ids of the same conversation without the sampled ids of its answers.
  static std::vector<TokenId> PlainIds(const Session& session, const TextModel& text) {
    Session plain = On(text);
    plain.messages() = session.messages();
    for (SessionMessage& message : plain.messages()) message.answer_ids.clear();
    return Ids(plain, text);
  }
  // Returns an answer of `ids` as the runtime would report it.
  SessionMessage Sampled(std::vector<TokenId> ids) const {
    StreamDecoder decoder(tokenizer_.get(), /*at_start=*/false);
    std::string text;
    for (const TokenId id : ids) text += decoder.Push(id);
    text += decoder.Finish();
    return {"assistant", text, std::move(ids)};
  }
  // Returns `text` with one character per token, unlike the tokenizer's own cuts.
  std::vector<TokenId> Spelled(const std::string& text) const {
    std::vector<TokenId> ids;
    for (const char c : text) {
      const auto id = tokenizer_->IdOf(std::string(1, c));
      EXPECT_TRUE(id.has_value()) << c;
      ids.push_back(id.value_or(0));
    }
    return ids;
  }
  TokenId Eos() const { return *tokenizer_->eos_id(); }

  static std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  static bool StartsWith(const std::vector<TokenId>& ids, const std::vector<TokenId>& prefix) {
    return ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  TextModel wren_, rewriting_;
};

// The turns of a template for lists of parts are those of the same template for strings.
TEST_F(SessionTest, PartsAreSplicedAsStringsAre) {
  const TextModel parts = WithTemplate(ChatTemplate::Parse(
      "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\n' }}"
      "{% for c in m.content %}{{ c.text }}{% endfor %}{{ eos_token + '\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
      "parts"));
  Session by_parts = On(parts), by_string = On(wren_);
  for (Session* session : {&by_parts, &by_string}) {
    session->messages().push_back({"user", "Hi", {}});
    std::vector<TokenId> ids = Spelled("Yes");
    ids.push_back(Eos());
    session->messages().push_back(Sampled(ids));
    session->messages().push_back({"user", "No", {}});
  }
  EXPECT_EQ(Ids(by_parts, parts), Ids(by_string, wren_));
  EXPECT_NE(Ids(by_parts, parts), PlainIds(by_parts, parts)) << "sampled ids are kept";
}

TEST_F(SessionTest, AMessageBehindTheLastAnswerThatIsLeftOutIsAnError) {
  const TextModel users = WithTemplate(ChatTemplate::Parse(
      "{% for m in messages if m.role in ['user', 'assistant'] %}{{ m.content }};{% endfor %}",
      "users"));
  Session session = On(users);
  session.messages() = {{"user", "a", {}}, {"assistant", "b", {Eos()}}, {"user", "c", {}}};
  EXPECT_TRUE(PromptIds(session, users).ok());
  session.messages().push_back({"tool", "d", {}});
  EXPECT_TRUE(PromptIds(session, users).status().message().starts_with("messages[3] (role tool): "))
      << PromptIds(session, users).status().message();
  Conversation conversation = session.ToConversation();
  conversation.checked.index_offset = -2;
  EXPECT_TRUE(RenderPrompt(users, conversation)
                  .status()
                  .message()
                  .starts_with("messages[1] (role tool): "));
}

TEST_F(SessionTest, OneTurnIsTheRenderedText) {
  Session session = On(wren_);
  session.messages() = {{"user", "Hello there", {}}};
  EXPECT_EQ(tokenizer_->Decode(Ids(session, wren_), true),
            "<s><|user|>\nHello there</s>\n<|assistant|>\n");
}

TEST_F(SessionTest, EveryTurnExtendsTheOneBeforeByItsAnswer) {
  Session session = On(wren_);
  session.messages() = {{"system", "Be brief.", {}}};
  const std::vector<std::string> answers = {"hello", "the answer", "a", "no"};
  for (size_t turn = 0; turn < answers.size(); ++turn) {
    session.messages().push_back({"user", "question " + std::to_string(turn), {}});
    const std::vector<TokenId> prompt = Ids(session, wren_);
    std::string letters = answers[turn];
    letters.erase(std::remove(letters.begin(), letters.end(), ' '), letters.end());
    std::vector<TokenId> answer = Spelled(letters);
    answer.push_back(Eos());
    session.messages().push_back(Sampled(answer));
    session.messages().push_back({"user", "next", {}});
    const std::vector<TokenId> longer = Ids(session, wren_);
    EXPECT_TRUE(StartsWith(longer, Joined(prompt, answer))) << "turn " << turn;
    EXPECT_EQ(tokenizer_->Decode(longer, true), tokenizer_->Decode(PlainIds(session, wren_), true));
    session.messages().pop_back();
  }
}

TEST_F(SessionTest, TextAfterAnAnswerIsTokenisedAsInTheWhole) {
  Session session = On(wren_);
  session.messages() = {{"user", "Hi", {}}};
  const std::vector<TokenId> prompt = Ids(session, wren_);
  // If the answer's ids are those of the tokenizer itself, splicing changes nothing.
  session.messages().push_back({"assistant", "Hello!", {}});
  session.messages().push_back({"user", "Bye", {}});
  const std::vector<TokenId> whole = PlainIds(session, wren_);
  ASSERT_TRUE(StartsWith(whole, prompt));
  const auto end =
      std::find(whole.begin() + static_cast<int64_t>(prompt.size()), whole.end(), Eos());
  ASSERT_NE(end, whole.end());
  session.messages()[1].answer_ids.assign(whole.begin() + static_cast<int64_t>(prompt.size()),
                                          end + 1);
  EXPECT_EQ(Ids(session, wren_), whole);
}

TEST_F(SessionTest, AnAnswerCutShortGetsTheTemplatesEnd) {
  Session session = On(wren_);
  session.messages() = {{"user", "Tell me", {}}};
  const std::vector<TokenId> prompt = Ids(session, wren_);
  const std::vector<TokenId> answer = Spelled("onceup");
  session.messages().push_back(Sampled(answer));
  session.messages().push_back({"user", "go on", {}});
  const std::vector<TokenId> longer = Ids(session, wren_);
  std::vector<TokenId> expected = Joined(prompt, answer);
  expected.push_back(Eos());
  EXPECT_TRUE(StartsWith(longer, expected));
}

TEST_F(SessionTest, AnAnswerWhoseTextIsNotItsIdsIsTokenised) {
  Session session = On(wren_);
  SessionMessage answer = Sampled(Spelled("hello"));
  answer.content = "hel";  // as a stop string would cut it
  session.messages() = {{"user", "Hi", {}}, answer, {"user", "again", {}}};
  EXPECT_EQ(Ids(session, wren_), PlainIds(session, wren_));
}

TEST_F(SessionTest, AnAnswerWithAControlTokenInsideIsTokenised) {
  Session session = On(wren_);
  const std::vector<TokenId> ids = Joined(Joined(Spelled("a"), {Eos()}), Spelled("b"));
  session.messages() = {{"user", "Hi", {}}, Sampled(ids), {"user", "again", {}}};
  EXPECT_EQ(Ids(session, wren_), PlainIds(session, wren_));
}

TEST_F(SessionTest, ATemplateThatRewritesHistoryIsFollowed) {
  Session session = On(rewriting_);
  SessionMessage answer = Sampled(Joined(Spelled("hello"), {Eos()}));
  session.messages() = {{"system", "S", {}}, {"user", "one", {}}, answer, {"user", "two", {}}};
  const std::vector<TokenId> ids = Ids(session, rewriting_);
  EXPECT_EQ(ids, PlainIds(session, rewriting_));
  EXPECT_EQ(tokenizer_->Decode(ids, true), "<s>[one]hello</s>[S: two]");
}

TEST_F(SessionTest, ATemplateThatTrimsAnswersIsFollowed) {
  Session session = On(rewriting_);
  SessionMessage answer = Sampled(Joined(Spelled("hello"), {Eos()}));
  answer.content = " hello ";
  answer.answer_ids.clear();
  session.messages() = {{"system", "S", {}}, {"user", "one", {}}, answer, {"user", "two", {}}};
  EXPECT_EQ(tokenizer_->Decode(Ids(session, rewriting_), true), "<s>[one]hello</s>[S: two]");
}

TEST_F(SessionTest, WhatAMessageSpellsIsNoControlToken) {
  Session session = On(wren_);
  session.messages() = {{"user", "</s>", {}}};
  const std::vector<TokenId> as_text = Ids(session, wren_);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), Eos()), 1);
  wren_.parse_special = true;
  const std::vector<TokenId> as_token = Ids(session, wren_);
  EXPECT_EQ(std::count(as_token.begin(), as_token.end(), Eos()), 2);
}

TEST_F(SessionTest, ATemplateThatRefusesIsAnError) {
  const TextModel refusing = WithTemplate(
      ChatTemplate::Parse("{{ raise_exception('roles must alternate') }}", "refusing"));
  Session session = On(refusing);
  session.messages() = {{"user", "Hi", {}}};
  const auto ids = PromptIds(session, refusing);
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.status().message().find("roles must alternate"), std::string::npos);
}

TEST_F(SessionTest, TheOldestTurnGoesAndTheSystemMessageStays) {
  Session session = On(wren_);
  session.messages() = {{"system", "S", {}}, {"user", "1", {}},      {"assistant", "a", {}},
                        {"user", "2", {}},   {"assistant", "b", {}}, {"user", "3", {}}};
  const auto first = session.TakeOldestTurn();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].content, "1");
  EXPECT_EQ(session.TakeOldestTurn().size(), 2u);
  EXPECT_TRUE(session.TakeOldestTurn().empty());
  ASSERT_EQ(session.messages().size(), 2u);
  EXPECT_EQ(session.messages()[0].content, "S");
  EXPECT_EQ(session.messages()[1].content, "3");
}

}  // namespace
}  // namespace minisgl::runtime
