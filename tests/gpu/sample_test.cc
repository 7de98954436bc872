// Sampling on the device against Sampler (src/cpu/sampler.h): every field of the parameters, at
// vocabularies up to 151,936.
#include "gpu/gpu_fixture.h"
#include "kernels/sample_check.h"

namespace minisgl::cuda {
namespace {

class GpuSampleTest : public GpuTest {
 protected:
  static std::vector<SampledResult> Run(const std::vector<SampledPlace>& places);
  static void ExpectAsSampler(const std::vector<SampledPlace>& places, const std::string& what);

  static std::vector<int32_t> VocabSizes() {
    if (IsSlow()) return {33, 1000};
    return {1, 33, 1000, 32000, 151936};
  }
  static int NumPlaces() { return IsSlow() ? 12 : 64; }
};

// Runs twice; counts must be zero again after each run.
std::vector<SampledResult> GpuSampleTest::Run(const std::vector<SampledPlace>& places) {
  const StepArrays step(places);
  const auto vocab_size = static_cast<int64_t>(places[0].logits.size());
  std::vector<float> logits;
  for (const SampledPlace& place : places) {
    logits.insert(logits.end(), place.logits.begin(), place.logits.end());
  }
  const auto owner = Make();
  DeviceOps* const ops = owner.get();
  GpuArray device_logits(ops, logits), counts(ops, std::vector<uint32_t>(logits.size(), 0));
  const GpuArray raw_logits(ops, logits.size() * sizeof(float));
  GpuArray sampled(ops, places.size() * sizeof(DeviceToken));
  const size_t num_ranks = places.size() * static_cast<size_t>(step.max_logprobs);
  const GpuArray top_logprobs(ops, std::vector<TokenLogprob>(num_ranks, kUnsetLogprob));
  const GpuArray device_places(ops, step.places), token_pool(ops, step.token_pool);
  const GpuArray bias_ids(ops, step.bias_ids), bias_values(ops, step.bias_values);
  const GpuArray banned_ids(ops, step.banned_ids);
  RunTwice(&sampled, "sampling", [&] {
    device_logits.Set(logits);
    ops->SamplePlaces({.logits = device_logits.f32(),
                       .num_places = static_cast<int32_t>(places.size()),
                       .vocab_size = vocab_size,
                       .places = device_places.as<DeviceSampling>(),
                       .token_pool = token_pool.i32(),
                       .token_pool_stride = step.token_pool_stride,
                       .bias_ids = bias_ids.i32(),
                       .bias_values = bias_values.f32(),
                       .banned_ids = banned_ids.i32(),
                       .counts = counts.as<uint32_t>(),
                       .raw_logits = raw_logits.f32(),
                       .max_logprobs = step.max_logprobs,
                       .sampled = sampled.as<DeviceToken>(),
                       .top_logprobs = top_logprobs.as<TokenLogprob>()});
    const auto left = counts.Read<uint32_t>();
    EXPECT_EQ(std::count(left.begin(), left.end(), 0u), std::ssize(left));
  });
  raw_logits.Bytes();  // its guards
  const auto tokens = sampled.Read<DeviceToken>();
  const auto left = device_logits.Read<float>();
  const auto ranks = top_logprobs.Read<TokenLogprob>();
  std::vector<SampledResult> results(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto row = left.begin() + static_cast<int64_t>(i) * vocab_size;
    const auto first = ranks.begin() + static_cast<int64_t>(i) * step.max_logprobs;
    results[i] = {tokens[i], {first, first + step.max_logprobs}, {row, row + vocab_size}};
  }
  return results;
}

// One place may differ, and one more for each hundred, if rounding moves the border between tokens.
void GpuSampleTest::ExpectAsSampler(const std::vector<SampledPlace>& places,
                                    const std::string& what) {
  const std::vector<SampledResult> results = Run(places);
  int num_different = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string name = what + " place " + std::to_string(i);
    num_different += ComparePlace(places[i], results[i], name);
    if (places[i].sampling.num_logprobs < 0) continue;
    const RowResult expected = SampleOnHost(places[i]).row;
    const auto bound = [](float logprob) { return 1e-6 + std::abs(logprob) * 1e-6; };
    if (results[i].token.token == expected.token) {
      EXPECT_NEAR(results[i].token.logprob, expected.logprob, bound(expected.logprob)) << name;
    }
    ASSERT_EQ(results[i].token.num_ranks, std::ssize(expected.top_logprobs)) << name;
    for (size_t rank = 0; rank < expected.top_logprobs.size(); ++rank) {
      const TokenLogprob actual = results[i].top_logprobs[rank];
      const TokenLogprob wanted = expected.top_logprobs[rank];
      EXPECT_EQ(actual.id, wanted.id) << name << " rank " << rank;
      EXPECT_NEAR(actual.logprob, wanted.logprob, bound(wanted.logprob)) << name;
    }
  }
  EXPECT_LE(num_different, static_cast<int>(places.size()) / 100 + 1) << what;
}

TEST_F(GpuSampleTest, GreedyIsTheLowestOfTheLargest) {
  for (const int32_t vocab_size : VocabSizes()) {
    std::vector<SampledPlace> places;
    for (int i = 0; i < NumPlaces(); ++i) {
      SampledPlace place = {.logits = RandomFloats(vocab_size, static_cast<uint64_t>(i))};
      if (i % 2 == 1) {
        for (float& logit : place.logits) logit = std::round(logit);  // ties
      }
      place.sampling.num_logprobs = i % 3 == 2 ? 20 : i % 3 - 1;
      places.push_back(place);
    }
    ExpectAsSampler(places, "greedy, V " + std::to_string(vocab_size));
  }
}

TEST_F(GpuSampleTest, CutsAreAsSampler) {
  const std::vector<SamplingParams> all = {
      {.temperature = 1.0},
      {.temperature = 0.3, .top_k = 20},
      {.temperature = 1.5, .top_p = 0.9},
      {.temperature = 0.7, .min_p = 0.05},
      {.temperature = 0.6, .top_k = 50, .top_p = 0.95, .min_p = 0.01},
      {.temperature = 4.0, .top_k = 1},
  };
  for (const int32_t vocab_size : VocabSizes()) {
    std::vector<SampledPlace> places;
    for (int i = 0; i < NumPlaces(); ++i) {
      const auto seed = static_cast<uint64_t>(i);
      SampledPlace place = {.logits = RandomFloats(vocab_size, seed + 50, i % 2 == 0 ? 1.0 : 3.0),
                            .prompt = {0},
                            .sampling = all[static_cast<size_t>(i) % all.size()]};
      place.sampling.seed = seed;
      place.sampling.num_logprobs = i % 4 == 3 ? 5 : -1;
      places.push_back(place);
    }
    ExpectAsSampler(places, "cuts, V " + std::to_string(vocab_size));
  }
}

TEST_F(GpuSampleTest, PenaltiesBiasAndBansAreAsSampler) {
  for (const int32_t vocab_size : VocabSizes()) {
    std::vector<SampledPlace> places;
    for (int i = 0; i < NumPlaces(); ++i) {
      std::mt19937_64 random(static_cast<uint64_t>(i));
      const auto id = [&] {
        return static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size));
      };
      SampledPlace place = {.logits = RandomFloats(vocab_size, static_cast<uint64_t>(i) + 90)};
      for (int n = 0; n < 5 + i; ++n) place.prompt.push_back(id());
      for (int n = 0; n < 3 * i; ++n) place.answer.push_back(id() % 5 % vocab_size);
      place.sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.9,
                        .repetition_penalty = i % 3 == 0 ? 1.3 : 1.0,
                        .presence_penalty = i % 4 == 1 ? 0.7 : 0.0,
                        .frequency_penalty = i % 5 == 2 ? 0.25 : 0.0,
                        .seed = static_cast<uint64_t>(i)};
      if (i % 3 == 1) place.sampling.logit_bias = {{id(), 4.0f}};
      if (i % 4 == 2 && vocab_size > 4) {
        place.sampling.min_tokens = 1000;
        place.sampling.banned_until_min = {0, id(), 2};
      }
      places.push_back(place);
    }
    ExpectAsSampler(places, "penalties, V " + std::to_string(vocab_size));
  }
}

TEST_F(GpuSampleTest, ARowThatIsNotFiniteIsReported) {
  const int32_t vocab_size = VocabSizes().back();
  std::vector<SampledPlace> places;
  for (const double temperature : {0.0, 1.0}) {
    for (const float bad : {kNan, kInf}) {
      for (const int32_t at : {0, vocab_size / 2, vocab_size - 1}) {
        SampledPlace place = {.logits = RandomFloats(vocab_size, 8)};
        place.logits[static_cast<size_t>(at)] = bad;
        place.sampling.temperature = temperature;
        places.push_back(place);
        place.logits[static_cast<size_t>(at)] = -kInf;  // this one is an ordinary row
        places.push_back(place);
      }
    }
  }
  const std::vector<SampledResult> results = Run(places);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto outcome = i % 2 == 0 ? RowResult::Outcome::kNonFinite : RowResult::Outcome::kToken;
    EXPECT_EQ(results[i].token.outcome, static_cast<int32_t>(outcome)) << i;
    EXPECT_EQ(results[i].token.token < 0, i % 2 == 0) << i;
  }
}

}  // namespace
}  // namespace minisgl::cuda
