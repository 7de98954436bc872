// The sampler: exact cases computed by hand, distributions against exact probabilities, random rows
// against the oracle, and rejected inputs.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "cpu/naive_sampler.h"
#include "cpu/sampler.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One row: its logits, and the tokens so far.
struct Row {
  std::vector<float> logits;
  std::vector<int32_t> prompt = {};
  std::vector<int32_t> answer = {};
  std::vector<uint32_t> mask = {};  // empty: none
};

RowResult SampleOne(const Row& row, const SamplingParams& sampling) {
  std::vector<float> logits = row.logits;
  std::vector<int32_t> history = row.prompt;
  history.insert(history.end(), row.answer.begin(), row.answer.end());
  RowResult result;
  Sampler sampler;
  sampler.SampleRow({.logits = logits.data(),
                     .vocab_size = static_cast<int64_t>(logits.size()),
                     .sampling = &sampling,
                     .history = history.data(),
                     .prompt_len = static_cast<int32_t>(row.prompt.size()),
                     .history_len = static_cast<int32_t>(history.size()),
                     .mask = row.mask.empty() ? nullptr : row.mask.data()},
                    &result);
  return result;
}

TokenId TokenOf(const Row& row, const SamplingParams& sampling) {
  const RowResult result = SampleOne(row, sampling);
  EXPECT_EQ(result.outcome, RowResult::Outcome::kToken);
  return result.token;
}

// Draws `count` tokens with seeds 0, 1, ... and compares their frequencies with `probabilities`: no
// token of probability 0, and chi-square within 5 standard deviations of its expectation. Seeds are
// fixed, so the outcome is too.
void ExpectDistribution(const std::vector<float>& logits, SamplingParams sampling,
                        const std::vector<double>& probabilities) {
  constexpr int kCount = 20000;
  std::vector<int> seen(logits.size(), 0);
  for (int i = 0; i < kCount; ++i) {
    sampling.seed = static_cast<uint64_t>(i);
    ++seen[TokenOf({.logits = logits}, sampling)];
  }
  double chi_square = 0;
  int degrees = -1;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double expected = probabilities[id] * kCount;
    if (expected == 0) {
      EXPECT_EQ(seen[id], 0) << "token " << id;
      continue;
    }
    chi_square += (seen[id] - expected) * (seen[id] - expected) / expected;
    ++degrees;
  }
  EXPECT_LT(chi_square, degrees + 5 * std::sqrt(2.0 * degrees + 1)) << degrees << " degrees";
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  const float largest = *std::max_element(logits.begin(), logits.end());
  for (float logit : logits) p.push_back(std::exp((logit - largest) / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

// `p` with all but `ids` removed.
std::vector<double> Keep(std::vector<double> p, const std::vector<int>& ids) {
  double sum = 0;
  for (int id : ids) sum += p[id];
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = std::find(ids.begin(), ids.end(), static_cast<int>(i)) == ids.end() ? 0 : p[i] / sum;
  }
  return p;
}

// Ranks: 3 (2.0), 1 (1.5), 5 (1.5), 0 (1.0), 2 (0.0), 4 (-1.0).
const std::vector<float> kLogits = {1.0f, 1.5f, 0.0f, 2.0f, -1.0f, 1.5f};

TEST(SamplerTest, GreedyTakesTheLowestOfEqualIds) {
  EXPECT_EQ(TokenOf({.logits = {1, 3, 2, 3, 3}}, {}), 1);
  EXPECT_EQ(TokenOf({.logits = {-kInf, -kInf, -3, -kInf}}, {}), 2);
  EXPECT_EQ(TokenOf({.logits = {7}}, {}), 0);
}

TEST(SamplerTest, TemperatureDistribution) {
  ExpectDistribution(kLogits, {.temperature = 1.0}, Softmax(kLogits, 1.0));
  ExpectDistribution(kLogits, {.temperature = 0.5}, Softmax(kLogits, 0.5));
  ExpectDistribution(kLogits, {.temperature = 1e30}, std::vector<double>(6, 1.0 / 6));
}

TEST(SamplerTest, TopKKeepsExactlyK) {
  const auto p = Softmax(kLogits, 1.0);
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_k = 1}, Keep(p, {3}));
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_k = 2}, Keep(p, {3, 1}));
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_k = 4}, Keep(p, {3, 1, 5, 0}));
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_k = 100}, p);
}

