// Session::PromptIds: turn k + 1 begins with turn k's prompt and its answer's ids, if the template
// allows it.
#include "minisgl/runtime/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

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
    auto wren = ChatTemplate::Load(kWrenDir);
    ASSERT_TRUE(wren.ok()) << wren.status().message();
    wren_ = std::move(wren).value();
    auto rewriting = ChatTemplate::Parse(kRewritingTemplate, "rewriting");
    ASSERT_TRUE(rewriting.ok()) << rewriting.status().message();
    rewriting_ = std::move(rewriting).value();
  }

  std::vector<TokenId> Ids(const Session& session) const {
    auto ids = session.PromptIds();
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? std::move(ids).value() : std::vector<TokenId>();
  }
  // Returns the ids of the same conversation without the sampled ids of its answers.
  std::vector<TokenId> PlainIds(const Session& session, const ChatTemplate* chat_template) const {
    Session plain(tokenizer_.get(), chat_template);
    plain.messages() = session.messages();
    for (SessionMessage& message : plain.messages()) message.answer_ids.clear();
    return Ids(plain);
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
  std::unique_ptr<ChatTemplate> wren_, rewriting_;
};

// The turns of a template for lists of parts are those of the same template for strings.
TEST_F(SessionTest, PartsAreSplicedAsStringsAre) {
  const auto parts = ChatTemplate::Parse(
      "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\n' }}"
      "{% for c in m.content %}{{ c.text }}{% endfor %}{{ eos_token + '\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
      "parts");
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  Session by_parts(tokenizer_.get(), parts->get()), by_string(tokenizer_.get(), wren_.get());
  for (Session* session : {&by_parts, &by_string}) {
    session->messages().push_back({"user", "Hi", {}});
    std::vector<TokenId> ids = Spelled("Yes");
    ids.push_back(Eos());
    session->messages().push_back(Sampled(ids));
    session->messages().push_back({"user", "No", {}});
  }
  EXPECT_EQ(Ids(by_parts), Ids(by_string));
  EXPECT_NE(Ids(by_parts), PlainIds(by_parts, parts->get())) << "sampled ids are kept";
}

TEST_F(SessionTest, AMessageBehindTheLastAnswerThatIsLeftOutIsAnError) {
  const auto users = ChatTemplate::Parse(
      "{% for m in messages if m.role in ['user', 'assistant'] %}{{ m.content }};{% endfor %}",
      "users");
  ASSERT_TRUE(users.ok()) << users.status().message();
  Session session(tokenizer_.get(), users->get());
  session.messages() = {{"user", "a", {}}, {"assistant", "b", {Eos()}}, {"user", "c", {}}};
  EXPECT_TRUE(session.PromptIds().ok());
  session.messages().push_back({"tool", "d", {}});
  EXPECT_TRUE(session.PromptIds().status().message().starts_with("messages[3] (role tool): "))
      << session.PromptIds().status().message();
  session.set_inputs({Json(), Json(), nullptr, /*index_offset=*/-2});
  EXPECT_TRUE(session.PromptPieces().status().message().starts_with("messages[1] (role tool): "));
}

TEST_F(SessionTest, OneTurnIsTheRenderedText) {
  Session session(tokenizer_.get(), wren_.get());
  session.messages() = {{"user", "Hello there", {}}};
  EXPECT_EQ(tokenizer_->Decode(Ids(session), true),
            "<s><|user|>\nHello there</s>\n<|assistant|>\n");
}

TEST_F(SessionTest, EveryTurnExtendsTheOneBeforeByItsAnswer) {
  Session session(tokenizer_.get(), wren_.get());
  session.messages() = {{"system", "Be brief.", {}}};
  const std::vector<std::string> answers = {"hello", "the answer", "a", "no"};
  for (size_t turn = 0; turn < answers.size(); ++turn) {
    session.messages().push_back({"user", "question " + std::to_string(turn), {}});
    const std::vector<TokenId> prompt = Ids(session);
    std::string letters = answers[turn];
    letters.erase(std::remove(letters.begin(), letters.end(), ' '), letters.end());
    std::vector<TokenId> answer = Spelled(letters);
    answer.push_back(Eos());
    session.messages().push_back(Sampled(answer));
    session.messages().push_back({"user", "next", {}});
    const std::vector<TokenId> longer = Ids(session);
    EXPECT_TRUE(StartsWith(longer, Joined(prompt, answer))) << "turn " << turn;
    EXPECT_EQ(tokenizer_->Decode(longer, true),
              tokenizer_->Decode(PlainIds(session, wren_.get()), true));
    session.messages().pop_back();
  }
}

