// Answers under a grammar through the runtime: a real tokenizer over an engine without a model,
// which chooses any token that the masks allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/grammar/matcher.h"
#include "renamed_wren.h"
#include "runtime/grammar_compiler.h"
#include "runtime/runtime_fixture.h"

namespace minisgl::runtime {
namespace {

constexpr auto kGrammarPatience = std::chrono::milliseconds(120000);
constexpr TokenId kOpenTag = 500, kCloseTag = 501;
constexpr ReasoningTags kThinkTags = {"[THINK]", "[/THINK]"};

const GrammarText kPerson = {
    GrammarKind::kJsonSchema,
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog", "an animal with a long name"]}},
        "required": ["name", "age", "kind"], "additionalProperties": false})",
    {}};
const GrammarText kDate = {GrammarKind::kRegularExpression, "\\d{4}-(0[1-9]|1[0-2])-[0-3]\\d", {}};
const GrammarText kWord = {GrammarKind::kChoice, "", {"yes", "no", "perhaps"}};
const GrammarText kSum = {
    GrammarKind::kGbnf, "root ::= term (\" + \" term){0,3}\nterm ::= [0-9]{1,3} | \"x\"", {}};

MaskOutcome Fill(AnswerConstraint* constraint, std::span<uint32_t> mask) {
  int64_t work_left = INT64_MAX;
  return constraint->FillMask(mask, &work_left);
}

class GrammarRuntimeTest : public ::testing::Test {
 protected:
  GrammarRuntimeTest() : model_({{kOpenTag, "[THINK]"}, {kCloseTag, "[/THINK]"}}) {}

