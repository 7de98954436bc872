// Helpers of the sampling kernels' tests: places as plain data, runs of the kernels and of Sampler
// on them, and an oracle for the tokens that rounding could lead to.
#pragma once

#include <numeric>
#include <set>

#include "cpu/sampler.h"
#include "kernel_check.h"
#include "minisgl/base/random.h"

namespace minisgl::cuda {

struct SampledPlace {
  std::vector<float> logits;
  std::vector<int32_t> prompt = {};
  std::vector<int32_t> answer = {};
  SamplingParams sampling = {};
  std::vector<uint32_t> mask = {};  // empty: none
};

struct SampledResult {
  DeviceToken token;
  std::vector<TokenLogprob> top_logprobs;
  std::vector<float> logits;  // as the call left them
};

// Rounds the parameters to the 32 bits that the device stores.
inline SamplingParams AsOnDevice(SamplingParams sampling) {
  const auto round = [](double* value) {
    *value = static_cast<double>(static_cast<float>(*value));
  };
  round(&sampling.temperature);
  round(&sampling.top_p);
  round(&sampling.min_p);
  round(&sampling.repetition_penalty);
  round(&sampling.presence_penalty);
  round(&sampling.frequency_penalty);
  return sampling;
}

inline std::vector<int32_t> HistoryOf(const SampledPlace& place) {
  std::vector<int32_t> history = place.prompt;
  history.insert(history.end(), place.answer.begin(), place.answer.end());
  return history;
}

// The step's arrays, made from SamplingParams as the engine does.
struct StepArrays {
  std::vector<DeviceSampling> places;
  std::vector<int32_t> bias_ids, banned_ids;
  std::vector<float> bias_values;
  std::vector<int32_t> token_pool;
  std::vector<int32_t> mask_of;  // [places]
  std::vector<uint32_t> masks;
  int64_t token_pool_stride = 0;
  int32_t max_logprobs = 0;

  explicit StepArrays(const std::vector<SampledPlace>& all) {
    for (const SampledPlace& place : all) {
      const auto length = static_cast<int64_t>(place.prompt.size() + place.answer.size());
      token_pool_stride = std::max(token_pool_stride, length + 3);
      max_logprobs = std::max(max_logprobs, place.sampling.num_logprobs);
    }
    // Pool rows in reverse order, and ids past a history that no kernel may read.
    token_pool.assign(all.size() * token_pool_stride, 0x7ffffff0);
    for (size_t i = 0; i < all.size(); ++i) Add(all[i], all.size() - 1 - i);
  }

