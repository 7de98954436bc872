// The sampling kernels: log-probabilities, distributions, large rows, drafts, and results that
// depend on their place only.
#include "sample_check.h"

namespace minisgl::cuda {
namespace {

void ExpectLogprobs(const SampledPlace& place, const SampledResult& actual,
                    const std::string& what) {
  const RowResult expected = SampleOnHost(place).row;
  ASSERT_EQ(actual.token.token, expected.token) << what;
  // Log of a sum rounded to f32, and the result's own rounding.
  const auto bound = [](float logprob) { return 4e-7 + std::abs(logprob) * 2e-7; };
  EXPECT_NEAR(actual.token.logprob, expected.logprob, bound(expected.logprob)) << what;
  ASSERT_EQ(actual.token.num_ranks, static_cast<int32_t>(expected.top_logprobs.size())) << what;
  for (size_t i = 0; i < actual.top_logprobs.size(); ++i) {
    const auto [id, logprob] = actual.top_logprobs[i];
    if (i >= expected.top_logprobs.size()) {
      EXPECT_EQ(id, kUnsetLogprob.id) << what << " rank " << i;
      continue;
    }
    EXPECT_EQ(id, expected.top_logprobs[i].id) << what << " rank " << i;
    const float right = expected.top_logprobs[i].logprob;
    if (std::isinf(right)) {
      EXPECT_EQ(logprob, right) << what << " rank " << i;
    } else {
      EXPECT_NEAR(logprob, right, bound(right)) << what << " rank " << i;
    }
  }
}

TEST(SampleLogprobsTest, AreOfTheRawLogits) {
  for (int32_t vocab_size : {1, 2, 33, 700, 4099}) {
    std::vector<SampledPlace> places;
    for (int i = 0; i < 12; ++i) {
      SampledPlace place = {.logits = RandomFloats(vocab_size, 50 + i, 3.0)};
      place.prompt = {0, vocab_size / 2, vocab_size - 1};
      place.sampling = {.temperature = i % 3 * 0.5,
                        .top_k = i % 4 == 0 ? 5 : 0,
                        .repetition_penalty = i % 2 == 0 ? 1.0 : 1.5,
                        .seed = static_cast<uint64_t>(i),
                        .num_logprobs = i % 5 == 4 ? 20 : i - 1};
      if (i >= 6) {
        for (float& logit : place.logits) logit = std::round(logit);  // ties
      }
      if (i == 7 && vocab_size > 2) {
        std::fill(place.logits.begin() + 3, place.logits.end(), -kInf);
      }
      if (i % 4 == 1) place.sampling.logit_bias = {{vocab_size - 1, 50.0f}};  // chooses it
      places.push_back(place);
    }
    const auto results = ExpectAsSampler(places, "V " + std::to_string(vocab_size));
    for (size_t i = 0; i < places.size(); ++i) {
      ExpectLogprobs(places[i], results[i],
                     "V " + std::to_string(vocab_size) + " place " + std::to_string(i));
    }
  }
}

// Masks of every density, beside places without one; some with penalties, and some with
// log-probabilities, which stay those of the raw logits.
TEST(SampleMaskTest, LeavesOnlyItsTokens) {
  for (const int32_t vocab_size : {1, 31, 700, 4099}) {
    std::vector<SampledPlace> places;
    for (int i = 0; i < 16; ++i) {
      SampledPlace place = {.logits = RandomFloats(vocab_size, 90 + i, 3.0)};
      place.prompt = {0, vocab_size - 1};
      place.sampling = {.temperature = i % 3 * 0.6,
                        .top_k = i % 5 == 0 ? 4 : 0,
                        .top_p = i % 7 == 3 ? 0.8 : 1.0,
                        .repetition_penalty = i % 4 == 0 ? 1.0 : 1.3,
                        .seed = static_cast<uint64_t>(i),
                        .num_logprobs = i % 2 == 0 ? 3 : -1};
      if (i % 6 == 5) place.sampling.min_tokens = 9, place.sampling.banned_until_min = {0};
      if (i % 4 != 3) {
        place.mask.assign(static_cast<size_t>((vocab_size + 31) / 32), 0);
        const int32_t step = i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : 157;
        for (int32_t id = i % 3 == 2 ? vocab_size / 2 : 0; id < vocab_size; id += step) {
          if (step == 1 && id % 300 == 7) continue;
          place.mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
        }
      }
      places.push_back(place);
    }
    const auto results = ExpectAsSampler(places, "V " + std::to_string(vocab_size));
    for (size_t i = 0; i < places.size(); ++i) {
      const std::string what = "V " + std::to_string(vocab_size) + " place " + std::to_string(i);
      const SampledPlace& place = places[i];
      if (place.sampling.num_logprobs >= 0) ExpectLogprobs(place, results[i], what);
      if (place.mask.empty()) continue;
      const int32_t token = results[i].token.token;
      ASSERT_GE(token, 0) << what;
      EXPECT_NE(place.mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1, 0u) << what;
    }
  }
}

TEST(SampleMaskTest, WithoutATokenIsReported) {
  std::vector<SampledPlace> places(3);
  for (SampledPlace& place : places) place.logits = RandomFloats(700, 3, 1.0);
  places[0].mask.assign(22, 0);
  places[2].mask.assign(22, 0);
  places[2].mask[20] = 1;
  places[2].logits[5] = kNan;  // outside the mask
  const auto results = ExpectAsSampler(places, "an empty mask");
  EXPECT_EQ(results[0].token.outcome, static_cast<int32_t>(RowResult::Outcome::kNonFinite));
  EXPECT_EQ(results[1].token.outcome, static_cast<int32_t>(RowResult::Outcome::kToken));
  EXPECT_EQ(results[2].token.outcome, static_cast<int32_t>(RowResult::Outcome::kNonFinite));
}

// How the engine scores a given token (engine/device_places.h): a bias beyond all logits makes it
// the choice, and its log-probability is bit for bit that of the same choice without a bias. A
// token of -infinity is not chosen.
TEST(SampleLogprobsTest, ABiasBeyondAllLogitsScoresItsToken) {
  constexpr float kBias = std::numeric_limits<float>::max();
  for (const int32_t vocab_size : {2, 97, 700, 4099, 40000}) {
    std::vector<SampledPlace> places;
    for (const int32_t given : {0, vocab_size / 2, vocab_size - 1}) {
      for (const float scale : {3.0f, 1e-3f, 1e30f}) {
        SampledPlace place = {.logits = RandomFloats(vocab_size, 90 + given % 7, scale)};
        place.prompt = {0};
        place.logits[given == 0 ? 1 : 0] = -kInf;
        place.sampling = {.logit_bias = {{given, kBias}}, .num_logprobs = given % 4};
        places.push_back(place);
      }
    }
    auto results = ExpectAsSampler(places, "V " + std::to_string(vocab_size));
    for (size_t i = 0; i < places.size(); ++i) {
      const TokenId given = places[i].sampling.logit_bias[0].first;
      EXPECT_EQ(results[i].token.token, given);
      ExpectLogprobs(places[i], results[i],
                     "V " + std::to_string(vocab_size) + " place " + std::to_string(i));
      // The same row, in which the token is the likeliest already.
      SampledPlace& place = places[i];
      *std::max_element(place.logits.begin(), place.logits.end()) = place.logits[given];
      const float largest = *std::max_element(place.logits.begin(), place.logits.end());
      place.logits[given] = largest;
      for (int32_t id = 0; id < given; ++id) {  // ties go to the lowest id
        if (place.logits[id] == largest) place.logits[id] = -kInf;
      }
    }
    const auto biased = RunSample(places);
    for (SampledPlace& place : places) place.sampling.logit_bias.clear();
    const auto chosen = RunSample(places);
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(biased[i].token.token, chosen[i].token.token);
      EXPECT_EQ(biased[i].token.logprob, chosen[i].token.logprob);
    }
    // The logit may be -infinity.
    for (SampledPlace& place : places) {
      const TokenId given = chosen[static_cast<size_t>(&place - places.data())].token.token;
      place.sampling.logit_bias = {{given, kBias}};
      place.logits[given] = -kInf;
    }
    const auto none = RunSample(places);
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_NE(none[i].token.token, chosen[i].token.token);
    }
  }
}