  void SetUp() override {
    auto tokenizer = Tokenizer::Load(model_.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
    end_ = tokenizer_->eos_id().value();
  }

  EngineLimits Limits() const {
    EngineLimits limits = SmallLimits();
    limits.vocab_size = tokenizer_->vocab_size() + 30;  // padded, as models are
    limits.num_pages = 1000;
    limits.max_step_drafts = 32;
    return limits;
  }
  std::unique_ptr<Runtime> Make(bool overlap) {
    RuntimeOptions options;
    options.scheduler.max_prefill_tokens = 32;
    options.scheduler.check_invariants = true;
    options.overlap = overlap;
    return Runtime::Create(std::make_unique<sim::SimEngine>(Limits(), 0), tokenizer_.get(), options)
        .value();
  }
  Prompt Ask(const GrammarText& grammar, TokenId first, int64_t max_tokens) const {
    Prompt prompt = MakePrompt(first, 6, max_tokens);
    prompt.stop_token_ids = {end_};
    prompt.grammar = std::make_shared<const GrammarText>(grammar);
    return prompt;
  }
  struct Told {
    std::string text;
    Event done;
  };
  // The answers, in the order of the prompts.
  static std::vector<Told> Answers(Runtime* runtime, const std::vector<Prompt>& prompts) {
    EventQueue queue;
    for (size_t i = 0; i < prompts.size(); ++i) runtime->Submit(prompts[i], &queue, i);
    std::vector<Told> answers(prompts.size());
    for (size_t ended = 0; ended < prompts.size();) {
      std::optional<Event> event = queue.Pop(kGrammarPatience);
      if (!event) {
        ADD_FAILURE() << "no event in time";
        break;
      }
      Told& told = answers[event->tag];
      told.text += event->text;
      if (event->kind != Event::Kind::kDone) continue;
      ++ended;
      told.done = *std::move(event);
    }
    return answers;
  }
  static bool Matches(const GrammarText& grammar, const std::string& text) {
    bool accepted = false;
    MatchText(*CompileGrammar(grammar).value(), text, &accepted);
    return accepted;
  }

  const RenamedWren model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenId end_ = 0;
};

TEST_F(GrammarRuntimeTest, AnswersAreTextsOfTheirGrammarsUnlessTheyAreCut) {
  const std::vector<GrammarText> grammars = {
      kPerson, kDate, kWord, kSum, {GrammarKind::kJsonObject, "", {}}};
  std::vector<std::string> first_texts;
  for (const bool overlap : {true, false}) {
    const auto runtime = Make(overlap);
    std::vector<Prompt> prompts;
    for (int i = 0; i < 40; ++i) {
      prompts.push_back(
          Ask(grammars[static_cast<size_t>(i) % grammars.size()], i, i < 30 ? 150 : 4));
    }
    const std::vector<Told> answers = Answers(runtime.get(), prompts);
    int whole = 0;
    std::vector<std::string> texts;
    for (size_t i = 0; i < answers.size(); ++i) {
      const Told& told = answers[i];
      texts.push_back(told.text);
      EXPECT_EQ(Matches(*prompts[i].grammar, told.text), !told.done.cut_in_grammar) << told.text;
      whole += told.done.cut_in_grammar ? 0 : 1;
      if (told.done.cut_in_grammar) EXPECT_EQ(told.done.finish_reason, FinishReason::kLength);
    }
    EXPECT_GE(whole, 20);
    EXPECT_LT(whole, 40);
    EXPECT_GT(runtime->Stats().scheduler.accepted_drafts, 0);  // of forced text
    if (first_texts.empty()) first_texts = texts;
    EXPECT_EQ(texts, first_texts);
  }
}

TEST_F(GrammarRuntimeTest, ABadGrammarIsAnErrorOfItsRequestAlone) {
  const auto runtime = Make(true);
  std::vector<Prompt> prompts = {
      Ask({GrammarKind::kRegularExpression, "a(b", {}}, 1, 20),
      Ask({GrammarKind::kJsonSchema, R"({"properties": {"a": {"$ref": "#/nowhere"}}})", {}}, 2, 20),
      Ask(kDate, 3, 50), Ask({GrammarKind::kGbnf, "root ::= other", {}}, 4, 20)};
  const std::vector<Told> answers = Answers(runtime.get(), prompts);
  for (const size_t bad : {0, 1, 3}) {
    EXPECT_EQ(answers[bad].done.finish_reason, FinishReason::kError);
    EXPECT_EQ(answers[bad].done.error_code, "invalid_grammar");
    EXPECT_FALSE(answers[bad].done.error_message.empty());
  }
  EXPECT_NE(answers[1].done.error_message.find("/properties/a"), std::string::npos)
      << answers[1].done.error_message;
  EXPECT_TRUE(Matches(kDate, answers[2].text)) << answers[2].text;
}

// A thought may come first, and must if the prompt opens it; the text after it is the grammar's.
TEST_F(GrammarRuntimeTest, AThoughtComesBeforeTheText) {
  const auto runtime = Make(true);
  std::vector<Prompt> prompts;
  for (int i = 0; i < 24; ++i) {
    Prompt& prompt = prompts.emplace_back(Ask(i % 2 == 0 ? kWord : kDate, i, 190));
    prompt.reasoning = kThinkTags;
    prompt.reasoning.starts_inside = i % 3 == 0;
    prompt.kept_special_ids = {kOpenTag, kCloseTag};
  }
  const std::vector<Told> answers = Answers(runtime.get(), prompts);
  int plain = 0, cut_thoughts = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const ReasoningPiece piece = SplitReasoning(prompts[i].reasoning, answers[i].text);
    if (answers[i].done.cut_in_grammar) {
      ++cut_thoughts;  // random tokens close a thought rarely
      continue;
    }
    EXPECT_TRUE(Matches(*prompts[i].grammar, piece.text)) << answers[i].text;
    plain += piece.reasoning.empty() ? 1 : 0;
    EXPECT_FALSE(prompts[i].reasoning.starts_inside && piece.reasoning.empty());
  }
  EXPECT_GT(plain, 0);
  EXPECT_GT(cut_thoughts, 0);
}

TEST_F(GrammarRuntimeTest, AbortsMeetGrammarsAtAnyStage) {
  const auto runtime = Make(true);
  EventQueue queue;
  for (int round = 0; round < 20; ++round) {
    Prompt prompt = Ask(kPerson, round, 100);
    GrammarText own = kPerson;
    own.text += std::string(static_cast<size_t>(round), ' ');  // compiled anew
    prompt.grammar = std::make_shared<const GrammarText>(own);
    const RequestId id = runtime->Submit(std::move(prompt), &queue, 0);
    std::this_thread::sleep_for(std::chrono::microseconds(300 * (round % 5)));
    runtime->Abort(id);
    while (true) {
      const std::optional<Event> event = queue.Pop(kGrammarPatience);
      ASSERT_TRUE(event.has_value());
      if (event->kind == Event::Kind::kDone) break;
    }
  }
  EXPECT_EQ(runtime->Stats().scheduler.waiting, 0);
}

TEST_F(GrammarRuntimeTest, AStopStringCutsAndEndTokensMayBeIgnored) {
  const auto runtime = Make(true);
  std::vector<Prompt> prompts = {Ask(kPerson, 1, 150), Ask(kWord, 2, 50)};
  prompts[0].stop = {"\""};
  prompts[1].stop_token_ids = {};  // as with ignore_eos
  const std::vector<Told> answers = Answers(runtime.get(), prompts);
  EXPECT_EQ(answers[0].done.finish_reason, FinishReason::kStop);
  EXPECT_TRUE(answers[0].done.cut_in_grammar);
  EXPECT_TRUE(Matches(kWord, answers[1].text)) << answers[1].text;
  EXPECT_EQ(answers[1].done.finish_reason, FinishReason::kStop);
}

TEST(GrammarRuntimeWithoutTokenizerTest, RefusesGrammars) {
  LoopDriver driver;
  Prompt prompt = MakePrompt(1, 5, 10);
  prompt.grammar = std::make_shared<const GrammarText>(kWord);
  const RequestId id = driver.Submit(prompt);
  driver.RunToRest();
  const auto event = driver.queue.Pop(std::chrono::milliseconds(0));
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->request, id);
  EXPECT_EQ(event->error_code, "invalid_row");
}

TEST_F(GrammarRuntimeTest, EqualGrammarsAreCompiledOnce) {
  std::mutex mutex;
  std::condition_variable changed;
  int wakes = 0;
  GrammarCompiler compiler(tokenizer_.get(), tokenizer_->vocab_size(), [&] {
    const std::lock_guard lock(mutex);
    ++wakes;
    changed.notify_all();
  });
  for (RequestId id = 1; id <= 6; ++id) {
    Prompt prompt = Ask(id % 2 == 0 ? kWord : kDate, 1, 10);
    if (id == 5) prompt.reasoning = kThinkTags;  // a grammar of its own
    compiler.Ask(id, prompt);
  }
  std::vector<GrammarOutcome> all;
  std::unique_lock lock(mutex);
  while (all.size() < 6) {
    ASSERT_TRUE(changed.wait_for(lock, kGrammarPatience, [&] { return wakes > 0; }));
    wakes = 0;
    for (GrammarOutcome& outcome : compiler.TakeFinished()) all.push_back(std::move(outcome));
  }
  EXPECT_EQ(compiler.num_compiled(), 3);
  for (const GrammarOutcome& outcome : all) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_NE(outcome.constraint, nullptr);
  }
}

