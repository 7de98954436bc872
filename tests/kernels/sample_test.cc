// The sampling kernels against Sampler: random rows and parameters, ties, extremes, and what must
// never happen.
#include "sample_check.h"

namespace minisgl::cuda {
namespace {

// Parameters drawn from what each field may be, neutral values among them.
SamplingParams RandomSampling(std::mt19937_64* random, int32_t vocab_size) {
  const auto pick = [random](const auto& values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>((*random)() % values.size()));
  };
  using Doubles = std::initializer_list<double>;
  SamplingParams sampling;
  sampling.temperature = pick(Doubles{0.0, 0.3, 0.7, 1.0, 1.0, 1.5, 4.0});
  sampling.top_k = pick(std::initializer_list<int32_t>{0, 0, 1, 2, 5, 20, 50, vocab_size - 1,
                                                       vocab_size, vocab_size + 5});
  sampling.top_p = pick(Doubles{1.0, 1.0, 1e-6, 0.3, 0.5, 0.9, 0.95, 0.999});
  sampling.min_p = pick(Doubles{0.0, 0.0, 0.01, 0.1, 0.5, 1.0});
  sampling.repetition_penalty = pick(Doubles{1.0, 1.0, 1.2, 0.7});
  sampling.presence_penalty = pick(Doubles{0.0, 0.0, 0.5, -0.3});
  sampling.frequency_penalty = pick(Doubles{0.0, 0.0, 0.2, -0.1});
  sampling.seed = (*random)();
  return sampling;
}

// A place of everything: a history with repeated tokens, bias, bans.
SampledPlace RandomPlace(uint64_t seed, int32_t vocab_size, double deviation) {
  std::mt19937_64 random(seed);
  SampledPlace place;
  place.logits = RandomFloats(vocab_size, seed, deviation);
  place.sampling = RandomSampling(&random, vocab_size);
  const auto id = [&] { return static_cast<int32_t>(random() % vocab_size); };
  for (uint64_t i = random() % 40; i > 0; --i) place.prompt.push_back(id());
  for (uint64_t i = random() % 40; i > 0; --i) {
    place.answer.push_back(i % 3 == 0 ? id() : id() % 7 % vocab_size);
  }
  if (random() % 3 == 0) {
    std::set<int32_t> biased;
    for (int i = 0; i < 5; ++i) biased.insert(id());
    for (int32_t token : biased) place.sampling.logit_bias.emplace_back(token, 0.5f * token - 3.0f);
  }
  if (random() % 3 == 0 && vocab_size > 4) {
    place.sampling.min_tokens = static_cast<int32_t>(random() % 40);
    place.sampling.banned_until_min = {id(), id(), 0};
  }
  return place;
}

class SampleSizesTest : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SampleSizesTest, testing::Values(1, 2, 31, 32, 33, 1000, 4099));

TEST_P(SampleSizesTest, RandomPlacesAreAsSampler) {
  const int32_t vocab_size = GetParam();
  std::vector<SampledPlace> places;
  for (uint64_t seed = 0; seed < 18; ++seed) {
    places.push_back(RandomPlace(seed + 100 * vocab_size, vocab_size, seed % 2 == 0 ? 1.0 : 3.0));
  }
  ExpectAsSampler(places, "V " + std::to_string(vocab_size));
}

// Logits of few values: ties at every cut, within and across tiles.
TEST_P(SampleSizesTest, TiesAreAsSampler) {
  const int32_t vocab_size = GetParam();
  std::vector<SampledPlace> places;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SampledPlace place = RandomPlace(seed + 31 * vocab_size, vocab_size, 1.0);
    // 0 of both signs among them: they are one value.
    const float step = seed % 3 == 0 ? 0.25f : 1.0f;
    for (float& logit : place.logits) logit = std::round(logit / step) * step;
    place.sampling.repetition_penalty = 1.0;
    place.sampling.presence_penalty = 0.5;
    places.push_back(place);
  }
  ExpectAsSampler(places, "ties, V " + std::to_string(vocab_size));
}

