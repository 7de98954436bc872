// Matchers of one grammar in several threads, while its tables are rebuilt under them.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "json_grammar.h"
#include "minisgl/grammar/matcher.h"
#include "minisgl/grammar/token_masks.h"

namespace minisgl {
namespace {

TEST(GrammarThreads, MatchersOfOneGrammarDoNotDisturbEachOther) {
  GrammarLimits limits;
  limits.table_bytes_max = 1;
  limits.mask_cache_bytes_max = 500;
  const auto grammar = JsonGrammar(20, limits);
  const std::vector<std::string> tokens = {"{", "}", "\"", "a", "[[", "]", "1", ",", ":", " ", ""};
  const TokenMasks masks(tokens, std::vector<TokenId>{10});
  const std::string text = R"([{"a": [1, "b", [[]]], "c": "dd"}, 12])";
  std::vector<std::thread> threads;
  std::vector<int> failures(4, 0);
  for (uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(thread);
      Matcher matcher(grammar);
      std::vector<uint32_t> mask(masks.num_words());
      for (int round = 0; round < 60; ++round) {
        const size_t at = matcher.num_bytes();
        const size_t count = std::min<size_t>(1 + random() % 6, text.size() - at);
        failures[thread] += matcher.Accept(text.substr(at, count)) ? 0 : 1;
        if (thread % 2 == 0) {
          masks.Fill(matcher, mask);
        } else {
          MaskWork work(&masks, matcher);
          for (int64_t work_left = 5; !work.GoOn(&work_left, /*yields=*/true);) work_left = 5;
        }
        Matcher copy = matcher;
        failures[thread] += copy.NextBytes() == matcher.NextBytes() ? 0 : 1;
        failures[thread] += matcher.IsAccepting() == (matcher.num_bytes() == text.size()) ? 0 : 1;
        if (matcher.num_bytes() == text.size()) matcher.RollbackTo(random() % text.size());
      }
      bool accepted = false;
      MatchText(*grammar, text, &accepted);
      failures[thread] += accepted ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, (std::vector<int>(4, 0)));
}

// Several grammars within one bound: the caches of those that were used the longest time ago go,
// and the masks are the same, whoever drops them.
TEST(GrammarThreads, GrammarsTogetherStayWithinABound) {
  const size_t kBound = size_t{2} << 20;
  std::vector<std::string> tokens(60'000);
  std::mt19937 random(3);
  for (std::string& token : tokens) {
    for (uint32_t i = 0, end = 1 + random() % 3; i < end; ++i) {
      token.push_back("abcdefghij"[random() % 10]);
    }
  }
  const TokenMasks masks(tokens, {});
  GrammarLimits limits;
  limits.memory = std::make_shared<GrammarMemory>(kBound);
  std::vector<std::shared_ptr<const CompiledGrammar>> bounded, free;
  for (int i = 0; i < 8; ++i) {
    const std::string last = std::to_string(i + 1);
    const GrammarText text = {GrammarKind::kRegularExpression,
                              "([a-j]{0,2}[f-j]|[c-h]{2}|j[a-d]{" + last + "}){0,300}",
                              {}};
    bounded.push_back(CompileGrammar(text, limits).value());
    free.push_back(CompileGrammar(text).value());
  }
  std::vector<std::thread> threads;
  std::vector<int> failures(3, 0);
  for (uint32_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 dice(thread);
      std::vector<uint32_t> mask(masks.num_words()), right(masks.num_words());
      for (int round = 0; round < 20; ++round) {
        const size_t index = dice() % bounded.size();
        Matcher matcher(bounded[index]), other(free[index]);
        for (int step = 0; step < 80; ++step) {
          masks.Fill(matcher, mask);
          masks.Fill(other, right);
          failures[thread] += mask == right ? 0 : 1;
          const std::string letter(1, "abcdefghij"[dice() % 10]);
          failures[thread] += matcher.Accept(letter) == other.Accept(letter) ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, (std::vector<int>(3, 0)));
  EXPECT_GT(limits.memory->num_drops(), 0);
  EXPECT_LE(limits.memory->bytes(), 2 * kBound);
  bounded.clear();
  EXPECT_EQ(limits.memory->bytes(), 0u);
}

}  // namespace
}  // namespace minisgl