// As long as an answer has a grammar it is found again, however many others come between; grammars
// that none has are kept within a bound.
TEST_F(GrammarRuntimeTest, GrammarsInUseAreFoundAgain) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_woken = false;
  GrammarCompiler compiler(tokenizer_.get(), tokenizer_->vocab_size(), [&] {
    const std::lock_guard lock(mutex);
    is_woken = true;
    changed.notify_all();
  });
  const auto ask_for_all = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Prompt prompt =
          Ask({GrammarKind::kRegularExpression, "x{" + std::to_string(i) + "}", {}}, 1, 9);
      compiler.Ask(static_cast<RequestId>(i + 1), prompt);
    }
    std::vector<GrammarOutcome> all;
    std::unique_lock lock(mutex);
    while (std::ssize(all) < count) {
      EXPECT_TRUE(changed.wait_for(lock, kGrammarPatience, [&] { return is_woken; }));
      is_woken = false;
      for (GrammarOutcome& outcome : compiler.TakeFinished()) all.push_back(std::move(outcome));
    }
    return all;
  };
  std::vector<GrammarOutcome> in_use = ask_for_all(200);
  EXPECT_EQ(compiler.num_compiled(), 200);
  ask_for_all(200);
  EXPECT_EQ(compiler.num_compiled(), 200);
  in_use.clear();
  ask_for_all(200);
  EXPECT_GE(compiler.num_compiled(), 200 + 100);
  EXPECT_LE(compiler.num_compiled(), 400);
}