// Rows of many tiles, peaked as a model's are: the cut is found from the summaries.
TEST(SampleLargeRowTest, IsAsSampler) {
  const int32_t vocab_size = 40000;
  std::vector<SampledPlace> places;
  for (int i = 0; i < 14; ++i) {
    SampledPlace place = {.logits = RandomFloats(vocab_size, 70 + i, i % 2 == 0 ? 3.0 : 1.8)};
    if (i % 3 == 0) {
      for (float& logit : place.logits) logit = std::round(logit * 8) / 8;
    }
    for (int peak = 0; peak < i % 4; ++peak) place.logits[peak * 9999 + 77] = 13.0f - peak;
    place.sampling = {.temperature = i % 5 == 4 ? 0.6 : 1.0, .seed = static_cast<uint64_t>(i)};
    if (i % 7 == 1) place.sampling.top_k = 20;
    if (i % 7 == 2) place.sampling.top_k = 300;
    if (i % 7 != 1 && i % 7 != 3) place.sampling.top_p = i % 2 == 0 ? 0.9 : 0.95;
    if (i % 7 == 4) place.sampling.min_p = 0.02;
    if (i % 7 == 5) place.sampling = {.temperature = 0.8, .min_p = 0.05, .seed = 5};
    places.push_back(place);
  }
  ExpectAsSampler(places, "large rows");
}