// All logits equal: a cut of k, or of a share, keeps the first ids.
TEST(SampleTest, EqualLogitsAreKeptByAscendingId) {
  for (int32_t vocab_size : {33, 1000, 4099}) {
    std::vector<SampledPlace> places;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SampledPlace place = {.logits = std::vector<float>(vocab_size, -2.5f)};
      place.sampling = {.temperature = 0.8, .top_k = 7, .seed = seed};
      places.push_back(place);
      place.sampling = {.temperature = 0.8, .top_p = 0.25, .seed = seed};
      places.push_back(place);
    }
    const auto results = ExpectAsSampler(places, "V " + std::to_string(vocab_size));
    for (size_t i = 0; i < results.size(); i += 2) EXPECT_LT(results[i].token.token, 7);
    for (size_t i = 1; i < results.size(); i += 2) {
      EXPECT_LE(results[i].token.token, vocab_size / 4);
    }
  }
}

// Flat rows: more candidates than shared memory holds, so that passes read the row.
TEST(SampleTest, NearlyFlatRowsAreAsSampler) {
  const int32_t vocab_size = 6000;
  std::vector<SamplingParams> all = {
      {.temperature = 1.0, .top_p = 0.9},
      {.temperature = 1.0, .top_k = 5000},
      {.temperature = 2.0, .min_p = 0.97},
      {.temperature = 1.0, .top_k = 4500, .top_p = 0.95},
      {.temperature = 1e30, .top_k = 300, .top_p = 0.5},
      {.temperature = 1e30, .top_p = 0.999, .min_p = 0.5},
  };
  std::vector<SampledPlace> places;
  for (size_t i = 0; i < 4 * all.size(); ++i) {
    SampledPlace place = {.logits = RandomFloats(vocab_size, i, 0.01),
                          .sampling = all[i % all.size()]};
    place.sampling.seed = i;
    for (float& logit : place.logits) {
      if (i / all.size() == 1) logit = std::round(logit * 100) / 100;  // ties
      if (i / all.size() == 2) logit += 7.0f;                          // of one sign
      if (i / all.size() == 3) logit = logit * 1e30f * 1e10f;          // as wide as floats are
      logit = std::clamp(logit, -3.4e38f, 3.4e38f);
    }
    if (i / all.size() == 3) place.sampling.temperature = 1e38;
    places.push_back(place);
  }
  ExpectAsSampler(places, "flat");
}

TEST(SampleTest, ExtremesAreAsSampler) {
  const int32_t vocab_size = 600;
  std::vector<SampledPlace> places;
  uint64_t seed = 0;
  for (double temperature : {1e-40, 1e-30, 1e-6, 0.01, 100.0, 1e30, 3e38}) {
    for (int32_t top_k : {0, 3, vocab_size}) {
      for (double top_p : {1.0, 1e-30, 0.6}) {
        SampledPlace place = {.logits = RandomFloats(vocab_size, ++seed, 2.0)};
        place.sampling = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed};
        if (seed % 4 == 0) place.sampling.min_p = 1.0;
        if (seed % 5 == 0) place.logits[7] = place.logits[500] = 3e38f;
        if (seed % 7 == 0) place.logits[8] = -kInf;
        if (seed % 3 == 0) place.logits[9] = -3.4e38f;
        places.push_back(place);
      }
    }
  }
  ExpectAsSampler(places, "extremes");
}

TEST(SampleTest, GreedyTakesTheLowestOfEqualIds) {
  std::vector<float> late(4099, 1.0f);
  late[4098] = late[3000] = late[2999] = 2.0f;
  EXPECT_EQ(RunSample({{.logits = late}})[0].token.token, 2999);
  EXPECT_EQ(RunSample({{.logits = {1, 3, 2, 3, 3}}})[0].token.token, 1);
  EXPECT_EQ(RunSample({{.logits = {-kInf, -3, -kInf}}})[0].token.token, 1);
  EXPECT_EQ(RunSample({{.logits = {-0.0f, 0.0f}}})[0].token.token, 0);
  EXPECT_EQ(RunSample({{.logits = {7}}})[0].token.token, 0);
}

TEST(SampleTest, NonFiniteRowsAreReported) {
  std::vector<SampledPlace> places;
  for (double temperature : {0.0, 1.0}) {
    for (const auto& logits : std::vector<std::vector<float>>{
             {1, kNan, 2}, {1, 2, kInf}, {-kInf, -kInf, -kInf}, {kNan, 5, 1}, {5, 1, -kNan}}) {
      places.push_back({.logits = logits, .sampling = {.temperature = temperature}});
      // Bias, penalties and bans do not hide what a raw logit was.
      places.push_back({.logits = logits,
                        .answer = {0, 1, 2},
                        .sampling = {.temperature = temperature,
                                     .repetition_penalty = 2.0,
                                     .logit_bias = {{0, -1.0f}, {1, -100.0f}, {2, 3.0f}},
                                     .num_logprobs = 2,
                                     .min_tokens = 9,
                                     .banned_until_min = {1}}});
    }
    places.push_back({.logits = {1, 2, 3},
                      .sampling = {.temperature = temperature,
                                   .num_logprobs = 1,
                                   .min_tokens = 1,
                                   .banned_until_min = {0, 1, 2}}});
  }
  const auto results = RunSample(places);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].token.token, -1) << i;
    EXPECT_EQ(results[i].token.outcome, static_cast<int32_t>(RowResult::Outcome::kNonFinite)) << i;
    EXPECT_EQ(results[i].token.num_ranks, 0) << i;
  }
}