// Within the thought anything but an end may follow; behind it the text alone, token by token.
TEST_F(GrammarRuntimeTest, TheMaskBehindAThoughtIsThatOfTheText) {
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(
      tokenizer_.get(), tokenizer_->vocab_size(), /*spells_control=*/true);
  const ThoughtForm thought = {.open = vocabulary->BytesOf(kOpenTag),
                               .close = vocabulary->BytesOf(kCloseTag)};
  AnswerConstraint constraint(CompileGrammar(kWord, {}, thought).value(), vocabulary, {end_});
  const auto allows = [&](TokenId token) {
    std::vector<uint32_t> mask(static_cast<size_t>(tokenizer_->vocab_size() + 31) / 32);
    EXPECT_EQ(Fill(&constraint, mask), MaskOutcome::kMade);
    return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  };
  const TokenId hello = tokenizer_->EncodeText("hello")->back();
  EXPECT_TRUE(allows(kOpenTag));
  EXPECT_FALSE(allows(kCloseTag));
  EXPECT_FALSE(allows(hello));
  EXPECT_FALSE(allows(end_));
  ASSERT_TRUE(constraint.Accept(kOpenTag));
  for (const TokenId token : {hello, kOpenTag, hello}) {  // the tag again is a part of the thought
    EXPECT_TRUE(allows(token));
    EXPECT_FALSE(allows(end_));
    EXPECT_FALSE(constraint.Accept(end_));
    ASSERT_TRUE(constraint.Accept(token));
  }
  EXPECT_TRUE(constraint.ForcedTokens(9).empty());
  ASSERT_TRUE(allows(kCloseTag));
  ASSERT_TRUE(constraint.Accept(kCloseTag));
  EXPECT_FALSE(allows(kOpenTag));
  EXPECT_FALSE(allows(hello));
  EXPECT_FALSE(constraint.MayEnd());
  for (const char letter : std::string("yes")) {
    const TokenId token = tokenizer_->IdOf(std::string(1, letter)).value();
    EXPECT_TRUE(allows(token));
    ASSERT_TRUE(constraint.Accept(token));
  }
  EXPECT_TRUE(constraint.MustEnd());
  constraint.RollBack(4);
  EXPECT_TRUE(allows(hello));  // in the thought again
}

