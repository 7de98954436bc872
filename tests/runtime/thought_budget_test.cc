// Thoughts with a bound: where a thought begins and ends in tokens, what the bound forces, and
// answers with it through the runtime.
#include "runtime/thought_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"
#include "renamed_wren.h"
#include "runtime/grammar_compiler.h"
#include "runtime/runtime_fixture.h"
#include "runtime/token_limits.h"

namespace minisgl::runtime {
namespace {

constexpr TokenId kOpen = 500, kClose = 501, kStart = 510, kChannel = 511, kMessage = 512,
                  kEnd = 513;
constexpr ReasoningTags kControl = {"[THINK]", "[/THINK]"};
constexpr ReasoningTags kControlOpened = {"[THINK]", "[/THINK]", true};
constexpr ReasoningTags kText = {"<think>", "</think>"};
constexpr ReasoningTags kTextOpened = {"<think>", "</think>", true};
constexpr ReasoningTags kHarmony = {"<|channel|>analysis<|message|>",
                                    "<|start|>assistant<|channel|>final<|message|>", false,
                                    "<|channel|>final<|message|>", "<|end|>"};

class ThoughtTest : public ::testing::Test {
 protected:
  ThoughtTest()
      : model_({{kOpen, "[THINK]"},
                {kClose, "[/THINK]"},
                {kStart, "<|start|>"},
                {kChannel, "<|channel|>"},
                {kMessage, "<|message|>"},
                {kEnd, "<|end|>"}}) {}

  void SetUp() override {
    auto tokenizer = Tokenizer::Load(model_.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
    vocab_ = tokenizer_->vocab_size() + 30;  // padded, as models are
  }

  std::shared_ptr<const ThoughtMarks> MarksOf(const ReasoningTags& tags) const {
    return std::make_shared<const ThoughtMarks>(tokenizer_.get(), tags);
  }
  std::unique_ptr<ThoughtBudget> MakeBudget(const ReasoningTags& tags, int64_t budget,
                                            const std::string& message = "") const {
    return std::make_unique<ThoughtBudget>(MarksOf(tags), tags.starts_inside, budget, message,
                                           vocab_);
  }
  // The tokens of a text with control tokens, without a space before it.
  std::vector<TokenId> Ids(const std::string& text) const {
    return MarksOf(kControl)->TokensOf(text);
  }
  TokenId Byte(unsigned char value) const {
    return tokenizer_->IdOf(fmt::format("<0x{:02X}>", value)).value();
  }
  std::string Text(const std::vector<TokenId>& ids) const {
    return tokenizer_->Decode(ids, /*keep_special=*/true);
  }
  // The tokens that may follow.
  std::vector<TokenId> Allowed(TokenConstraint* constraint) const {
    std::vector<uint32_t> mask(static_cast<size_t>((vocab_ + 31) / 32));
    int64_t work_left = 0;
    EXPECT_EQ(constraint->FillMask(mask, &work_left), MaskOutcome::kMade);
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < static_cast<TokenId>(mask.size() * 32); ++id) {
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
    }
    return allowed;
  }
  // What a model writes that wants to write `wanted`: where it is forced, it goes on with what it
  // wanted after that.
  std::vector<TokenId> Write(ThoughtBudget* budget, const std::vector<TokenId>& wanted) const {
    std::vector<TokenId> written;
    for (size_t at = 0; at < wanted.size() && written.size() < 1000;) {
      const std::vector<TokenId> allowed = Allowed(budget);
      const bool is_free = std::ssize(allowed) == vocab_;
      EXPECT_TRUE(is_free || allowed.size() == 1) << allowed.size();
      EXPECT_EQ(budget->NeedsMask(0), !is_free);
      const TokenId token = is_free ? wanted[at++] : allowed.front();
      EXPECT_TRUE(budget->Accept(token));
      written.push_back(token);
    }
    return written;
  }
  // The same within any constraint: where it does not allow what the model wants, the first token
  // that it allows follows.
  std::string WrittenWithin(TokenConstraint* constraint, const std::vector<TokenId>& wanted) const {
    std::vector<TokenId> written;
    for (size_t at = 0; at < wanted.size() && written.size() < 100;) {
      const std::vector<TokenId> allowed = Allowed(constraint);
      const bool is_free = std::find(allowed.begin(), allowed.end(), wanted[at]) != allowed.end();
      if (allowed.empty()) return "nothing may follow " + Text(written);
      written.push_back(is_free ? wanted[at++] : allowed.front());
      EXPECT_TRUE(constraint->Accept(written.back()));
    }
    return Text(written);
  }
  std::string Written(const ReasoningTags& tags, int64_t budget, const std::vector<TokenId>& wanted,
                      const std::string& message = "") const {
    return Text(Write(MakeBudget(tags, budget, message).get(), wanted));
  }