// A vocabulary as large as models have, where each thread has several tiles.
TEST(SampleLargeRowTest, OfMoreTilesThanThreads) {
  const int32_t vocab_size = 262144;
  std::vector<float> logits = RandomFloats(vocab_size, 9, 1.5);
  // Equal and largest, in tiles that are summarised by one thread.
  for (int tile : {3, 515, 600}) logits[tile * 256 + 99] = 11.0f;
  std::vector<SampledPlace> places;
  for (const SamplingParams& sampling :
       std::vector<SamplingParams>{{},
                                   {.temperature = 1.0},
                                   {.temperature = 0.9, .top_k = 40, .top_p = 0.99},
                                   {.temperature = 0.5, .top_p = 0.9, .num_logprobs = 5}}) {
    places.push_back({.logits = logits, .sampling = sampling});
    places.back().sampling.seed = places.size();
  }
  const auto results = ExpectAsSampler(places, "large vocabulary");
  EXPECT_EQ(results[0].token.token, 3 * 256 + 99);
  ExpectLogprobs(places[3], results[3], "large vocabulary");
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  const float largest = *std::max_element(logits.begin(), logits.end());
  for (float logit : logits) p.push_back(std::exp((logit - largest) / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

// Chi-square within 5 standard deviations of what chance gives; no token of probability 0. Seeds
// are fixed, so is the outcome.
void ExpectDistribution(const std::vector<float>& logits, SamplingParams sampling,
                        const std::vector<double>& probabilities) {
  constexpr int kDraws = 60;
  std::vector<SampledPlace> places;
  for (int i = 0; i < kDraws; ++i) {
    sampling.seed = static_cast<uint64_t>(i);
    places.push_back({.logits = logits, .sampling = sampling});
  }
  std::vector<int> seen(logits.size(), 0);
  for (const SampledResult& result : RunSample(places)) ++seen[result.token.token];
  double chi_square = 0;
  int degrees = -1;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double expected = probabilities[id] * kDraws;
    if (expected == 0) {
      EXPECT_EQ(seen[id], 0) << "token " << id;
      continue;
    }
    chi_square += (seen[id] - expected) * (seen[id] - expected) / expected;
    ++degrees;
  }
  EXPECT_LT(chi_square, degrees + 5 * std::sqrt(2.0 * degrees + 1)) << degrees << " degrees";
}

TEST(SampleDistributionTest, IsThatOfTheWeights) {
  const std::vector<float> logits = {1.0f, 1.5f, 0.0f, 2.0f, -1.0f, 1.5f};
  ExpectDistribution(logits, {.temperature = 1.0}, Softmax(logits, 1.0));
  std::vector<double> p = Softmax(logits, 2.0);
  p[2] = p[4] = 0;
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  ExpectDistribution(logits, {.temperature = 2.0, .top_k = 4}, p);
}

std::vector<SampledPlace> PlacesOfAllKinds() {
  const int32_t vocab_size = 4400;  // of whole vectors; more tiles than a block has warps
  std::vector<SampledPlace> places;
  for (int i = 0; i < 10; ++i) {
    SampledPlace place = {.logits = RandomFloats(vocab_size, 90 + i, 2.0)};
    for (int j = 0; j < 300; ++j) place.prompt.push_back(j * j % 97);
    for (int j = 0; j < 40; ++j) place.answer.push_back(j * 17 % 31);
    if (i % 2 == 0) {
      for (float& logit : place.logits) logit = std::round(logit * 4) / 4;
    }
    place.sampling = {.temperature = i == 3 ? 0.0 : 1.0, .seed = static_cast<uint64_t>(i)};
    if (i % 3 == 1) place.sampling.top_k = 40;
    if (i % 3 == 2 || i == 7) place.sampling.top_p = 0.9;
    if (i % 4 == 1) place.sampling.min_p = 0.05;
    if (i > 4) {
      place.sampling.repetition_penalty = 1.2;
      place.sampling.frequency_penalty = 0.1;
      place.sampling.logit_bias = {{5, 1.0f}, {3000, 2.0f}};
    }
    if (i % 2 == 1) place.sampling.num_logprobs = i;
    if (i == 9) place.sampling = {.temperature = 1e30, .top_p = 0.999, .seed = 1};
    places.push_back(place);
  }
  return places;
}

void ExpectSameResults(const std::vector<SampledResult>& a, const std::vector<SampledResult>& b,
                       const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string name = what + " place " + std::to_string(i);
    ExpectSameBytes(&a[i].token, &b[i].token, sizeof(DeviceToken), name);
    ExpectSameBytes(a[i].top_logprobs.data(), b[i].top_logprobs.data(),
                    a[i].token.num_ranks * sizeof(TokenLogprob), name + ": ranks");
    ExpectSameBytes(a[i].logits.data(), b[i].logits.data(), a[i].logits.size() * sizeof(float),
                    name + ": logits");
  }
}

TEST(SampleIndependenceTest, OfTheOrderOfThreads) {
  const std::vector<SampledPlace> places = PlacesOfAllKinds();
  const std::vector<SampledResult> expected = ExpectAsSampler(places, "all kinds");
  emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
    ExpectSameResults(RunSample(places), expected, "order " + std::to_string(order));
  });
}