// The tokens that a constraint forces are those of the tokenizer, and taking tokens back restores
// what it allows.
TEST_F(GrammarRuntimeTest, ForcedTokensAreTheTokenizersAndRollBackRestores) {
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(
      tokenizer_.get(), tokenizer_->vocab_size(), /*spells_control=*/false);
  const GrammarText sentence = {
      GrammarKind::kRegularExpression, "(The quick brown fox jumps over the lazy dog\\.){2}", {}};
  AnswerConstraint constraint(CompileGrammar(sentence).value(), vocabulary, {end_});
  const std::vector<TokenId> forced = constraint.ForcedTokens(100);
  ASSERT_GT(forced.size(), 5u);
  const auto encoded = tokenizer_->EncodeText(
      "The quick brown fox jumps over the lazy dog.The quick brown fox "
      "jumps over the lazy dog.");
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(forced, *encoded);
  EXPECT_LE(constraint.ForcedTokens(3).size(), 3u);

  const size_t num_words = static_cast<size_t>(tokenizer_->vocab_size() + 31) / 32;
  std::vector<std::vector<uint32_t>> masks;
  for (const TokenId token : forced) {
    masks.emplace_back(num_words);
    ASSERT_EQ(Fill(&constraint, masks.back()), MaskOutcome::kMade);
    EXPECT_NE(masks.back()[static_cast<size_t>(token) / 32] >> (token % 32) & 1, 0u);
    ASSERT_TRUE(constraint.Accept(token));
  }
  EXPECT_TRUE(constraint.MustEnd());
  ASSERT_TRUE(constraint.Accept(end_));
  EXPECT_FALSE(constraint.Accept(end_));
  constraint.RollBack(1);
  for (size_t left = forced.size(); left-- > 0;) {
    constraint.RollBack(1);
    std::vector<uint32_t> again(num_words);
    ASSERT_EQ(Fill(&constraint, again), MaskOutcome::kMade);
    EXPECT_EQ(again, masks[left]);
  }
  EXPECT_FALSE(constraint.Accept(kOpenTag));  // a control token has no text
}

// Two patterns that have nothing in common, which no search within the limits shows.
GrammarText HeavyAndBad(int length) {
  const auto pattern = [&](const char* letter) {
    return "{\"type\":\"string\",\"pattern\":\"^(a|b)*" + std::string(letter) + "(a|b){" +
           std::to_string(length) + "}$\"}";
  };
  return {GrammarKind::kJsonSchema, "{\"allOf\":[" + pattern("a") + "," + pattern("b") + "]}", {}};
}

// Outcomes of `compiler` until one of `id` comes; that one is the last.
std::vector<GrammarOutcome> WaitForOutcome(GrammarCompiler* compiler, RequestId id) {
  std::vector<GrammarOutcome> all;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < kGrammarPatience) {
    for (GrammarOutcome& outcome : compiler->TakeFinished()) {
      all.push_back(std::move(outcome));
      if (all.back().id == id) return all;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return all;
}

// What follows there is not known, so the answer fails: it is no whole text that stops.
TEST_F(GrammarRuntimeTest, AnAnswerAtTheParsersLimitDoesNotEndAsAText) {
  GrammarLimits limits;
  limits.state_items_max = 50;
  const auto grammar =
      CompileGrammar({GrammarKind::kGbnf, R"(root ::= root root | "a")", {}}, limits);
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const auto vocabulary =
      std::make_shared<GrammarVocabulary>(tokenizer_.get(), tokenizer_->vocab_size(), false);
  AnswerConstraint constraint(*grammar, vocabulary, {end_});
  const TokenId a = tokenizer_->IdOf("a").value();
  MaskOutcome outcome = MaskOutcome::kMade;
  for (int i = 0; i < 200 && outcome == MaskOutcome::kMade; ++i) {
    ASSERT_FALSE(constraint.MustEnd()) << i;
    std::vector<uint32_t> mask(static_cast<size_t>(tokenizer_->vocab_size() + 31) / 32);
    outcome = Fill(&constraint, mask);
    if (outcome == MaskOutcome::kMade) {
      ASSERT_TRUE(constraint.Accept(a)) << i;
    }
  }
  EXPECT_EQ(outcome, MaskOutcome::kNone);
  EXPECT_TRUE(constraint.MayEnd());
}

TEST_F(GrammarRuntimeTest, HeavyGrammarsHoldUpEachOtherAlone) {
  GrammarCompiler compiler(tokenizer_.get(), tokenizer_->vocab_size(), [] {});
  constexpr RequestId kHeavy = 5;
  for (RequestId id = 1; id <= kHeavy; ++id) {
    compiler.Ask(id, Ask(HeavyAndBad(40 + static_cast<int>(id)), 0, 5));
  }
  compiler.Ask(100, Ask(kPerson, 0, 5));
  compiler.Ask(101, Ask(kDate, 0, 5));
  const std::vector<GrammarOutcome> outcomes = WaitForOutcome(&compiler, 101);
  ASSERT_FALSE(outcomes.empty());
  EXPECT_EQ(outcomes.back().id, 101u);
  EXPECT_TRUE(outcomes.back().status.ok());
  EXPECT_LE(outcomes.size(), 5u) << "heavy ones came first";
  for (RequestId id = 2; id <= kHeavy; ++id) compiler.Forget(id);
}

TEST_F(GrammarRuntimeTest, AHeavyGrammarIsCompiledOnceForAll) {
  GrammarCompiler compiler(tokenizer_.get(), tokenizer_->vocab_size(), [] {});
  GrammarText choice = {GrammarKind::kChoice, "", {}};  // large, so it is heavy from the start
  for (int i = 0; i < 20'000; ++i) choice.choices.push_back("row " + std::to_string(i * 7919));
  const GrammarText many = {GrammarKind::kRegularExpression, "((a|b)*a(a|b){11}c){1,400}", {}};
  RequestId id = 0;
  for (int round = 0; round < 5; ++round) {
    compiler.Ask(++id, Ask(choice, 0, 5));
    compiler.Ask(++id, Ask(many, 0, 5));
    compiler.Ask(++id, Ask(kWord, 0, 5));
  }
  std::vector<RequestId> ended;
  while (ended.size() < 15) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const GrammarOutcome& outcome : compiler.TakeFinished()) {
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
      ended.push_back(outcome.id);
    }
  }
  EXPECT_EQ(compiler.num_compiled(), 3);
}

