// Matchers against a recogniser that computes all spans of a text.
#include "minisgl/grammar/matcher.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>
#include <thread>

#include "grammar/machine.h"
#include "long_form.h"
#include "random_grammar.h"
#include "slow.h"

namespace minisgl {
namespace {

std::vector<std::string> TextsUpTo(size_t length_max) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == length_max) continue;
    for (const char byte : std::string("abc")) texts.push_back(texts[i] + byte);
  }
  return texts;
}

using Grammar = std::shared_ptr<const CompiledGrammar>;

Grammar BuildOrNull(const RandomGrammar& random, const GrammarLimits& limits = {}) {
  GrammarBuilder builder(limits);
  const Symbol start = random.Build(&builder);
  auto built = CompiledGrammar::Build(std::move(builder), start);
  return built.ok() ? *built : nullptr;
}

// Some text with the accepted bytes of `matcher` before it, of at most 12 more bytes; `*gave_up` is
// true if there may be a longer one.
std::optional<std::string> ShortestEnd(const Matcher& matcher, bool* gave_up) {
  *gave_up = false;
  std::deque<std::pair<Matcher, std::string>> open;
  open.emplace_back(matcher, "");
  for (int i = 0; i < 3000 && !open.empty(); ++i) {
    auto [at, text] = open.front();
    open.pop_front();
    if (at.IsAccepting()) return text;
    for (const char byte : std::string("abc")) {
      Matcher next = at;
      if (!next.Accept(std::string(1, byte))) continue;
      if (text.size() < 12) {
        open.emplace_back(next, text + byte);
      } else {
        *gave_up = true;
      }
    }
  }
  *gave_up |= !open.empty();
  return std::nullopt;
}

TEST(Matcher, RandomGrammarsMatchWhatTheyDerive) {
  MarkSlow("derives every text of up to 5 letters by all its spans");
  const std::vector<std::string> texts = TextsUpTo(5);
  int num_empty = 0;
  for (uint32_t seed = 0; seed < 80; ++seed) {
    const RandomGrammar random(seed);
    const Grammar grammar = BuildOrNull(random);
    std::set<std::string> prefixes;
    for (const std::string& text : texts) {
      const bool expected = random.Matches(text);
      bool accepted = false;
      if (grammar != nullptr) {
        Matcher matcher(grammar);
        const size_t length = matcher.AcceptPrefix(text);
        const bool all = length == text.size() && matcher.IsAccepting();
        ASSERT_EQ(MatchText(*grammar, text, &accepted), length);
        ASSERT_EQ(accepted, all);
      }
      ASSERT_EQ(accepted, expected) << "seed " << seed << " text " << text << "\n"
                                    << random.Describe();
      if (expected) {
        for (size_t i = 0; i <= text.size(); ++i) prefixes.insert(text.substr(0, i));
      }
    }
    if (grammar == nullptr) {
      ++num_empty;
      continue;
    }
    for (const std::string& text : texts) {
      if (text.size() > 3) break;
      Matcher matcher(grammar);
      const bool viable = matcher.Accept(text);
      if (prefixes.count(text) > 0) {
        ASSERT_TRUE(viable) << seed << " " << text;
      }
      if (!viable) continue;
      // No place without an end.
      bool gave_up = false;
      const auto end = ShortestEnd(matcher, &gave_up);
      ASSERT_TRUE(end.has_value() || gave_up) << seed << " " << text;
      if (end.has_value()) {
        ASSERT_TRUE(random.Matches(text + *end)) << seed << " " << text << " " << *end;
      }
    }
  }
  EXPECT_GT(num_empty, 3);
  EXPECT_LT(num_empty, 60);
}

TEST(Matcher, TrimmedTablesChangeNothing) {
  GrammarLimits small;
  small.table_bytes_max = 1;  // rebuilt at every call
  small.mask_cache_bytes_max = 1;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    const RandomGrammar random(seed);
    const Grammar plain = BuildOrNull(random);
    const Grammar trimmed = BuildOrNull(random, small);
    if (plain == nullptr) continue;
    std::mt19937 walk(seed);
    Matcher a(plain), b(trimmed);
    std::vector<std::pair<Matcher, Matcher>> kept;
    for (int step = 0; step < 60; ++step) {
      const std::string byte(1, "abc"[walk() % 3]);
      ASSERT_EQ(a.Accept(byte), b.Accept(byte));
      ASSERT_EQ(a.IsAccepting(), b.IsAccepting());
      if (step % 7 == 0) kept.push_back({a, b});
      if (walk() % 5 == 0) {
        const size_t to = walk() % (a.num_bytes() + 1);
        a.RollbackTo(to);
        b.RollbackTo(to);
        ASSERT_EQ(a.NextBytes(), b.NextBytes());
      }
    }
    for (const auto& [of_plain, of_trimmed] : kept) {
      ASSERT_EQ(of_plain.NextBytes(), of_trimmed.NextBytes());
      ASSERT_EQ(of_plain.IsAccepting(), of_trimmed.IsAccepting());
    }
  }
}