// However many blocks a place is given, and whatever stands beside it.
TEST(SampleIndependenceTest, OfBatchMatesAndTheDevice) {
  const std::vector<SampledPlace> places = PlacesOfAllKinds();
  const std::vector<SampledResult> expected = RunSample(places);
  std::vector<float> logits;
  for (const SampledPlace& place : places) {
    logits.insert(logits.end(), place.logits.begin(), place.logits.end());
  }
  for (int num_multiprocessors : {1, 132}) {
    ExpectSameResults(RunSampleArrays(StepArrays(places), logits, 4400, num_multiprocessors),
                      expected, std::to_string(num_multiprocessors) + " multiprocessors");
  }
  for (size_t i = 0; i < places.size(); ++i) {
    ExpectSameResults(RunSample({places[i]}), {expected[i]}, "alone, " + std::to_string(i));
  }
}

// Places of one row share its tokens and differ in how many of them they see.
TEST(SampleDraftsTest, PlacesOfOneRow) {
  const int32_t vocab_size = 500;
  std::vector<SampledPlace> places;
  std::vector<float> logits;
  for (int i = 0; i < 4; ++i) {
    SampledPlace place = {.logits = RandomFloats(vocab_size, 200, 1.0)};  // the same row each time
    place.prompt = {4, 4, 9};
    for (int32_t token = 0; token < 20 + i; ++token) place.answer.push_back(token * 7 % vocab_size);
    place.sampling = {.temperature = 1.0,
                      .repetition_penalty = 1.4,
                      .presence_penalty = 0.6,
                      .frequency_penalty = 0.3,
                      .seed = 3};
    logits.insert(logits.end(), place.logits.begin(), place.logits.end());
    places.push_back(place);
  }
  StepArrays step(places);
  const int32_t longest = step.places.back().table_row;
  for (DeviceSampling& place : step.places) place.table_row = longest;
  const auto results = RunSampleArrays(step, logits, vocab_size);
  std::set<int32_t> tokens;
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(ComparePlace(places[i], results[i], "place " + std::to_string(i)), 0);
    tokens.insert(results[i].token.token);
  }
  EXPECT_GT(tokens.size(), 1u);  // the draw's index moves on
}

}  // namespace
}  // namespace minisgl::cuda