// Ranks come from logits: a temperature that makes all weights equal does not make ranks equal.
TEST(SamplerTest, TopKRanksByLogitAtAnyTemperature) {
  ExpectDistribution(kLogits, {.temperature = 1e300, .top_k = 2}, {0, 0.5, 0, 0.5, 0, 0});
}

TEST(SamplerTest, TopPKeepsTheFewestThatReachIt) {
  const auto p = Softmax(kLogits, 1.0);  // of 3, 1, 5, 0: 0.39, 0.24, 0.24, 0.08 or so
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_p = 1e-9}, Keep(p, {3}));
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_p = p[3] + 1e-6}, Keep(p, {3, 1}));
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_p = p[3] + p[1] + 1e-6},
                     Keep(p, {3, 1, 5}));
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_p = 1.0}, p);
}

// Top-p counts shares of the three tokens that top-k keeps.
TEST(SamplerTest, TopPIsAShareOfTheTopKWeight) {
  const auto p = Keep(Softmax(kLogits, 1.0), {3, 1, 5});
  ExpectDistribution(kLogits, {.temperature = 1.0, .top_k = 3, .top_p = p[3] + 1e-6},
                     Keep(p, {3, 1}));
}

TEST(SamplerTest, MinPKeepsAShareOfTheLargest) {
  const auto p = Softmax(kLogits, 1.0);
  ExpectDistribution(kLogits, {.temperature = 1.0, .min_p = std::exp(-0.75)}, Keep(p, {3, 1, 5}));
  ExpectDistribution(kLogits, {.temperature = 1.0, .min_p = 1.0}, Keep(p, {3}));
}

// A nucleus far larger than the first sorted piece, against a full sort.
TEST(SamplerTest, WideNucleusEqualsFullSort) {
  const int64_t vocab_size = 3000;
  const auto logits = RandomFloats(vocab_size, 5, 0.5);
  const auto p = Softmax(logits, 1.0);
  std::vector<int> ranked(vocab_size);
  std::iota(ranked.begin(), ranked.end(), 0);
  std::sort(ranked.begin(), ranked.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  for (double top_p : {0.02, 0.3, 0.9, 0.999}) {
    double sum = 0;
    size_t kept = 0;
    while (sum < top_p) sum += p[ranked[kept++]];
    std::vector<bool> allowed(vocab_size, false);
    for (size_t i = 0; i < kept; ++i) allowed[ranked[i]] = true;
    std::vector<bool> drawn(vocab_size, false);
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const TokenId token =
          TokenOf({.logits = logits}, {.temperature = 1.0, .top_p = top_p, .seed = seed});
      ASSERT_TRUE(allowed[token]) << "top_p " << top_p;
      drawn[token] = true;
    }
    // If the nucleus is small, every member is drawn, so it is not too small either.
    if (kept <= 50) {
      EXPECT_EQ(std::count(drawn.begin(), drawn.end(), true), static_cast<int>(kept));
    }
  }
}

TEST(SamplerTest, TinyTemperatureIsGreedy) {
  for (double temperature : {1e-10, 1e-300, 5e-324}) {
    EXPECT_EQ(TokenOf({.logits = {3e38f, -3e38f, 2.9e38f}}, {.temperature = temperature}), 0);
    EXPECT_EQ(TokenOf({.logits = kLogits}, {.temperature = temperature, .top_k = 3, .top_p = 0.5}),
              3);
  }
}

TEST(SamplerTest, TokenIsAFunctionOfSeedAndIndex) {
  const auto logits = RandomFloats(500, 6);
  SamplingParams sampling = {.temperature = 1.0, .seed = 11};
  std::vector<TokenId> tokens;
  std::vector<int32_t> answer;
  for (int i = 0; i < 20; ++i) {
    tokens.push_back(TokenOf({.logits = logits, .prompt = {1, 2}, .answer = answer}, sampling));
    // The draw does not depend on the prompt's length or on the answer's tokens.
    EXPECT_EQ(TokenOf({.logits = logits, .prompt = {9}, .answer = answer}, sampling),
              tokens.back());
    answer.push_back(i);
  }
  EXPECT_GT(std::set<TokenId>(tokens.begin(), tokens.end()).size(), 10u);
  sampling.seed = 12;
  EXPECT_NE(TokenOf({.logits = logits}, sampling), tokens[0]);
}