TEST(Matcher, RollbackIsTheSameAsAFreshStart) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const RandomGrammar random(seed);
    const Grammar grammar = BuildOrNull(random);
    if (grammar == nullptr) continue;
    std::mt19937 walk(seed);
    Matcher matcher(grammar);
    std::string text;
    for (int step = 0; step < 80; ++step) {
      std::string more;
      for (uint32_t i = 0, end = 1 + walk() % 3; i < end; ++i) more.push_back("abc"[walk() % 3]);
      if (matcher.Accept(more)) text += more;
      if (walk() % 4 == 0) {
        const size_t to = walk() % (text.size() + 1);
        matcher.RollbackTo(to);
        text.resize(to);
      }
      ASSERT_EQ(matcher.num_bytes(), text.size());
      Matcher fresh(grammar);
      ASSERT_TRUE(fresh.Accept(text));
      ASSERT_EQ(fresh.IsAccepting(), matcher.IsAccepting());
      ASSERT_EQ(fresh.NextBytes(), matcher.NextBytes());
    }
  }
}

// value = [ value , ... ] | { } | digits
Grammar NestedLists(uint32_t count_max = GrammarBuilder::kUnbounded) {
  GrammarBuilder builder;
  ExpressionSet& e = builder.expressions();
  const Symbol value = builder.Declare("value");
  const Symbol digits =
      builder.Terminal(e.Repeat(e.Bytes(ByteSet::Range('0', '9')), 1, GrammarBuilder::kUnbounded));
  const Symbol more = builder.Repeat(builder.Sequence({builder.Literal(","), value}), 0, count_max);
  builder.Define(value, {{digits}, {builder.Literal("["), value, more, builder.Literal("]")}});
  auto built = CompiledGrammar::Build(std::move(builder), value);
  EXPECT_TRUE(built.ok());
  return *built;
}

TEST(Matcher, NestingIsAsDeepAsTheText) {
  const Grammar grammar = NestedLists();
  const auto depth = ShortOrLong<size_t>(100'000, 400'000);
  const std::string text = std::string(depth, '[') + "1" + std::string(depth, ']');
  bool accepted = false;
  EXPECT_EQ(MatchText(*grammar, text, &accepted), text.size());
  EXPECT_TRUE(accepted);
  EXPECT_EQ(MatchText(*grammar, text + "]", &accepted), text.size());
  EXPECT_FALSE(accepted);
  MatchText(*grammar, text.substr(0, text.size() - 1), &accepted);
  EXPECT_FALSE(accepted);
}