  const RenamedWren model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  int64_t vocab_ = 0;
};

std::vector<TokenId> Joined(std::vector<std::vector<TokenId>> parts) {
  std::vector<TokenId> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Tags, their parts, spaces and letters, in any order.
TEST_F(ThoughtTest, TheTrackerEndsThoughtsWhereTheReaderDoes) {
  const std::vector<TokenId> parts = Joined({Ids("<think></think>"),
                                             {kOpen, kClose, kStart, kChannel, kMessage, kEnd},
                                             Ids("assistant"),
                                             Ids("final"),
                                             Ids("analysis"),
                                             Ids("a b"),
                                             Ids("\n"),
                                             Ids("<"),
                                             Ids("</")});
  std::mt19937 dice(7);
  for (const ReasoningTags& tags : {kControl, kControlOpened, kText, kTextOpened, kHarmony}) {
    const std::vector<std::vector<TokenId>> wholes = {Ids(std::string(tags.open)),
                                                      Ids(std::string(tags.close))};
    Prompt prompt;
    prompt.kept_special_ids = {kOpen, kClose, kStart, kChannel, kMessage, kEnd};
    prompt.reasoning = tags;
    const auto marks = MarksOf(tags);
    int num_closed = 0, num_open = 0;
    for (int round = 0; round < 2000; ++round) {
      std::vector<TokenId> ids;
      while (ids.size() < 12) {
        if (dice() % 4 == 0) {
          const auto& whole = wholes[dice() % 2];
          ids.insert(ids.end(), whole.begin(), whole.end());
        } else {
          ids.push_back(parts[dice() % parts.size()]);
        }
      }
      // Up to the end of the first thought: what comes later is text for most readers.
      ThoughtTracker tracker(marks, tags.starts_inside);
      std::vector<TokenId> pushed;
      for (const TokenId id : ids) {
        tracker.Push(id);
        pushed.push_back(id);
        if (tracker.state().phase == ThoughtState::Phase::kText) break;
      }
      if (tracker.in_header()) continue;  // what follows would be neither
      TextParts read;
      const std::string text = AnswerText(prompt, Joined({pushed, Ids("z")}), *tokenizer_, &read);
      EXPECT_EQ(SplitParts(text, read).reasoning.ends_with("z"), tracker.inside()) << Text(ids);
      EXPECT_LE(tracker.num_tokens(), std::ssize(pushed));
      (tracker.inside() ? num_open : num_closed) += 1;
    }
    EXPECT_GT(num_closed, 20);
    EXPECT_GT(num_open, 20);
  }
}

TEST_F(ThoughtTest, TokensOfThoughtAreCountedWithoutTheirTags) {
  const auto count = [&](const ReasoningTags& tags, const std::vector<TokenId>& ids) {
    ThoughtTracker tracker(MarksOf(tags), tags.starts_inside);
    for (const TokenId id : ids) tracker.Push(id);
    return tracker.num_tokens();
  };
  const std::vector<TokenId> thought = Ids("I think so"), text = Ids("Yes, it is");
  const auto size = std::ssize(thought);
  for (const auto& [tags, open, close] :
       {std::tuple(kControl, Ids("[THINK]"), Ids("[/THINK]")),
        std::tuple(kControlOpened, std::vector<TokenId>(), Ids("[/THINK]")),
        std::tuple(kText, Ids("<think>"), Ids("</think>")),
        std::tuple(kTextOpened, std::vector<TokenId>(), Ids("</think>")),
        std::tuple(kTextOpened, Ids("<think>"), Ids("</think>")),
        std::tuple(kHarmony, Ids("<|channel|>analysis<|message|>"),
                   Ids("<|end|><|start|>assistant<|channel|>final<|message|>"))}) {
    EXPECT_EQ(count(tags, Joined({open, thought, close, text})), size) << tags.open;
    EXPECT_EQ(count(tags, Joined({open, thought})), size) << tags.open;
    EXPECT_EQ(count(tags, Joined({open, close, text})), 0) << tags.open;
    if (!tags.starts_inside) EXPECT_EQ(count(tags, text), 0) << tags.open;
  }
  // A second thought counts if its tag has a control token; otherwise it is text.
  EXPECT_EQ(count(kControl, Joined({{kOpen}, thought, {kClose}, text, {kOpen}, thought, {kClose}})),
            2 * size);
  const std::vector<TokenId> once = Joined({Ids("<think>"), thought, Ids("</think>"), text});
  EXPECT_EQ(count(kText, Joined({once, once})), size);
}

TEST_F(ThoughtTest, ATagIsNeverItsSpelling) {
  std::vector<TokenId> spelled;
  for (const char letter : std::string("[/THINK]"))
    spelled.push_back(Ids(std::string(1, letter))[0]);
  ThoughtTracker tracker(MarksOf(kControlOpened), true);
  for (const TokenId id : spelled) tracker.Push(id);
  EXPECT_TRUE(tracker.inside());
  auto budget = MakeBudget(kControlOpened, 3);
  EXPECT_EQ(Write(budget.get(), spelled)[3], kClose);
}

TEST_F(ThoughtTest, AThoughtIsClosedAfterItsTokens) {
  const std::vector<TokenId> ids = Ids("a b c d e f g h");
  ASSERT_EQ(ids.size(), 8u);
  EXPECT_EQ(Written(kControlOpened, 3, ids), "a b c[/THINK] d e f g h");
  EXPECT_EQ(Written(kControlOpened, 0, ids), "[/THINK]a b c d e f g h");
  EXPECT_EQ(Written(kControlOpened, 8, ids), "a b c d e f g h");
  EXPECT_EQ(Written(kControl, 3, ids), "a b c d e f g h") << "there is no thought";
  EXPECT_EQ(Written(kControl, 0, ids), "a b c d e f g h");
  const std::vector<TokenId> opens = Joined({{kOpen}, ids});
  EXPECT_EQ(Written(kControl, 3, opens), "[THINK]a b c[/THINK] d e f g h");
  EXPECT_EQ(Written(kControl, 0, opens), "[THINK][/THINK]a b c d e f g h");
  EXPECT_EQ(Written(kControlOpened, 2, opens), "[THINK]a b[/THINK] c d e f g h");
  // A thought that the model ends in time is left alone.
  EXPECT_EQ(Written(kControlOpened, 3, Joined({{ids[0], ids[1], kClose}, ids})),
            "a b[/THINK]a b c d e f g h");
}

TEST_F(ThoughtTest, AMarkOfSeveralTokensIsForcedWhole) {
  const std::vector<TokenId> ids = Ids("a b c d");
  EXPECT_EQ(Written(kTextOpened, 2, ids), "a b</think> c d");
  const std::string open = "<|channel|>analysis<|message|>";
  const std::string close = "<|end|><|start|>assistant<|channel|>final<|message|>";
  EXPECT_EQ(Written(kHarmony, 2, Joined({Ids(open), ids})), open + "a b" + close + " c d");
  EXPECT_EQ(Written(kHarmony, 0, Joined({Ids(open), ids})), open + close + "a b c d");
  EXPECT_EQ(Written(kHarmony, 2, Joined({Ids("<|channel|>final<|message|>"), ids})),
            "<|channel|>final<|message|>a b c d");
}

// The model has begun to close the thought by itself when the bound is reached.
TEST_F(ThoughtTest, AMarkThatHasBegunIsCompleted) {
  const std::vector<TokenId> ids = Ids("a b c d"), text_close = Ids("</think>");
  ASSERT_GT(text_close.size(), 2u);
  for (size_t begun = 1; begun < text_close.size(); ++begun) {
    const std::vector<TokenId> part(text_close.begin(),
                                    text_close.begin() + static_cast<std::ptrdiff_t>(begun));
    const auto wanted = Joined({{ids[0], ids[1]}, part, {ids[2]}});
    const auto bound = static_cast<int64_t>(2 + begun);
    EXPECT_EQ(Written(kTextOpened, bound, wanted, "Stop."), "a b</think> c") << begun;
  }
  const std::vector<TokenId> open = Ids("<|channel|>analysis<|message|>");
  EXPECT_EQ(Text(Write(MakeBudget(kHarmony, 3, "Stop.").get(),
                       Joined({open, {ids[0], ids[1], kEnd, ids[2]}}))),
            Text(open) + "a b<|end|><|start|>assistant<|channel|>final<|message|> c");
  EXPECT_EQ(Text(Write(MakeBudget(kHarmony, 4, "Stop.").get(),
                       Joined({open, {ids[0], ids[1], kEnd, kStart, ids[2]}}))),
            Text(open) + "a b<|end|><|start|>assistant<|channel|>final<|message|> c");
}

TEST_F(ThoughtTest, AMessageIsPutBeforeTheEnd) {
  const std::vector<TokenId> ids = Ids("a b c d");
  for (const std::string message : {"\n\nI must answer now.\n", "[/THINK]", " é", "</think>"}) {
    EXPECT_EQ(Written(kControlOpened, 2, ids, message), "a b" + message + "[/THINK] c d");
    EXPECT_EQ(Written(kControlOpened, 0, ids, message), "[/THINK]a b c d");
  }
  EXPECT_EQ(Written(kTextOpened, 2, ids, "\nNow.\n"), "a b\nNow.\n</think> c d");
  // The spelling of a tag in a message is text.
  const auto written = Write(MakeBudget(kControlOpened, 2, "[/THINK]").get(), ids);
  EXPECT_EQ(std::count(written.begin(), written.end(), kClose), 1);
}

TEST_F(ThoughtTest, LimitsOfTokensDoNotHoldForWhatIsForced) {
  const std::vector<TokenId> ids = Ids("a b c d");
  for (const std::string message : {"", "\nNow.\n"}) {
    for (const bool has_list : {false, true}) {
      Prompt prompt;
      if (has_list) prompt.allowed_token_ids = ids;
      prompt.banned_sequences = {{kClose}, {Ids("\nNow.\n")[0]}, {ids[3]}};
      const std::shared_ptr<ThoughtBudget> budget = MakeBudget(kControlOpened, 2, message);
      const auto limits = TokenLimits::Of(prompt, vocab_);
      const auto limited = WithLimits(limits, budget, budget.get());
      EXPECT_EQ(WrittenWithin(limited.get(), {ids[0], ids[1], ids[2]}),
                "a b" + message + "[/THINK] c");
      EXPECT_FALSE(limited->Accept(ids[3])) << "it is banned";
      limited->RollBack(2);
      EXPECT_EQ(limited->ForcedTokens(1), std::vector<TokenId>{kClose});
    }
  }
}

TEST_F(ThoughtTest, AMessageThatTheAnswerForbidsIsGivenUp) {
  const std::vector<TokenId> ids = Ids("a b c d"), message = Ids("\nNow.\n");
  ASSERT_GT(message.size(), 2u);
  const auto written = [&](TokenId forbidden) {
    Prompt prompt;
    prompt.banned_sequences = {{forbidden}};
    ThoughtBudget budget(MarksOf(kControlOpened), true, 2, "\nNow.\n", vocab_,
                         WithLimits(TokenLimits::Of(prompt, vocab_), nullptr));
    return WrittenWithin(&budget, ids);
  };
  EXPECT_EQ(written(message[0]), "a b[/THINK] c d");
  const std::string begun = Text({ids[0], ids[1], message[0], ids[2], kClose, ids[3]});
  EXPECT_EQ(written(message[1]), begun);
}

TEST_F(ThoughtTest, AnotherThoughtHasWhatTheFirstLeft) {
  const std::vector<TokenId> ids = Ids("a b c d e f");
  const TokenId a = ids[0], b = ids[1], c = ids[2], d = ids[3];
  // After a forced end: closed at once, without the message.
  EXPECT_EQ(Written(kControlOpened, 2, {a, b, c, kOpen, d, kOpen, kOpen, a}, " Now."),
            "a b Now.[/THINK] c[THINK][/THINK] d[THINK][/THINK][THINK][/THINK]a");
  // After one that the model ended: the rest.
  EXPECT_EQ(Written(kControlOpened, 3, {a, kClose, b, kOpen, c, d, a, b}, " Now."),
            "a[/THINK] b[THINK] c d Now.[/THINK]a b");
  EXPECT_EQ(Written(kText, 2, Joined({Ids("<think>"), {a, b, c}, Ids("<think>"), {d, a, b}})),
            "<think>a b</think> c<think> da b")
      << "a tag of several ordinary tokens is text in an answer";
}

// The tokens of a character of several bytes, cut at each of them.
TEST_F(ThoughtTest, NoCharacterIsCut) {
  std::vector<TokenId> ids = Ids("a b");
  for (const unsigned char byte : std::string("\xF0\x9F\x98\x80")) ids.push_back(Byte(byte));
  ids.push_back(Ids("c")[0]);
  for (int64_t bound = 3; bound <= 6; ++bound) {
    EXPECT_EQ(Written(kControlOpened, bound, ids), "a b\xF0\x9F\x98\x80[/THINK]c") << bound;
  }
  EXPECT_EQ(Written(kControlOpened, 2, ids),
            "a b[/THINK]\xF0\x9F\x98\x80"
            "c");
  // Bytes that never become a character hold it up for three tokens.
  std::vector<TokenId> bad = Ids("a b");
  for (int i = 0; i < 20; ++i) bad.push_back(Byte(0xF0));
  const auto written = Write(MakeBudget(kControlOpened, 3).get(), bad);
  EXPECT_EQ(std::find(written.begin(), written.end(), kClose) - written.begin(), 3 + 3);
}

TEST_F(ThoughtTest, TakingBackGivesTheStateOfBefore) {
  const std::vector<TokenId> parts = Joined({Ids("<think></think>"),
                                             {kOpen, kClose},
                                             Ids("a b c d e f g h"),
                                             {Byte(0xF0), Byte(0x9F), Byte(0x98), Byte(0x80)}});
  std::mt19937 dice(11);
  for (const ReasoningTags& tags : {kControl, kControlOpened, kText, kTextOpened}) {
    for (int round = 0; round < 60; ++round) {
      const auto bound = static_cast<int64_t>(dice() % 12);
      const std::string message = dice() % 2 == 0 ? " Now I answer." : "";
      const auto budget = MakeBudget(tags, bound, message);
      std::vector<TokenId> taken;
      for (int step = 0; step < (round == 0 ? 700 : 60); ++step) {
        const bool back = round > 0 ? dice() % 3 == 0 : step == 650;
        if (back) {
          const size_t count = round > 0 ? dice() % (taken.size() + 1) : taken.size() - 20;
          budget->RollBack(static_cast<int64_t>(count));
          taken.resize(taken.size() - count);
        }
        const auto again = MakeBudget(tags, bound, message);
        if (step % 8 == 0 || round == 0) {
          if (round == 0 && step < 640) {
            // Only near the end: taking all again is slow.
          } else {
            for (const TokenId id : taken) ASSERT_TRUE(again->Accept(id));
            ASSERT_EQ(Allowed(budget.get()), Allowed(again.get())) << Text(taken);
            ASSERT_EQ(budget->ForcedTokens(9), again->ForcedTokens(9)) << Text(taken);
            ASSERT_EQ(budget->NeedsMask(1), again->NeedsMask(1)) << Text(taken);
          }
        }
        const std::vector<TokenId> allowed = Allowed(budget.get());
        const TokenId token = allowed.size() == 1 ? allowed.front() : parts[dice() % parts.size()];
        const TokenId other = token == parts[0] ? parts[1] : parts[0];
        EXPECT_EQ(budget->Accept(other), allowed.size() > 1);
        if (allowed.size() > 1) budget->RollBack(1);
        ASSERT_TRUE(budget->Accept(token));
        taken.push_back(token);
      }
    }
  }
}

TEST_F(ThoughtTest, WhatIsForcedIsKnownAhead) {
  const std::vector<TokenId> ids = Ids("a b c");
  const auto budget = MakeBudget(kControlOpened, 2, " Now I answer.");
  EXPECT_FALSE(budget->NeedsMask(0));
  EXPECT_FALSE(budget->NeedsMask(1));
  EXPECT_TRUE(budget->NeedsMask(2));
  Write(budget.get(), {ids[0], ids[1]});
  const std::vector<TokenId> forced = budget->ForcedTokens(100);
  EXPECT_EQ(Text(forced), " Now I answer.[/THINK]");
  EXPECT_EQ(budget->ForcedTokens(2), std::vector<TokenId>(forced.begin(), forced.begin() + 2));
  for (const TokenId id : forced) {
    EXPECT_TRUE(budget->NeedsMask(0));
    EXPECT_TRUE(budget->Accept(id));
  }
  EXPECT_TRUE(budget->ForcedTokens(100).empty());
  EXPECT_FALSE(budget->NeedsMask(0));
  EXPECT_FALSE(budget->NeedsMask(100));
}

// Through the runtime, over an engine without a model, which chooses any token that may follow.
class ThoughtRuntimeTest : public ThoughtTest {
 protected:
  EngineLimits Limits() const {
    EngineLimits limits = SmallLimits();
    limits.vocab_size = vocab_;
    limits.num_pages = 1000;
    limits.max_step_drafts = 32;
    return limits;
  }
  struct Setting {
    bool overlap = true;
    int32_t max_prefill = 32, max_drafts = 0, num_pages = 1000;
  };
  struct Told {
    std::vector<TokenId> ids;
    std::string text;
    Event done;
    bool operator==(const Told& other) const { return ids == other.ids && text == other.text; }
  };
  std::vector<Told> Answers(const Setting& setting, const std::vector<Prompt>& prompts) {
    RuntimeOptions options;
    options.scheduler.max_prefill_tokens = setting.max_prefill;
    options.scheduler.max_drafts = setting.max_drafts;
    options.scheduler.admission = AdmissionPolicy::kOptimistic;
    options.scheduler.check_invariants = true;
    if (setting.max_drafts > 0) options.scheduler.drafter = MakeNgramDrafter();
    options.overlap = setting.overlap;
    EngineLimits limits = Limits();
    limits.num_pages = setting.num_pages;
    auto engine = std::make_unique<sim::SimEngine>(limits, 0);
    const auto runtime = Runtime::Create(std::move(engine), tokenizer_.get(), options).value();
    EventQueue queue;
    for (size_t i = 0; i < prompts.size(); ++i) runtime->Submit(prompts[i], &queue, i);
    std::vector<Told> answers(prompts.size());
    for (size_t ended = 0; ended < prompts.size();) {
      std::optional<Event> event = queue.Pop(std::chrono::milliseconds(120000));
      if (!event) {
        ADD_FAILURE() << "no event in time";
        break;
      }
      Told& told = answers[event->tag];
      told.text += event->text;
      told.ids.insert(told.ids.end(), event->token_ids.begin(), event->token_ids.end());
      if (event->kind != Event::Kind::kDone) continue;
      ++ended;
      told.done = *std::move(event);
    }
    stats_ = runtime->Stats().scheduler;
    return answers;
  }
  Prompt Ask(const ReasoningTags& tags, int64_t budget, TokenId first, int64_t max_tokens) const {
    Prompt prompt = MakePrompt(first, 6, max_tokens);
    prompt.stop_token_ids = {};
    prompt.reasoning = tags;
    prompt.thought_budget = budget;
    prompt.kept_special_ids = {kOpen, kClose};
    return prompt;
  }
  // A prompt after which the engine opens a thought by itself.
  Prompt AskThatOpens(int64_t budget, int64_t max_tokens) const {
    for (TokenId last = 1; last < 1'000'000; ++last) {
      Prompt prompt = Ask(kControl, budget, 1, max_tokens);
      prompt.ids.push_back(1 + last % 1000);
      prompt.ids.push_back(1 + last / 1000);
      uint64_t prefix = 1;
      for (const TokenId id : prompt.ids) prefix = sim::Extend(prefix, id);
      if (sim::NextToken(prefix, vocab_, 0) == kOpen) return prompt;
    }
    ADD_FAILURE() << "no prompt";
    return {};
  }

  SchedulerStats stats_;
};

TEST_F(ThoughtRuntimeTest, TheSameTokensComeUnderEverySchedule) {
  std::vector<Prompt> prompts;
  for (const int64_t budget : {0, 1, 2, 5, 17, 200}) {
    for (const char* message : {"", " Now I answer the question."}) {
      prompts.push_back(Ask(kControlOpened, budget, static_cast<TokenId>(prompts.size()), 40));
      prompts.back().thought_message = message;
      prompts.push_back(AskThatOpens(budget, 40));
      prompts.back().thought_message = message;
    }
  }
  prompts.push_back(Ask(kControlOpened, -1, 3, 40));
  const std::vector<Told> first = Answers({}, prompts);
  for (const Setting& setting :
       {Setting{false, 32, 0, 1000}, Setting{true, 3, 0, 1000}, Setting{true, 32, 4, 1000},
        Setting{false, 5, 4, 1000}, Setting{true, 32, 0, 40}, Setting{true, 8, 3, 40}}) {
    EXPECT_EQ(Answers(setting, prompts), first) << setting.overlap << setting.max_drafts;
    if (setting.num_pages == 40) EXPECT_GT(stats_.preemptions, 0);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Prompt& prompt = prompts[i];
    const Told& told = first[i];
    ASSERT_EQ(told.ids.size(), 40u);
    EXPECT_EQ(told.done.finish_reason, FinishReason::kLength);
    const bool closed = std::count(told.ids.begin(), told.ids.end(), kClose) > 0;
    EXPECT_EQ(told.done.ended_in_thought, !closed) << i;
    EXPECT_EQ(closed, prompt.thought_budget >= 0 && prompt.thought_budget < 40) << i;
    if (!closed) continue;
    const auto begin = told.ids.begin() + (prompt.reasoning.starts_inside ? 0 : 1);
    const auto thought = std::find(told.ids.begin(), told.ids.end(), kClose) - begin;
    const std::string& message = prompt.thought_message;
    const bool says = !message.empty() && prompt.thought_budget > 0;
    EXPECT_EQ(thought, prompt.thought_budget + (says ? std::ssize(Ids(message)) : 0)) << i;
    EXPECT_EQ(told.done.usage.reasoning_tokens, thought) << i;
    EXPECT_NE(told.text.find((says ? message : "") + "[/THINK]"), std::string::npos) << told.text;
  }
}

// The row after the opening tag was launched without a mask, before the tag was known.
TEST_F(ThoughtRuntimeTest, OnlyRowsNearTheEndOfAThoughtHaveMasks) {
  const auto count_masked = [&](const std::vector<Prompt>& prompts) {
    EngineLimits limits = Limits();
    SchedulerOptions options;
    options.max_prefill_tokens = 32;
    Scheduler scheduler(limits, options);
    sim::SimEngine engine(limits, 0);
    for (size_t i = 0; i < prompts.size(); ++i) {
      Request request;
      request.id = i + 1;
      request.prompt = prompts[i].ids;
      request.max_tokens = prompts[i].max_tokens;
      request.constraint = std::make_shared<ThoughtBudget>(
          MarksOf(prompts[i].reasoning), prompts[i].reasoning.starts_inside,
          prompts[i].thought_budget, prompts[i].thought_message, vocab_);
      scheduler.Submit(std::move(request));
    }
    int num_masked = 0;
    while (!scheduler.Idle()) {
      if (const auto plan = scheduler.Next()) {
        for (int row = 0; row < plan->num_rows(); ++row) num_masked += plan->masked(row) ? 1 : 0;
        engine.Launch(plan);
        if (auto masks = scheduler.TakeMasks(&engine)) engine.SupplyMasks(std::move(*masks));
        if (engine.in_flight() < 2 && !scheduler.HasInFlight()) continue;
        if (engine.in_flight() < 2) continue;
      }
      scheduler.Collect(engine.Collect());
      if (auto masks = scheduler.TakeMasks(&engine)) engine.SupplyMasks(std::move(*masks));
      scheduler.TakeEvents();
    }
    EXPECT_EQ(engine.violation(), "");
    return num_masked;
  };
  EXPECT_LE(count_masked({Ask(kControlOpened, 50, 1, 100)}), 2);
  EXPECT_GE(count_masked({Ask(kControlOpened, 50, 1, 100)}), 1);
  EXPECT_EQ(count_masked({Ask(kControl, 50, 1, 100)}), 0);
  EXPECT_EQ(count_masked({AskThatOpens(0, 100)}), 1) << "the token after the tag was dropped";
}

TEST_F(ThoughtRuntimeTest, AGrammarFollowsAThoughtThatWasClosed) {
  const auto schema = std::make_shared<const GrammarText>(
      GrammarText{GrammarKind::kRegularExpression, "[a-z]{3,6}-[0-9]{2}", {}});
  std::vector<Prompt> prompts;
  for (int i = 0; i < 24; ++i) {
    Prompt prompt = i % 3 == 2 ? AskThatOpens(i % 5, 80) : Ask(kControlOpened, i % 9, i, 80);
    if (i % 2 == 0) prompt.thought_message = "\nSo: ";
    prompt.stop_token_ids = {tokenizer_->eos_id().value()};
    prompt.grammar = schema;
    prompts.push_back(std::move(prompt));
  }
  const std::vector<Told> first = Answers({}, prompts);
  for (const Setting& setting : {Setting{false, 32, 0, 1000}, Setting{true, 3, 4, 1000}}) {
    EXPECT_EQ(Answers(setting, prompts), first);
  }
  for (size_t i = 0; i < first.size(); ++i) {
    const Told& told = first[i];
    EXPECT_EQ(told.done.finish_reason, FinishReason::kStop) << told.text << told.done.error_message;
    EXPECT_FALSE(told.done.cut_in_grammar);
    const ReasoningPiece piece = SplitReasoning(prompts[i].reasoning, told.text);
    EXPECT_EQ(piece.text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-0123456789"),
              std::string::npos)
        << piece.text;
    EXPECT_GE(piece.text.size(), 6u) << told.text;
  }
}

// The user's stop tokens hold in a thought as elsewhere; stop strings are looked for behind it.
TEST_F(ThoughtRuntimeTest, WhatIsForcedMayEndTheAnswer) {
  Prompt by_token = Ask(kControlOpened, 3, 1, 40);
  by_token.stop_token_ids = {kClose};
  Prompt by_string = Ask(kControlOpened, 3, 1, 40);
  by_string.thought_message = " It is enough now.";
  by_string.stop = {"enough"};
  Prompt in_grammar = by_token;
  in_grammar.grammar = std::make_shared<const GrammarText>(
      GrammarText{GrammarKind::kRegularExpression, "[a-z]{3,6}", {}});
  const std::vector<Told> told = Answers({}, {by_token, by_string, in_grammar});
  EXPECT_EQ(told[0].done.finish_reason, FinishReason::kStop);
  EXPECT_EQ(told[0].ids.size(), 4u);
  EXPECT_TRUE(told[0].done.ended_in_thought);
  EXPECT_NE(told[1].text.find(" It is enough now.[/THINK]"), std::string::npos) << told[1].text;
  EXPECT_NE(told[2].done.finish_reason, FinishReason::kError) << told[2].done.error_message;
}

}  // namespace
}  // namespace minisgl::runtime