// Masks that take tens of milliseconds each: the places of letters that may go on count. The thread
// sanitizer makes them as slow with fewer places.
#if defined(__SANITIZE_THREAD__)
constexpr const char* kSlowSchema =
    R"({"allOf": [{"type": "string", "pattern": "[a-m].{6}[a-m]"},
                  {"pattern": "[f-z].{7}[g-z]"}]})";
#else
constexpr const char* kSlowSchema =
    R"({"allOf": [{"type": "string", "pattern": "[a-m].{8}[a-m]"},
                  {"pattern": "[f-z].{9}[g-z]"}]})";
#endif
const GrammarText kSlow = {GrammarKind::kJsonSchema, kSlowSchema, {}};

// Waits for masks of `maker`.
class MakerWithWaiting {
 public:
  MakerWithWaiting() : maker_([this] { Wake(); }) {}
  MaskMaker* get() { return &maker_; }
  std::vector<RequestId> WaitForReady() {
    std::unique_lock lock(mutex_);
    while (true) {
      std::vector<RequestId> ready = maker_.TakeReady();
      if (!ready.empty()) return ready;
      if (!changed_.wait_for(lock, kGrammarPatience, [this] { return woken_; })) return {};
      woken_ = false;
    }
  }

 private:
  void Wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  MaskMaker maker_;
};

TEST_F(GrammarRuntimeTest, AMaskOfMuchWorkComesLaterAndIsTheSame) {
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(
      tokenizer_.get(), tokenizer_->vocab_size(), /*spells_control=*/false);
  MakerWithWaiting maker;
  AnswerConstraint late(CompileGrammar(kSlow).value(), vocabulary, {end_}, 7, maker.get());
  AnswerConstraint waits(CompileGrammar(kSlow).value(), vocabulary, {end_});
  const size_t num_words = static_cast<size_t>(tokenizer_->vocab_size() + 31) / 32;
  for (const char* letter : {"\"", "a", "b"}) {
    const TokenId token = tokenizer_->IdOf(letter).value();
    ASSERT_TRUE(late.Accept(token));
    ASSERT_TRUE(waits.Accept(token));
    std::vector<uint32_t> first(num_words), again(num_words), right(num_words);
    int64_t work_left = 500;
    ASSERT_EQ(late.FillMask(first, &work_left), MaskOutcome::kLater);
    EXPECT_LE(work_left, 0);
    EXPECT_EQ(maker.WaitForReady(), std::vector<RequestId>{7});
    work_left = 0;  // it is ready
    ASSERT_EQ(late.FillMask(again, &work_left), MaskOutcome::kMade);
    EXPECT_EQ(Fill(&waits, right), MaskOutcome::kMade);
    EXPECT_EQ(again, right);
  }
}