TEST(SamplerTest, LogitBiasAdds) {
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3}}, {.logit_bias = {{0, 2.5f}}}), 0);
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3}}, {.logit_bias = {{2, -100.0f}, {1, -100.0f}}}), 0);
  // A sum past the largest float becomes the largest float.
  EXPECT_EQ(
      TokenOf({.logits = {1, 3e38f, 3.1e38f}}, {.logit_bias = {{0, 3.40282347e38f}, {1, 3e38f}}}),
      0);
}

TEST(SamplerTest, RepetitionPenaltyCountsPromptAndAnswerOnce) {
  // 4 / 2 = 2 (seen in the prompt), 3 untouched.
  EXPECT_EQ(TokenOf({.logits = {4, 3, 1}, .prompt = {0, 0, 0}}, {.repetition_penalty = 2.0}), 1);
  EXPECT_EQ(TokenOf({.logits = {4, 1.5f, 1}, .prompt = {0, 0, 0}}, {.repetition_penalty = 2.0}), 0);
  EXPECT_EQ(TokenOf({.logits = {4, 3, 1}, .answer = {0}}, {.repetition_penalty = 2.0}), 1);
  // Negative logits are multiplied.
  EXPECT_EQ(TokenOf({.logits = {-1, -1.5f}, .prompt = {0}}, {.repetition_penalty = 2.0}), 1);
}

TEST(SamplerTest, PresenceAndFrequencyCountTheAnswerOnly) {
  EXPECT_EQ(TokenOf({.logits = {4, 3}, .prompt = {0, 0}}, {.presence_penalty = 2.0}), 0);
  EXPECT_EQ(TokenOf({.logits = {4, 3}, .answer = {0}}, {.presence_penalty = 2.0}), 1);
  EXPECT_EQ(TokenOf({.logits = {4, 3}, .answer = {0, 0, 0}}, {.presence_penalty = 0.9}), 0);
  EXPECT_EQ(TokenOf({.logits = {4, 3}, .prompt = {0}, .answer = {0}}, {.frequency_penalty = 0.6}),
            0);
  EXPECT_EQ(TokenOf({.logits = {4, 3}, .answer = {0, 0}}, {.frequency_penalty = 0.6}), 1);
}

// (4 / 2) - 0.5 - 2 * 0.25 = 1: repetition divides first, then the others subtract.
TEST(SamplerTest, PenaltiesApplyInOrder) {
  const SamplingParams sampling = {
      .repetition_penalty = 2.0, .presence_penalty = 0.5, .frequency_penalty = 0.25};
  EXPECT_EQ(TokenOf({.logits = {4, 1.01f}, .answer = {0, 0}}, sampling), 1);
  EXPECT_EQ(TokenOf({.logits = {4, 0.99f}, .answer = {0, 0}}, sampling), 0);
}

TEST(SamplerTest, MinTokensBansUntilReached) {
  const SamplingParams sampling = {.min_tokens = 2, .banned_until_min = {2, 1}};
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3}, .prompt = {0, 0, 0}}, sampling), 0);
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3}, .answer = {0}}, sampling), 0);
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3}, .answer = {0, 0}}, sampling), 2);
  // A ban outlasts any bias.
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3}},
                    {.logit_bias = {{2, 1000.0f}}, .min_tokens = 1, .banned_until_min = {2}}),
            1);
}

TEST(SamplerTest, AMaskLeavesOnlyItsTokens) {
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3, 2}, .mask = {0b0011}}, {}), 1);
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3, 2}, .mask = {0b1010}}, {}), 1);  // ties as without
  std::vector<float> logits(70, 1.0f);
  logits[33] = 0.5f;
  EXPECT_EQ(TokenOf({.logits = logits, .mask = {0, 0b10, 0}}, {}), 33);
  logits[69] = 9.0f;
  EXPECT_EQ(TokenOf({.logits = logits, .mask = {~0u, ~0u, 0b11111}}, {}), 0);
  // It outlasts any bias, and bans until min_tokens are its maker's.
  EXPECT_EQ(TokenOf({.logits = {1, 2, 3}, .mask = {0b011}}, {.logit_bias = {{2, 1000.0f}}}), 1);
  EXPECT_EQ(
      TokenOf({.logits = {1, 2, 3}, .mask = {0b010}}, {.min_tokens = 5, .banned_until_min = {1}}),
      1);
}