 private:
  void Add(const SampledPlace& place, size_t table_row) {
    const SamplingParams& sampling = place.sampling;
    const std::vector<int32_t> history = HistoryOf(place);
    std::copy(history.begin(), history.end(),
              token_pool.begin() + static_cast<int64_t>(table_row) * token_pool_stride);
    DeviceSampling device = {
        .seed = sampling.seed,
        .temperature = static_cast<float>(sampling.temperature),
        .top_p = static_cast<float>(sampling.top_p),
        .min_p = static_cast<float>(sampling.min_p),
        .repetition_penalty = static_cast<float>(sampling.repetition_penalty),
        .presence_penalty = static_cast<float>(sampling.presence_penalty),
        .frequency_penalty = static_cast<float>(sampling.frequency_penalty),
        .top_k = sampling.top_k,
        .table_row = static_cast<int32_t>(table_row),
        .prompt_len = static_cast<int32_t>(place.prompt.size()),
        .history_len = static_cast<int32_t>(history.size()),
        .num_logprobs = sampling.num_logprobs,
    };
    device.bias_begin = static_cast<int32_t>(bias_ids.size());
    for (const auto& [id, value] : sampling.logit_bias) {
      bias_ids.push_back(id);
      bias_values.push_back(value);
    }
    device.bias_end = static_cast<int32_t>(bias_ids.size());
    device.banned_begin = static_cast<int32_t>(banned_ids.size());
    const auto num_masks =
        std::count_if(mask_of.begin(), mask_of.end(), [](int m) { return m >= 0; });
    mask_of.push_back(place.mask.empty() ? -1 : static_cast<int32_t>(num_masks));
    masks.insert(masks.end(), place.mask.begin(), place.mask.end());
    if (place.mask.empty() && static_cast<int32_t>(place.answer.size()) < sampling.min_tokens) {
      banned_ids.insert(banned_ids.end(), sampling.banned_until_min.begin(),
                        sampling.banned_until_min.end());
    }
    device.banned_end = static_cast<int32_t>(banned_ids.size());
    places.push_back(device);
  }
};

inline constexpr TokenLogprob kUnsetLogprob = {-77, 77.0f};

// Runs the kernels, and checks what every run must leave: intact guards, and counts of zero.
inline std::vector<SampledResult> RunSampleArrays(const StepArrays& step,
                                                  const std::vector<float>& logits,
                                                  int64_t vocab_size, int num_multiprocessors = 3) {
  const size_t num_places = step.places.size();
  const size_t num_ranks = num_places * static_cast<size_t>(step.max_logprobs);
  GuardedArray<float> device_logits(logits);
  GuardedArray<uint32_t> counts(std::vector<uint32_t>(logits.size(), 0));
  GuardedArray<float> raw_logits(logits.size());
  GuardedArray<DeviceToken> sampled(num_places);
  GuardedArray<TokenLogprob> top_logprobs(std::vector<TokenLogprob>(num_ranks, kUnsetLogprob));
  const DeviceArray<DeviceSampling> places(step.places);
  const DeviceArray<int32_t> token_pool(step.token_pool);
  const DeviceArray<int32_t> bias_ids(step.bias_ids), banned_ids(step.banned_ids);
  const DeviceArray<float> bias_values(step.bias_values);
  const DeviceArray<int32_t> mask_of(step.mask_of);
  const DeviceArray<uint32_t> masks(step.masks);

  emulator::EmulatedCudaApi api;
  LaunchContext context;
  context.api = &api;
  context.num_multiprocessors = num_multiprocessors;
  EXPECT_EQ(LaunchSample(context, {.logits = device_logits.data(),
                                   .num_places = static_cast<int32_t>(num_places),
                                   .vocab_size = vocab_size,
                                   .places = places.data(),
                                   .token_pool = token_pool.data(),
                                   .token_pool_stride = step.token_pool_stride,
                                   .bias_ids = bias_ids.data(),
                                   .bias_values = bias_values.data(),
                                   .banned_ids = banned_ids.data(),
                                   .counts = counts.data(),
                                   .raw_logits = raw_logits.data(),
                                   .max_logprobs = step.max_logprobs,
                                   .sampled = sampled.data(),
                                   .top_logprobs = top_logprobs.data(),
                                   .mask_of = step.masks.empty() ? nullptr : mask_of.data(),
                                   .masks = step.masks.empty() ? nullptr : masks.data()}),
            kCudaSuccess);
  EXPECT_TRUE(device_logits.GuardsIntact() && counts.GuardsIntact() && raw_logits.GuardsIntact() &&
              sampled.GuardsIntact() && top_logprobs.GuardsIntact());
  const std::vector<uint32_t> left = counts.values();
  EXPECT_EQ(std::count(left.begin(), left.end(), 0u), static_cast<int64_t>(left.size()));

  std::vector<SampledResult> results(num_places);
  for (size_t i = 0; i < num_places; ++i) {
    results[i].token = sampled.data()[i];
    const float* const row = device_logits.data() + static_cast<int64_t>(i) * vocab_size;
    results[i].logits.assign(row, row + vocab_size);
    const TokenLogprob* const ranks =
        top_logprobs.data() + static_cast<int64_t>(i) * step.max_logprobs;
    results[i].top_logprobs.assign(ranks, ranks + step.max_logprobs);
  }
  return results;
}

inline std::vector<SampledResult> RunSample(const std::vector<SampledPlace>& places) {
  std::vector<float> logits;
  for (const SampledPlace& place : places) {
    EXPECT_EQ(place.logits.size(), places[0].logits.size());
    logits.insert(logits.end(), place.logits.begin(), place.logits.end());
  }
  return RunSampleArrays(StepArrays(places), logits, static_cast<int64_t>(places[0].logits.size()));
}

// Sampler's result for a place; `logits` as it left them.
struct HostResult {
  RowResult row;
  std::vector<float> logits;
};

inline HostResult SampleOnHost(const SampledPlace& place) {
  const SamplingParams sampling = AsOnDevice(place.sampling);
  const std::vector<int32_t> history = HistoryOf(place);
  HostResult result = {.row = {}, .logits = place.logits};
  cpu::Sampler().SampleRow({.logits = result.logits.data(),
                            .vocab_size = static_cast<int64_t>(place.logits.size()),
                            .sampling = &sampling,
                            .history = history.data(),
                            .prompt_len = static_cast<int32_t>(place.prompt.size()),
                            .history_len = static_cast<int32_t>(history.size()),
                            .mask = place.mask.empty() ? nullptr : place.mask.data()},
                           &result.row);
  return result;
}

// The draw in double, with a full sort, from logits after bias, penalties and bans: the first top_k
// tokens by rank, of those the first that weigh top_p, of those the ones of at least min_p. Each
// share may be shifted.
struct Shifts {
  double top_p = 0, min_p = 0, target = 0;
};

class DrawOracle {
 public:
  DrawOracle(const std::vector<float>& logits, const SamplingParams& sampling, int index)
      : sampling_(sampling), u_(UniformDouble(sampling.seed, static_cast<uint64_t>(index))) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    for (size_t id = 0; id < logits.size(); ++id) {
      const double weight = std::exp((logits[id] - largest) / sampling.temperature);
      if (weight > 0) ranked_.push_back({logits[id], static_cast<int>(id), weight});
    }
    std::sort(ranked_.begin(), ranked_.end(), [](const Token& a, const Token& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
    const auto top_k = static_cast<size_t>(sampling.top_k);
    if (sampling.top_k > 0 && top_k < ranked_.size()) ranked_.resize(top_k);
  }

  int Draw(const Shifts& shifts) const {
    std::vector<Token> kept;
    const double all = Sum(ranked_);
    double sum = 0;
    for (const Token& token : ranked_) {
      if (sampling_.top_p < 1 && !kept.empty() && sum >= (sampling_.top_p + shifts.top_p) * all) {
        break;
      }
      sum += token.weight;
      kept.push_back(token);
    }
    std::erase_if(kept, [&](const Token& token) {
      return token.id != ranked_[0].id && token.weight < sampling_.min_p * (1 + shifts.min_p);
    });
    std::sort(kept.begin(), kept.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
    const double target = (u_ + shifts.target) * Sum(kept);
    double running = 0;
    for (const Token& token : kept) {
      running += token.weight;
      if (running > target) return token.id;
    }
    return kept.back().id;
  }

  // All tokens drawn with shares shifted by up to `error`.
  std::set<int> Within(double error) const {
    std::set<int> tokens;
    for (double top_p : {-error, 0.0, error}) {
      for (double min_p : {-error, 0.0, error}) {
        for (double target : {-error, 0.0, error}) tokens.insert(Draw({top_p, min_p, target}));
      }
    }
    return tokens;
  }

 private:
  struct Token {
    float logit;
    int id;
    double weight;
  };
  static double Sum(const std::vector<Token>& tokens) {
    double sum = 0;
    for (const Token& token : tokens) sum += token.weight;
    return sum;
  }
  SamplingParams sampling_;
  double u_;
  std::vector<Token> ranked_;
};

// The error of the device's weights, from f32 arithmetic: exp2 of a product of two rounded values
// below 64 in magnitude, at most 64 * 2^-23 of each weight.
inline constexpr double kShareError = 0x1p-17;

// Compares one place with Sampler. Returns 1 if the tokens differ, which rounding must explain.
inline int ComparePlace(const SampledPlace& place, const SampledResult& actual,
                        const std::string& what) {
  const HostResult expected = SampleOnHost(place);
  EXPECT_EQ(actual.token.outcome, static_cast<int32_t>(expected.row.outcome)) << what;
  if (expected.row.outcome == RowResult::Outcome::kToken) {
    ExpectSameBytes(actual.logits.data(), expected.logits.data(),
                    expected.logits.size() * sizeof(float), what + ": logits");
  }
  if (actual.token.token == expected.row.token) return 0;
  const bool is_drawn =
      expected.row.outcome == RowResult::Outcome::kToken && place.sampling.temperature > 0;
  EXPECT_TRUE(is_drawn) << what << ": " << actual.token.token << " instead of "
                        << expected.row.token;
  if (!is_drawn) return 1;
  const DrawOracle oracle(expected.logits, AsOnDevice(place.sampling),
                          static_cast<int>(place.answer.size()));
  EXPECT_TRUE(oracle.Within(kShareError).contains(actual.token.token))
      << what << ": " << actual.token.token << " instead of " << expected.row.token;
  return 1;
}

// Runs and compares; at most one place in a hundred may differ at all.
inline std::vector<SampledResult> ExpectAsSampler(const std::vector<SampledPlace>& places,
                                                  const std::string& what) {
  const std::vector<SampledResult> results = RunSample(places);
  int num_different = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    num_different += ComparePlace(places[i], results[i], what + " place " + std::to_string(i));
  }
  EXPECT_LE(num_different, static_cast<int>(places.size()) / 100) << what;
  return results;
}

}  // namespace minisgl::cuda