// The same where another block finds it.
TEST(SampleTest, NonFiniteInAnyTile) {
  for (float bad : {kNan, kInf}) {
    for (int at : {0, 255, 256, 4000, 4098}) {
      SampledPlace place = {.logits = std::vector<float>(4099, 1.0f)};
      place.logits[at] = bad;
      EXPECT_EQ(RunSample({place})[0].token.token, -1) << bad << " at " << at;
    }
  }
}

TEST(SampleTest, BansOfAllButOne) {
  SampledPlace place = {.logits = {5, 4, 3, 2, 1}};
  place.sampling = {.min_tokens = 1, .banned_until_min = {0, 1, 2, 4}};
  std::vector<SampledPlace> places(4, place);
  places[1].sampling.temperature = 1.0;
  places[2].sampling.temperature = 1.0;
  places[2].sampling.top_p = 0.5;
  places[3].sampling.logit_bias = {{0, 1000.0f}, {3, -1000.0f}};
  for (const SampledResult& result : RunSample(places)) EXPECT_EQ(result.token.token, 3);
}

TEST(SampleTest, ChangesBeyondFloatStayFinite) {
  std::vector<SampledPlace> places;
  for (double temperature : {0.0, 1.0}) {
    places.push_back({.logits = {1, 3e38f, 3.1e38f, -3e38f},
                      .sampling = {.temperature = temperature,
                                   .logit_bias = {{0, 3.4028234e38f}, {1, 3e38f}, {3, -3e38f}}}});
    places.push_back({.logits = {3e38f, -3e38f, 1, -kInf},
                      .answer = {0, 1, 1, 3},
                      .sampling = {.temperature = temperature,
                                   .repetition_penalty = 0.01,
                                   .presence_penalty = -2.0,
                                   .frequency_penalty = 1e38}});
    places.push_back({.logits = {-3e38f, -3e38f, -3.1e38f, -kInf},
                      .answer = {0, 1, 2, 3},
                      .sampling = {.temperature = temperature, .repetition_penalty = 100.0}});
  }
  ExpectAsSampler(places, "beyond float");
}

// A bias named twice is added twice, in order.
TEST(SampleTest, BiasNamedTwice) {
  ExpectAsSampler({{.logits = {1, 2, 3},
                    .sampling = {.logit_bias = {{0, 3e38f}, {1, 1.0f}, {0, 3e38f}, {0, -3e38f}}}}},
                  "bias");
}

// Sampler's own order of penalties, over a history longer than the block.
TEST(SampleTest, LongHistoriesAreAsSampler) {
  std::vector<SampledPlace> places;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SampledPlace place = RandomPlace(seed, 4099, 2.0);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 1200; ++i) place.prompt.push_back(static_cast<int32_t>(random() % 4099));
    for (int i = 0; i < 700; ++i) place.answer.push_back(static_cast<int32_t>(random() % 300));
    place.sampling.repetition_penalty = 1.3;
    place.sampling.presence_penalty = 0.2;
    place.sampling.frequency_penalty = 0.7;
    places.push_back(place);
  }
  ExpectAsSampler(places, "long histories");
}

TEST(SampleTest, RefusesRowsItHasNoRoomFor) {
  emulator::EmulatedCudaApi api;
  LaunchContext context;
  context.api = &api;
  EXPECT_EQ(LaunchSample(context, {.num_places = 1, .vocab_size = 0}), kCudaInvalidValue);
  EXPECT_EQ(LaunchSample(context, {.num_places = 1, .vocab_size = 1 << 20}), kCudaInvalidValue);
  EXPECT_EQ(LaunchSample(context, {.num_places = 0, .vocab_size = 5000}), kCudaSuccess);
  EXPECT_EQ(api.num_calls("LaunchKernel"), 0);
}

}  // namespace
}  // namespace minisgl::cuda