TEST(SamplerTest, AMaskWithoutATokenOrBesideABadLogitIsReported) {
  for (const double temperature : {0.0, 1.0}) {
    const SamplingParams sampling = {.temperature = temperature};
    for (const Row& row : std::vector<Row>{{.logits = {1, 2, 3}, .mask = {0}},
                                           {.logits = {1, -kInf, 3}, .mask = {0b010}},
                                           {.logits = {1, kNan, 3}, .mask = {0b101}},
                                           {.logits = {1, kInf, 3}, .mask = {0b101}}}) {
      EXPECT_EQ(SampleOne(row, sampling).outcome, RowResult::Outcome::kNonFinite);
    }
  }
}

// The scan covers every index of a row of several pieces, and the first of equal logits is chosen.
TEST(SamplerTest, FindsTheLargestOfManyWhereverItIs) {
  constexpr int64_t kVocab = 9001;
  const SamplingParams greedy = {.temperature = 0};
  for (const int64_t at : {0, 1, 127, 128, 4095, 4096, 5000, 8191, 8192, 8999, 9000}) {
    std::vector<float> logits(kVocab, -2.0f);
    logits[at] = -1.0f;
    EXPECT_EQ(TokenOf({.logits = logits}, greedy), at);
    std::fill(logits.begin() + at, logits.end(), -1.0f);
    EXPECT_EQ(TokenOf({.logits = logits}, greedy), at);
    logits[at] = kNan;
    EXPECT_EQ(SampleOne({.logits = logits}, greedy).outcome, RowResult::Outcome::kNonFinite) << at;
    logits[at] = kInf;
    EXPECT_EQ(SampleOne({.logits = logits}, greedy).outcome, RowResult::Outcome::kNonFinite) << at;
  }
}

TEST(SamplerTest, NonFiniteRowsAreReported) {
  for (double temperature : {0.0, 1.0}) {
    for (const auto& logits : std::vector<std::vector<float>>{
             {1, kNan, 2}, {1, kInf}, {-kInf, -kInf}, {kNan}, {kNan, 5}, {5, kNan}}) {
      const RowResult result =
          SampleOne({.logits = logits}, {.temperature = temperature, .num_logprobs = 2});
      EXPECT_EQ(result.outcome, RowResult::Outcome::kNonFinite);
      EXPECT_EQ(result.token, -1);
      EXPECT_TRUE(result.top_logprobs.empty());
    }
    EXPECT_EQ(SampleOne({.logits = {1, 2}},
                        {.temperature = temperature, .min_tokens = 1, .banned_until_min = {0, 1}})
                  .outcome,
              RowResult::Outcome::kNonFinite);
  }
}

TEST(SamplerTest, MinusInfinityIsNeverDrawn) {
  ExpectDistribution({0, -kInf, 0, -kInf}, {.temperature = 2.0}, {0.5, 0, 0.5, 0});
}

TEST(SamplerTest, LogprobsAreOfTheRawLogits) {
  auto logits = RandomFloats(300, 7, 3.0);
  logits[17] = logits[33] = 20.0f;
  logits[40] = -kInf;
  const auto p = Softmax(logits, 1.0);
  const RowResult result =
      SampleOne({.logits = logits, .prompt = {17}}, {.temperature = 0.3,
                                                     .repetition_penalty = 1.5,
                                                     .logit_bias = {{33, -50.0f}},
                                                     .num_logprobs = 4});
  ASSERT_EQ(result.outcome, RowResult::Outcome::kToken);
  EXPECT_NEAR(result.logprob, std::log(p[result.token]), 1e-6);
  std::vector<uint32_t> mask(10, 0);
  mask[40 / 32] = uint32_t{1} << 41 % 32;
  const RowResult masked = SampleOne({.logits = logits, .mask = mask}, {.num_logprobs = 4});
  EXPECT_EQ(masked.token, 41);
  EXPECT_NEAR(masked.logprob, std::log(p[41]), 1e-5);
  EXPECT_EQ(masked.top_logprobs[0].id, 17);
  ASSERT_EQ(result.top_logprobs.size(), 4u);
  EXPECT_EQ(result.top_logprobs[0].id, 17);  // equal: the lower id first
  EXPECT_EQ(result.top_logprobs[1].id, 33);
  for (size_t i = 0; i < 4; ++i) {
    const auto [id, logprob] = result.top_logprobs[i];
    EXPECT_NEAR(logprob, std::log(p[id]), 1e-6 * std::abs(std::log(p[id])) + 1e-7);
    if (i > 0) {
      EXPECT_LE(logprob, result.top_logprobs[i - 1].logprob);
    }
  }
}