// An answer ends while its mask is made: the maker goes on with others, and stops when told to.
TEST_F(GrammarRuntimeTest, MasksThatNoOneWantsAreNotMadeToTheEnd) {
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(
      tokenizer_.get(), tokenizer_->vocab_size(), /*spells_control=*/false);
  const size_t num_words = static_cast<size_t>(tokenizer_->vocab_size() + 31) / 32;
  MakerWithWaiting maker;
  std::vector<uint32_t> mask(num_words);
  std::vector<std::unique_ptr<AnswerConstraint>> constraints;
  for (RequestId id = 1; id <= 20; ++id) {
    constraints.push_back(std::make_unique<AnswerConstraint>(
        CompileGrammar(kSlow).value(), vocabulary, std::vector<TokenId>{end_}, id, maker.get()));
    ASSERT_TRUE(constraints.back()->Accept(tokenizer_->IdOf("\"").value()));
    int64_t work_left = 100;
    EXPECT_EQ(constraints.back()->FillMask(mask, &work_left), MaskOutcome::kLater);
    work_left = 1'000'000'000;
    if (id != 10) EXPECT_EQ(constraints.back()->FillMask(mask, &work_left), MaskOutcome::kLater);
    if (id != 10) constraints.pop_back();
  }
  EXPECT_EQ(maker.WaitForReady(), std::vector<RequestId>{10});
  int64_t work_left = 0;
  EXPECT_EQ(constraints[0]->FillMask(mask, &work_left), MaskOutcome::kMade);
  work_left = 0;
  constraints[0]->Accept(tokenizer_->IdOf("a").value());
  EXPECT_EQ(constraints[0]->FillMask(mask, &work_left), MaskOutcome::kLater);
}

// Plain rows end long before the answers whose masks take that long, and those are the same with
// and without others beside them.
TEST_F(GrammarRuntimeTest, PlainAnswersDoNotWaitForMasks) {
  std::vector<std::string> alone;
  for (const bool overlap : {true, false}) {
    const auto runtime = Make(overlap);
    std::vector<Prompt> prompts = {Ask(kSlow, 1, 3), Ask(kSlow, 2, 3)};
    for (const Told& told : Answers(runtime.get(), prompts)) {
      alone.push_back(told.text);
    }
  }
  EXPECT_EQ(alone[0], alone[2]);
  EXPECT_EQ(alone[1], alone[3]);
  const auto runtime = Make(true);
  EventQueue queue;
  std::vector<Prompt> prompts = {Ask(kSlow, 1, 3), Ask(kSlow, 2, 3)};
  for (int i = 0; i < 6; ++i) prompts.push_back(MakePrompt(i, 6, 60));
  for (size_t i = 0; i < prompts.size(); ++i) runtime->Submit(prompts[i], &queue, i);
  std::vector<std::string> texts(prompts.size());
  std::vector<size_t> ended;
  while (ended.size() < prompts.size()) {
    const std::optional<Event> event = queue.Pop(kGrammarPatience);
    ASSERT_TRUE(event);
    texts[event->tag] += event->text;
    if (event->kind == Event::Kind::kDone) ended.push_back(event->tag);
  }
  for (size_t i = 0; i < 6; ++i) EXPECT_GE(ended[i], 2u) << "an answer under a slow grammar ended";
  EXPECT_EQ(texts[0], alone[0]);
  EXPECT_EQ(texts[1], alone[1]);
}

}  // namespace
}  // namespace minisgl::runtime