TEST(Matcher, CountedRulesCount) {
  const Grammar grammar = NestedLists(9'999);
  const auto list = [](size_t count) {
    std::string text = "[1";
    for (size_t i = 1; i < count; ++i) text += ",2";
    return text + "]";
  };
  bool accepted = false;
  MatchText(*grammar, list(10'000), &accepted);
  EXPECT_TRUE(accepted);
  MatchText(*grammar, list(10'001), &accepted);
  EXPECT_FALSE(accepted);
}

// The number of distinct places must not grow with the length of a list, however it is written.
TEST(Matcher, ListsComeBackToTheSameStates) {
  enum Form { kLeft, kRight, kRepeat, kBlankBehind };
  for (const Form form : {kLeft, kRight, kRepeat, kBlankBehind}) {
    GrammarBuilder builder;
    const Symbol list = builder.Declare("list");
    const Symbol item = builder.Literal("ab,");
    const Symbol blank =
        builder.Terminal(builder.expressions().Repeat(builder.expressions().Literal(" "), 0, 3));
    const Symbol nested = builder.Choice(
        {item, builder.Sequence({builder.Literal("("), list, builder.Literal(")")})});
    if (form == kLeft) builder.Define(list, {{list, nested}, {nested}});
    if (form == kRight) builder.Define(list, {{nested, list}, {nested}});
    if (form == kRepeat) builder.Define(list, {{builder.Repeat(nested, 1, builder.kUnbounded)}});
    if (form == kBlankBehind) {
      const Symbol element = builder.Sequence({nested, blank});
      builder.Define(list, {{builder.Repeat(element, 1, builder.kUnbounded)}});
    }
    const auto grammar = *CompiledGrammar::Build(std::move(builder), list);
    const size_t nodes_before = grammar->machine().num_nodes();
    const size_t states_before = grammar->machine().num_states();
    std::string text;
    for (int i = 0; i < 1000; ++i) text += i % 5 == 3 ? "(ab,ab,)" : "ab,";
    Matcher matcher(grammar);
    ASSERT_TRUE(matcher.Accept(text));
    EXPECT_TRUE(matcher.IsAccepting());
    EXPECT_FALSE(matcher.Accept("b"));
    EXPECT_LT(grammar->machine().num_nodes(), nodes_before + 30) << form;
    EXPECT_LT(grammar->machine().num_states(), states_before + 60) << form;
  }
}

TEST(Matcher, WhatMustFollowIsKnown) {
  GrammarBuilder builder;
  const Symbol number = builder.Terminal(builder.expressions().Bytes(ByteSet::Range('0', '9')));
  const Symbol start =
      builder.Sequence({builder.Literal("{\"a\": "), number, builder.Literal("}")});
  Matcher matcher(*CompiledGrammar::Build(std::move(builder), start));
  EXPECT_EQ(matcher.ForcedBytes(), "{\"a\": ");
  EXPECT_EQ(matcher.ForcedBytes(3), "{\"a");
  ASSERT_TRUE(matcher.Accept("{\"a\": 7"));
  EXPECT_EQ(matcher.ForcedBytes(), "}");
  EXPECT_FALSE(matcher.MustEnd());
  ASSERT_TRUE(matcher.Accept("}"));
  EXPECT_TRUE(matcher.MustEnd());
  EXPECT_TRUE(matcher.IsAccepting());
  EXPECT_EQ(matcher.ForcedBytes(), "");
}

TEST(Matcher, GrammarsWithoutATextAreRefused) {
  GrammarBuilder endless;
  const Symbol rule = endless.Declare("endless");
  endless.Define(rule, {{endless.Literal("a"), rule}});
  const auto built = CompiledGrammar::Build(std::move(endless), rule);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().message(), "no text matches: its conditions exclude each other");

  GrammarBuilder excluded;
  ExpressionSet& e = excluded.expressions();
  const ExpressionId many_a = e.Repeat(e.Literal("a"), 1, GrammarBuilder::kUnbounded);
  const Symbol both = excluded.Terminal(e.And({many_a, e.Repeat(e.Literal("b"), 1, 5)}));
  EXPECT_FALSE(CompiledGrammar::Build(std::move(excluded), both).ok());
}

TEST(Matcher, IntersectionsHaveNoDeadEnds) {
  GrammarBuilder builder;
  ExpressionSet& e = builder.expressions();
  // (aa)* without b, and anything that ends in b or has 4 letters: only aaaa is left.
  const ExpressionId pairs = e.Repeat(e.Literal("aa"), 0, GrammarBuilder::kUnbounded);
  const ExpressionId letters = e.Repeat(e.Bytes(ByteSet::Range('a', 'b')), 4, 4);
  const Symbol start = builder.Terminal(e.And({pairs, letters}));
  Matcher matcher(*CompiledGrammar::Build(std::move(builder), start));
  EXPECT_EQ(matcher.ForcedBytes(), "aaaa");
}

// A long text passes more expressions than the limit, a few at a time.
TEST(Matcher, TheLimitOfExpressionsIsNotOneOfTexts) {
  GrammarLimits limits;
  limits.expressions.nodes_max = 30'000;
  limits.expressions.operands_max = 100'000;
  const auto grammar =
      CompileGrammar({GrammarKind::kRegularExpression, "((a{1,20}b?){1,20}){1,20}", {}}, limits);
  ASSERT_TRUE(grammar.ok());
  bool accepted = false;
  EXPECT_EQ(MatchText(**grammar, std::string(1500, 'a'), &accepted), 1500u);
  EXPECT_TRUE(accepted);
}

TEST(Matcher, AmbiguityBeyondTheLimitEndsTheText) {
  GrammarLimits limits;
  limits.state_items_max = 50;
  GrammarBuilder builder(limits);
  const Symbol s = builder.Declare("s");
  builder.Define(s, {{s, s}, {builder.Literal("a")}});
  const auto grammar = *CompiledGrammar::Build(std::move(builder), s);
  bool accepted = false;
  EXPECT_EQ(MatchText(*grammar, std::string(20, 'a'), &accepted), 20u);
  EXPECT_TRUE(accepted);
  EXPECT_LT(MatchText(*grammar, std::string(200, 'a'), &accepted), 60u);
  // The text could end there, but it is not said that it must.
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.IsAtLimit());
  matcher.AcceptPrefix(std::string(200, 'a'));
  EXPECT_TRUE(matcher.IsAccepting());
  EXPECT_TRUE(matcher.NextBytes().empty());
  EXPECT_TRUE(matcher.IsAtLimit());
  EXPECT_FALSE(matcher.MustEnd());
  Matcher whole(*CompileGrammar({GrammarKind::kChoice, "", {"a"}}));
  ASSERT_TRUE(whole.Accept("a"));
  EXPECT_TRUE(whole.MustEnd());
  EXPECT_FALSE(whole.IsAtLimit());
}

}  // namespace
}  // namespace minisgl
