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

}  // namespace
}  // namespace minisgl