// A given token has the log-probability that it has as a choice, whatever the parameters.
TEST(SamplerTest, AGivenTokenIsScoredByTheRawLogits) {
  std::vector<float> logits = {1, -2, 3, 0.5f, 3};
  SamplingParams sampling;
  sampling.num_logprobs = 2;
  sampling.temperature = 5;
  sampling.logit_bias = {{1, 50.0f}};
  RowResult result, oracle;
  for (TokenId id = 0; id < 5; ++id) {
    const SampleRowParams row = {.logits = logits.data(),
                                 .vocab_size = 5,
                                 .sampling = &sampling,
                                 .history = nullptr,
                                 .prompt_len = 0,
                                 .history_len = 0,
                                 .given = id};
    Sampler().SampleRow(row, &result);
    NaiveSampleRow(row, &oracle);
    EXPECT_EQ(result.outcome, RowResult::Outcome::kToken);
    EXPECT_EQ(result.token, id);
    EXPECT_NEAR(result.logprob, std::log(Softmax(logits, 1)[static_cast<size_t>(id)]), 1e-6);
    ASSERT_EQ(result.top_logprobs.size(), 2u);
    EXPECT_EQ(result.top_logprobs[0].id, 2);
    EXPECT_EQ(result.top_logprobs[1].id, 4);
    EXPECT_EQ(oracle.token, id);
    EXPECT_EQ(oracle.logprob, result.logprob);
  }
  const float broken[] = {kNan, kInf, -kInf};
  for (const float value : broken) {
    logits[1] = value;
    Sampler().SampleRow({.logits = logits.data(),
                         .vocab_size = 5,
                         .sampling = &sampling,
                         .history = nullptr,
                         .prompt_len = 0,
                         .history_len = 0,
                         .given = 1},
                        &result);
    EXPECT_EQ(result.outcome, RowResult::Outcome::kNonFinite) << value;
  }
}

TEST(SamplerTest, NumLogprobsIsHonoured) {
  EXPECT_EQ(SampleOne({.logits = {1, 2}}, {.num_logprobs = -1}).logprob, 0.0f);
  EXPECT_TRUE(SampleOne({.logits = {1, 2}}, {.num_logprobs = 0}).top_logprobs.empty());
  EXPECT_LT(SampleOne({.logits = {1, 2}}, {.num_logprobs = 0}).logprob, 0.0f);
  EXPECT_EQ(SampleOne({.logits = {1, 2}}, {.num_logprobs = 20}).top_logprobs.size(), 2u);
}

// Sampling parameters of every kind, from `seed`.
SamplingParams RandomSampling(uint64_t seed, int32_t vocab_size) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... values) {
    const double all[] = {static_cast<double>(values)...};
    return all[random() % std::size(all)];
  };
  const auto id = [&] {
    return static_cast<TokenId>(random() % static_cast<uint64_t>(vocab_size));
  };
  SamplingParams sampling = {.temperature = one_of(0, 0.3, 1, 5),
                             .top_k = static_cast<int32_t>(one_of(0, 1, 7, 90, 1000)),
                             .top_p = one_of(1, 1, 0.99, 0.6, 1e-3),
                             .min_p = one_of(0, 0, 0.02, 1),
                             .repetition_penalty = one_of(1, 1.3, 0.7),
                             .presence_penalty = one_of(0, 0.5, -0.5),
                             .frequency_penalty = one_of(0, 0.25, -0.25),
                             .seed = random(),
                             .num_logprobs = static_cast<int32_t>(one_of(-1, 0, 5, 1000)),
                             .min_tokens = static_cast<int32_t>(one_of(0, 20))};
  for (int i = static_cast<int>(one_of(0, 3)); i > 0; --i) {
    sampling.logit_bias.push_back({id(), static_cast<float>(one_of(-100, 2, 3e38))});
    sampling.banned_until_min.push_back(id());
  }
  return sampling;
}