TEST_F(SessionTest, TextAfterAnAnswerIsTokenisedAsInTheWhole) {
  Session session(tokenizer_.get(), wren_.get());
  session.messages() = {{"user", "Hi", {}}};
  const std::vector<TokenId> prompt = Ids(session);
  // If the answer's ids are those of the tokenizer itself, splicing changes nothing.
  session.messages().push_back({"assistant", "Hello!", {}});
  session.messages().push_back({"user", "Bye", {}});
  const std::vector<TokenId> whole = PlainIds(session, wren_.get());
  ASSERT_TRUE(StartsWith(whole, prompt));
  const auto end =
      std::find(whole.begin() + static_cast<int64_t>(prompt.size()), whole.end(), Eos());
  ASSERT_NE(end, whole.end());
  session.messages()[1].answer_ids.assign(whole.begin() + static_cast<int64_t>(prompt.size()),
                                          end + 1);
  EXPECT_EQ(Ids(session), whole);
}

TEST_F(SessionTest, AnAnswerCutShortGetsTheTemplatesEnd) {
  Session session(tokenizer_.get(), wren_.get());
  session.messages() = {{"user", "Tell me", {}}};
  const std::vector<TokenId> prompt = Ids(session);
  const std::vector<TokenId> answer = Spelled("onceup");
  session.messages().push_back(Sampled(answer));
  session.messages().push_back({"user", "go on", {}});
  const std::vector<TokenId> longer = Ids(session);
  std::vector<TokenId> expected = Joined(prompt, answer);
  expected.push_back(Eos());
  EXPECT_TRUE(StartsWith(longer, expected));
}

TEST_F(SessionTest, AnAnswerWhoseTextIsNotItsIdsIsTokenised) {
  Session session(tokenizer_.get(), wren_.get());
  SessionMessage answer = Sampled(Spelled("hello"));
  answer.content = "hel";  // as a stop string would cut it
  session.messages() = {{"user", "Hi", {}}, answer, {"user", "again", {}}};
  EXPECT_EQ(Ids(session), PlainIds(session, wren_.get()));
}

TEST_F(SessionTest, AnAnswerWithAControlTokenInsideIsTokenised) {
  Session session(tokenizer_.get(), wren_.get());
  const std::vector<TokenId> ids = Joined(Joined(Spelled("a"), {Eos()}), Spelled("b"));
  session.messages() = {{"user", "Hi", {}}, Sampled(ids), {"user", "again", {}}};
  EXPECT_EQ(Ids(session), PlainIds(session, wren_.get()));
}

TEST_F(SessionTest, ATemplateThatRewritesHistoryIsFollowed) {
  Session session(tokenizer_.get(), rewriting_.get());
  SessionMessage answer = Sampled(Joined(Spelled("hello"), {Eos()}));
  session.messages() = {{"system", "S", {}}, {"user", "one", {}}, answer, {"user", "two", {}}};
  const std::vector<TokenId> ids = Ids(session);
  EXPECT_EQ(ids, PlainIds(session, rewriting_.get()));
  EXPECT_EQ(tokenizer_->Decode(ids, true), "<s>[one]hello</s>[S: two]");
}

TEST_F(SessionTest, ATemplateThatTrimsAnswersIsFollowed) {
  Session session(tokenizer_.get(), rewriting_.get());
  SessionMessage answer = Sampled(Joined(Spelled("hello"), {Eos()}));
  answer.content = " hello ";
  answer.answer_ids.clear();
  session.messages() = {{"system", "S", {}}, {"user", "one", {}}, answer, {"user", "two", {}}};
  EXPECT_EQ(tokenizer_->Decode(Ids(session), true), "<s>[one]hello</s>[S: two]");
}

TEST_F(SessionTest, WhatAMessageSpellsIsNoControlToken) {
  Session session(tokenizer_.get(), wren_.get());
  session.messages() = {{"user", "</s>", {}}};
  const std::vector<TokenId> as_text = Ids(session);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), Eos()), 1);
  session.set_parse_special(true);
  const std::vector<TokenId> as_token = Ids(session);
  EXPECT_EQ(std::count(as_token.begin(), as_token.end(), Eos()), 2);
}

TEST_F(SessionTest, ATemplateThatRefusesIsAnError) {
  auto refusing = ChatTemplate::Parse("{{ raise_exception('roles must alternate') }}", "refusing");
  ASSERT_TRUE(refusing.ok());
  Session session(tokenizer_.get(), refusing.value().get());
  session.messages() = {{"user", "Hi", {}}};
  const auto ids = session.PromptIds();
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.status().message().find("roles must alternate"), std::string::npos);
}

TEST_F(SessionTest, TheOldestTurnGoesAndTheSystemMessageStays) {
  Session session(tokenizer_.get(), wren_.get());
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