TEST(SamplerTest, AgreesWithTheOracle) {
  constexpr int32_t kVocab = 400;
  Sampler sampler;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const SamplingParams sampling = RandomSampling(seed, kVocab);
    std::vector<float> logits = RandomFloats(kVocab, seed, 3.0);
    if (seed % 2 == 0) {  // many are equal
      for (float& logit : logits) logit = std::round(logit);
    }
    if (seed % 5 == 0) std::fill_n(logits.begin(), seed % 390, -kInf);
    std::mt19937_64 random(seed + 1);
    std::vector<int32_t> history(random() % 30);
    for (int32_t& id : history) id = static_cast<int32_t>(random() % kVocab);
    std::vector<float> actual_logits = logits, expected_logits = logits;
    SampleRowParams row = {.logits = actual_logits.data(),
                           .vocab_size = kVocab,
                           .sampling = &sampling,
                           .history = history.data(),
                           .prompt_len = static_cast<int32_t>(history.size() / 2),
                           .history_len = static_cast<int32_t>(history.size())};
    RowResult actual, expected;
    sampler.SampleRow(row, &actual);
    row.logits = expected_logits.data();
    NaiveSampleRow(row, &expected);
    ASSERT_EQ(actual.outcome, expected.outcome) << "seed " << seed;
    ASSERT_EQ(actual.token, expected.token) << "seed " << seed;
    ASSERT_EQ(actual.logprob, expected.logprob) << "seed " << seed;
    ASSERT_EQ(actual.top_logprobs.size(), expected.top_logprobs.size()) << "seed " << seed;
    for (size_t i = 0; i < actual.top_logprobs.size(); ++i) {
      ASSERT_EQ(actual.top_logprobs[i].id, expected.top_logprobs[i].id) << "seed " << seed;
      ASSERT_EQ(actual.top_logprobs[i].logprob, expected.top_logprobs[i].logprob);
    }
    ExpectSameBits(actual_logits, expected_logits, "logits");
  }
}

// Every row of a mixed batch has the result it has alone, from every implementation and number of
// threads.
TEST(SamplerTest, RowsDoNotDependOnBatchMatesOrThreads) {
  constexpr int64_t kRows = 24, kVocab = 700;
  const auto logits = RandomFloats(kRows * kVocab, 8, 2.0);
  std::vector<int32_t> history(40);
  for (size_t i = 0; i < history.size(); ++i) history[i] = static_cast<int32_t>(i * 13 % 50);
  std::vector<SamplingParams> sampling(kRows);
  std::vector<const SamplingParams*> pointers;
  for (int64_t i = 0; i < kRows; ++i) {
    sampling[i] = {.temperature = i % 4 * 0.5,
                   .top_k = static_cast<int32_t>(i % 3 * 20),
                   .top_p = i % 5 == 0 ? 1.0 : 0.8,
                   .min_p = i % 2 * 0.05,
                   .repetition_penalty = i % 3 == 0 ? 1.0 : 1.3,
                   .presence_penalty = i % 2 * 0.4,
                   .seed = static_cast<uint64_t>(i * i),
                   .num_logprobs = static_cast<int32_t>(i % 5) - 1};
    pointers.push_back(&sampling[i]);
  }
  const std::vector<const int32_t*> histories(kRows, history.data());
  std::vector<int32_t> prompt_len, history_len;
  for (int32_t i = 0; i < kRows; ++i) {
    prompt_len.push_back(i / 2);
    history_len.push_back(i);
  }
  std::vector<std::unique_ptr<Ops>> all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  all.push_back(MakeOps("", 4));
  for (const auto& ops : all) {
    std::vector<RowResult> results(kRows);
    auto batch = logits;
    ops->Sample({batch.data(), kRows, kVocab, pointers.data(), histories.data(), prompt_len.data(),
                 history_len.data(), results.data()});
    for (int64_t i = 0; i < kRows; ++i) {
      auto one = std::vector<float>(logits.begin() + i * kVocab, logits.begin() + (i + 1) * kVocab);
      RowResult alone;
      Sampler().SampleRow(
          {one.data(), kVocab, pointers[i], history.data(), prompt_len[i], history_len[i]}, &alone);
      EXPECT_EQ(results[i].token, alone.token) << ops->Name() << " row " << i;
      EXPECT_EQ(results[i].logprob, alone.logprob);
      ASSERT_EQ(results[i].top_logprobs.size(), alone.top_logprobs.size());
      for (size_t j = 0; j < alone.top_logprobs.size(); ++j) {
        EXPECT_EQ(results[i].top_logprobs[j].id, alone.top_logprobs[j].id);
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
