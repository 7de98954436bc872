// The memory plan: its choice if memory suffices, and the settings that it suggests if not.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "engine/fake_models.h"
#include "engine/host_device_ops.h"
#include "minisgl/engine/model_engine.h"

namespace minisgl {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// About a billion parameters in bf16; 128 KiB of keys and values per token in f32.
ModelConfig BillionConfig() { return WideConfig(32); }

MemoryPlan MustPlan(const ModelConfig& config, const ModelEngineOptions& options,
                    uint64_t available) {
  const auto plan = PlanMemory(config, options, available);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : MemoryPlan();
}

TEST(MemoryPlanTest, RoomyMachineGetsTheCpuDefaultLength) {
  const MemoryPlan plan = MustPlan(BillionConfig(), {}, 4096 * kGiB);
  EXPECT_EQ(plan.limits.max_seq_len, 8192);
  EXPECT_EQ(plan.max_seq_len_reason, "the CPU default");
  EXPECT_EQ(plan.limits.num_pages, 256 * 512);  // what all running requests can need
  EXPECT_EQ(plan.limits.max_step_tokens, 512 + 256);
  EXPECT_EQ(plan.limits.vocab_size, 32000);
  EXPECT_EQ(plan.kv_bytes_per_token, 64u * 1024) << "two bytes an element";
  EXPECT_EQ(plan.kv_bytes, (uint64_t{256} * 512 + 1) * 16 * 64 * 1024);
  EXPECT_EQ(plan.weight_format, DType::kBF16);
}

// Half of the layers are convolutions with states of 2 x 2048 floats: 256 KiB a slot.
ModelConfig StatesConfig() {
  ModelConfig config = BillionConfig();
  config.architecture = "Lfm2ForCausalLM";
  config.states.conv_length = 3;
  config.states.conv_width = config.hidden_size;
  for (size_t i = 0; i < config.layers.size(); i += 2) config.layers[i].mixer = Mixer::kShortConv;
  return config;
}

TEST(MemoryPlanTest, StatesAreOfLayersWithoutKeysAndValues) {
  const MemoryPlan plan = MustPlan(StatesConfig(), {.num_pages = 600}, 4096 * kGiB);
  EXPECT_EQ(plan.kv_bytes_per_token, 32u * 1024) << "of 16 layers";
  EXPECT_EQ(plan.limits.max_running_requests, 256);
  EXPECT_EQ(plan.limits.num_state_slots, 3 * 256 + (1 << 14)) << "at most 2^14 for prefixes";
  EXPECT_EQ(plan.state_bytes, uint64_t{3 * 256 + (1 << 14)} * 256 * 1024);
  EXPECT_EQ(MustPlan(BillionConfig(), {}, 4096 * kGiB).limits.num_state_slots, 0);
}

TEST(MemoryPlanTest, FewSlotsOfStatesAreFewRequestsAtOnce) {
  const ModelConfig config = StatesConfig();
  const MemoryPlan roomy = MustPlan(config, {}, 4096 * kGiB);
  ModelEngineOptions options;
  options.max_seq_len = 64;
  options.memory_ratio = 1;
  const uint64_t fixed =
      roomy.weight_bytes + MustPlan(config, options, 4096 * kGiB).workspace_bytes;
  // Half of it is 44 slots: 4 for prefixes and the slots of 13 requests. An eighth is 11.
  const MemoryPlan plan = MustPlan(config, options, fixed + 88 * 256 * 1024);
  EXPECT_EQ(plan.limits.max_running_requests, 13);
  EXPECT_EQ(plan.limits.num_state_slots, 3 * 13 + 11);
  EXPECT_LE(plan.state_bytes + plan.kv_bytes, 88u * 256 * 1024);
  EXPECT_GE(plan.limits.num_pages, 4);
  const auto none = PlanMemory(config, options, fixed + 13 * 256 * 1024);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("the states of one request take 1.8 MiB"),
            std::string::npos)
      << none.status().message();
}

// Keys and values follow the dtype of the weights in memory, quantized or not.
TEST(MemoryPlanTest, KeysAndValuesAreBf16IfTheWeightsAre) {
  ModelEngineOptions options;
  options.quantization = Quantization::kInt8;
  EXPECT_EQ(MustPlan(BillionConfig(), options, 64 * kGiB).kv_bytes_per_token, 64u * 1024);
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    options.weight_dtype = dtype;
    EXPECT_EQ(MustPlan(BillionConfig(), options, 64 * kGiB).kv_bytes_per_token, 128u * 1024);
  }
}

// Codes of 8 bits, and two bytes of scales for each token and head of keys and values.
TEST(MemoryPlanTest, KeysAndValuesInEightBitsTakeHalf) {
  const MemoryPlan wide = MustPlan(BillionConfig(), {}, 4096 * kGiB);
  const MemoryPlan plan = MustPlan(BillionConfig(), {.kv_kind = KvKind::kFp8}, 4096 * kGiB);
  const ModelConfig config = BillionConfig();
  const uint64_t scales = uint64_t{2} * static_cast<uint64_t>(config.num_kv_heads) * 32;
  EXPECT_EQ(plan.kv_bytes_per_token, wide.kv_bytes_per_token / 2 + scales);
  EXPECT_EQ(plan.kv_bytes, wide.kv_bytes / (64 * 1024) * plan.kv_bytes_per_token);
  EXPECT_EQ(plan.limits.num_pages, wide.limits.num_pages);
  EXPECT_EQ(plan.kv_layers, 32);
  EXPECT_EQ(plan.coded_kv_layers, 32);
  EXPECT_EQ(wide.coded_kv_layers, 0);
  // Nearly twice the pages in the same memory.
  const MemoryPlan few = MustPlan(BillionConfig(), {}, 8 * kGiB);
  const MemoryPlan many = MustPlan(BillionConfig(), {.kv_kind = KvKind::kFp8}, 8 * kGiB);
  EXPECT_GT(many.limits.num_pages, few.limits.num_pages * 19 / 10);
}

// Layers with a window keep 16 bits. A model of such layers alone is refused, and so are others
// without a layer that can have codes.
TEST(MemoryPlanTest, LayersThatCannotHaveCodesKeepTheirType) {
  const ModelEngineOptions coded = {.kv_kind = KvKind::kFp8};
  ModelConfig config = BillionConfig();
  const uint64_t wide = MustPlan(config, {}, 4096 * kGiB).kv_bytes_per_token;
  const uint64_t narrow = MustPlan(config, coded, 4096 * kGiB).kv_bytes_per_token;
  for (size_t i = 0; i < 8; ++i) config.layers[i].sliding_window = 1 << 14;
  const MemoryPlan mixed = MustPlan(config, coded, 4096 * kGiB);
  EXPECT_EQ(mixed.coded_kv_layers, 24);
  EXPECT_EQ(mixed.kv_bytes_per_token, (8 * wide + 24 * narrow) / 32);
  for (LayerConfig& layer : config.layers) layer.sliding_window = 1 << 14;
  auto refused = PlanMemory(config, coded, 4096 * kGiB);
  EXPECT_EQ(refused.status().code(), StatusCode::kUsage);
  EXPECT_NE(refused.status().message().find("no layer of this model"), std::string::npos);
  config = BillionConfig();
  config.head_dim = 24;
  EXPECT_EQ(PlanMemory(config, coded, 4096 * kGiB).status().code(), StatusCode::kUsage);
}

TEST(MemoryPlanTest, ModelShorterThanTheDefaultIsTakenWhole) {
  ModelConfig config = BillionConfig();
  config.max_seq_len = 2048;
  const MemoryPlan plan = MustPlan(config, {}, 4096 * kGiB);
  EXPECT_EQ(plan.limits.max_seq_len, 2048);
  EXPECT_EQ(plan.max_seq_len_reason, "the model's");
}

TEST(MemoryPlanTest, PoolStaysWithinTheRatio) {
  for (const double ratio : {0.1, 0.25, 0.5}) {
    ModelEngineOptions options;
    options.memory_ratio = ratio;
    const MemoryPlan plan = MustPlan(BillionConfig(), options, 16 * kGiB);
    EXPECT_LE(static_cast<double>(plan.kv_bytes), ratio * 16 * kGiB);
    EXPECT_GT(static_cast<double>(plan.kv_bytes), (ratio - 0.01) * 16 * kGiB);
  }
}

TEST(MemoryPlanTest, WeightsAndWorkspaceComeBeforeTheRatio) {
  ModelEngineOptions options;
  options.memory_ratio = 1;
  const MemoryPlan plan = MustPlan(BillionConfig(), options, 5 * kGiB);
  EXPECT_LE(plan.weight_bytes + plan.workspace_bytes + plan.kv_bytes, 5 * kGiB);
  EXPECT_EQ(plan.available_bytes, 5 * kGiB);
}

TEST(MemoryPlanTest, AutoLengthShrinksToWhatFits) {
  const MemoryPlan plan = MustPlan(BillionConfig(), {}, 3500 * kMiB);
  EXPECT_EQ(plan.max_seq_len_reason, "what fits");
  EXPECT_LT(plan.limits.max_seq_len, 8192);
  EXPECT_GE(plan.limits.max_seq_len, 2);
  EXPECT_GE(int64_t{plan.limits.num_pages} * 16, plan.limits.max_seq_len);
}

TEST(MemoryPlanTest, GivenPagesWin) {
  ModelEngineOptions options;
  options.num_pages = 10;
  options.page_size = 4;
  const MemoryPlan plan = MustPlan(BillionConfig(), options, 64 * kGiB);
  EXPECT_EQ(plan.limits.num_pages, 10);
  EXPECT_EQ(plan.limits.max_seq_len, 40);
  EXPECT_EQ(plan.max_seq_len_reason, "what fits");
}

TEST(MemoryPlanTest, LengthAskedForIsKept) {
  ModelEngineOptions options;
  options.max_seq_len = 100;
  options.max_running_requests = 3;
  const MemoryPlan plan = MustPlan(BillionConfig(), options, 64 * kGiB);
  EXPECT_EQ(plan.limits.max_seq_len, 100);
  EXPECT_EQ(plan.max_seq_len_reason, "max_seq_len");
  EXPECT_EQ(plan.limits.num_pages, 3 * 7);
}

TEST(MemoryPlanTest, DraftsCostARowOfLogitsEachAndNoMoreThanAStepTakesAreUsed) {
  ModelEngineOptions options;
  const MemoryPlan none = MustPlan(BillionConfig(), options, 64 * kGiB);
  EXPECT_EQ(none.limits.max_step_drafts, 0);
  options.max_step_drafts = 100;
  const MemoryPlan some = MustPlan(BillionConfig(), options, 64 * kGiB);
  EXPECT_EQ(some.limits.max_step_drafts, 100);
  EXPECT_EQ(some.limits.max_step_tokens, none.limits.max_step_tokens);
  // Logits, and the two activations that the head reads.
  EXPECT_EQ(some.workspace_bytes - none.workspace_bytes, 100 * (32000 + 2 * 2048) * sizeof(float));
  options.max_step_drafts = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(MustPlan(BillionConfig(), options, 64 * kGiB).limits.max_step_drafts, 512);
}

// Rounded rows for the widest matrix (5632 inputs) take 177 cache lines each. f32 rows are read in
// place and take none.
TEST(MemoryPlanTest, WorkspaceHoldsWhatOperationsTakeForThemselves) {
  ModelEngineOptions options;
  const uint64_t bf16 = MustPlan(BillionConfig(), options, 64 * kGiB).workspace_bytes;
  options.weight_dtype = DType::kF32;
  const uint64_t f32 = MustPlan(BillionConfig(), options, 64 * kGiB).workspace_bytes;
  EXPECT_EQ(bf16 - f32, uint64_t{512 + 256} * 177 * 64);
  options.num_threads = 9;
  const uint64_t of_threads = MustPlan(BillionConfig(), options, 64 * kGiB).workspace_bytes - f32;
  EXPECT_GE(of_threads, uint64_t{8} * 32000 * 44) << "a sampler each";
  EXPECT_LE(of_threads, 8 * 4 * kMiB);
}

// The settings that `message` suggests, each applied to `options`.
std::vector<ModelEngineOptions> SettingsNamed(const std::string& message,
                                              const ModelEngineOptions& options) {
  std::vector<ModelEngineOptions> settings;
  const size_t start = message.find("these fit: ");
  if (start == std::string::npos) return settings;
  std::string rest = message.substr(start + 11);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(", or "), rest.size());
    std::istringstream words(rest.substr(0, end));
    ModelEngineOptions changed = options;
    for (std::string name, value; words >> name >> value;) {
      if (name == "max_seq_len") changed.max_seq_len = std::stoll(value);
      if (name == "memory_ratio") changed.memory_ratio = std::stod(value);
      if (name == "num_pages") changed.num_pages = std::stoi(value);
      if (name == "dtype") changed.weight_dtype = DType::kBF16;
      if (name == "quantize") {
        changed.quantization = value == "int8" ? Quantization::kInt8 : Quantization::kInt4;
      }
      if (name == "max_prefill_length") changed.max_prefill_tokens = std::stoi(value);
      if (name == "max_running_requests") changed.max_running_requests = std::stoi(value);
    }
    settings.push_back(changed);
    rest = end + 5 <= rest.size() ? rest.substr(end + 5) : "";
  }
  return settings;
}

TEST(MemoryPlanTest, TooLittleNamesSettingsThatFit) {
  struct Case {
    const char* what;
    ModelEngineOptions options;
    uint64_t available;
  };
  ModelEngineOptions long_request, few_pages, many_pages, wide, drafting, f32;
  long_request.max_seq_len = 32768;
  few_pages.max_seq_len = 4096;
  few_pages.num_pages = 4;
  many_pages.num_pages = 1 << 20;
  wide.max_running_requests = 8192;
  wide.max_prefill_tokens = 16384;
  wide.max_seq_len = 4096;
  drafting.max_prefill_tokens = drafting.max_step_drafts = 16384;
  f32.weight_dtype = DType::kF32;
  f32.max_seq_len = 1024;
  for (const Case& test :
       {Case{"long request", long_request, 8 * kGiB}, Case{"few pages", few_pages, 16 * kGiB},
        Case{"many pages", many_pages, 16 * kGiB}, Case{"wide steps", wide, 5 * kGiB},
        Case{"drafts", drafting, 5 * kGiB}, Case{"f32", f32, 5 * kGiB}}) {
    const auto plan = PlanMemory(BillionConfig(), test.options, test.available);
    ASSERT_FALSE(plan.ok()) << test.what;
    EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory) << test.what;
    const auto settings = SettingsNamed(plan.status().message(), test.options);
    EXPECT_GE(settings.size(), 1u) << test.what << ": " << plan.status().message();
    EXPECT_LE(settings.size(), 3u) << test.what << ": " << plan.status().message();
    for (const ModelEngineOptions& setting : settings) {
      const auto again = PlanMemory(BillionConfig(), setting, test.available);
      EXPECT_TRUE(again.ok()) << test.what << ": " << plan.status().message() << "; and then "
                              << again.status().message();
    }
  }
}

TEST(MemoryPlanTest, IfNoSettingFitsAloneSeveralAreNamedTogetherAndEachIsNeeded) {
  ModelEngineOptions options;
  options.num_pages = 1 << 20;
  options.weight_dtype = DType::kF32;
  options.max_running_requests = 4096;
  options.max_prefill_tokens = 16384;
  const auto plan = PlanMemory(BillionConfig(), options, 3 * kGiB);
  ASSERT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
  const auto settings = SettingsNamed(plan.status().message(), options);
  ASSERT_FALSE(settings.empty()) << plan.status().message();
  for (const ModelEngineOptions& setting : settings) {
    EXPECT_TRUE(PlanMemory(BillionConfig(), setting, 3 * kGiB).ok()) << plan.status().message();
    ModelEngineOptions fewer[] = {setting, setting, setting};
    fewer[0].num_pages = options.num_pages;
    fewer[1].quantization = options.quantization;
    fewer[2].max_prefill_tokens = options.max_prefill_tokens;
    for (const ModelEngineOptions& without : fewer) {
      EXPECT_FALSE(PlanMemory(BillionConfig(), without, 3 * kGiB).ok()) << plan.status().message();
    }
  }
}

// A block of 32 inputs takes 34 bytes in a row of a matrix. Norms stay f32.
TEST(MemoryPlanTest, QuantizedWeightsTakeAByteEachAndAScaleABlock) {
  ModelEngineOptions options;
  options.quantization = Quantization::kInt8;
  const MemoryPlan whole = MustPlan(BillionConfig(), {}, 64 * kGiB);
  const MemoryPlan plan = MustPlan(BillionConfig(), options, 64 * kGiB);
  EXPECT_EQ(plan.weight_format, WeightFormat(DType::kBF16, Quantization::kInt8));
  const uint64_t norm_bytes = uint64_t{2 * 32 + 1} * 2048 * sizeof(float);
  EXPECT_EQ(plan.weight_bytes - norm_bytes, (whole.weight_bytes - norm_bytes) / 64 * 34);
}

// 18 bytes for 32 inputs of a layer's matrix; the two tables of 32000 rows stay at 34.
TEST(MemoryPlanTest, Int4WeightsTakeHalfAByteEachAndAScaleABlock) {
  ModelEngineOptions options;
  options.quantization = Quantization::kInt4;
  const MemoryPlan whole = MustPlan(BillionConfig(), {}, 64 * kGiB);
  const MemoryPlan plan = MustPlan(BillionConfig(), options, 64 * kGiB);
  EXPECT_EQ(plan.weight_format, WeightFormat(DType::kBF16, Quantization::kInt4));
  const uint64_t norm_bytes = uint64_t{2 * 32 + 1} * 2048 * sizeof(float);
  const uint64_t tables = uint64_t{2} * 32000 * 2048 * 2;
  EXPECT_EQ(plan.weight_bytes - norm_bytes,
            (whole.weight_bytes - norm_bytes - tables) / 64 * 18 + tables / 64 * 34);
}

// 2 GiB of weights in bf16, and a request of 256 tokens, in `available` bytes: the message
// names `wanted`, which fits.
void ExpectNamed(uint64_t available, Quantization wanted, const char* name) {
  ModelEngineOptions options;
  options.max_seq_len = 256;
  options.max_running_requests = 1;
  options.max_prefill_tokens = 32;
  const auto plan = PlanMemory(BillionConfig(), options, available);
  ASSERT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
  const std::string& message = plan.status().message();
  EXPECT_NE(message.find(std::string("these fit: quantize ") + name), std::string::npos) << message;
  options.quantization = wanted;
  EXPECT_TRUE(PlanMemory(BillionConfig(), options, available).ok());
  options.quantization = Quantization::kInt8;
  EXPECT_EQ(PlanMemory(BillionConfig(), options, available).ok(), wanted == Quantization::kInt8);
}

TEST(MemoryPlanTest, AFormatThatFitsIsNamedTheLargerFirst) {
  ExpectNamed(1800 * kMiB, Quantization::kInt8, "int8");
  ExpectNamed(1000 * kMiB, Quantization::kInt4, "int4");
}

TEST(MemoryPlanTest, HopelesslySmallMachineSaysSo) {
  const auto plan = PlanMemory(BillionConfig(), {}, 64 * kMiB);
  EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(plan.status().message().find("use a smaller model"), std::string::npos)
      << plan.status().message();
}

TEST(MemoryPlanTest, AbsurdConfigurationsNeverOverflow) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const int32_t huge32 = std::numeric_limits<int32_t>::max();
  const std::vector<void (*)(ModelConfig*)> mutations = {
      [](ModelConfig* c) { c->vocab_size = std::numeric_limits<int64_t>::max(); },
      [](ModelConfig* c) { c->hidden_size = std::numeric_limits<int64_t>::max(); },
      [](ModelConfig* c) { c->intermediate_size = std::numeric_limits<int64_t>::max(); },
      [](ModelConfig* c) { c->num_layers = std::numeric_limits<int32_t>::max(); },
      [](ModelConfig* c) { c->num_heads = std::numeric_limits<int32_t>::max(); },
      [](ModelConfig* c) { c->num_kv_heads = std::numeric_limits<int32_t>::max(); },
      [](ModelConfig* c) { c->head_dim = std::numeric_limits<int32_t>::max(); },
  };
  ModelConfig all = BillionConfig();
  for (const auto& mutate : mutations) {
    ModelConfig one = BillionConfig();
    mutate(&one);
    mutate(&all);
    for (const ModelConfig& config : {one, all}) {
      const auto plan = PlanMemory(config, {}, 16 * kGiB);
      EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
    }
  }
  ModelConfig endless = BillionConfig();
  endless.max_seq_len = huge;
  EXPECT_EQ(MustPlan(endless, {}, 64 * kGiB).limits.max_seq_len, 8192);
  ModelEngineOptions options;
  options.max_seq_len = huge32;
  options.max_running_requests = 1;
  EXPECT_EQ(PlanMemory(endless, options, 64 * kGiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(PlanMemory(endless, {}, std::numeric_limits<uint64_t>::max()).ok());
}

TEST(MemoryPlanTest, WrongOptionsAreUsageErrorsThatNameThem) {
  const struct {
    const char* option;
    void (*change)(ModelEngineOptions*);
  } kCases[] = {
      {"page_size", [](auto* o) { o->page_size = 3; }},
      {"page_size", [](auto* o) { o->page_size = 0; }},
      {"page_size", [](auto* o) { o->page_size = 128; }},
      {"max_running_requests", [](auto* o) { o->max_running_requests = 0; }},
      {"max_prefill_length", [](auto* o) { o->max_prefill_tokens = 0; }},
      {"max_prefill_length",
       [](auto* o) { o->max_prefill_tokens = std::numeric_limits<int32_t>::max(); }},
      {"speculate", [](auto* o) { o->max_step_drafts = -1; }},
      {"num_pages", [](auto* o) { o->num_pages = -1; }},
      {"memory_ratio", [](auto* o) { o->memory_ratio = 0; }},
      {"memory_ratio", [](auto* o) { o->memory_ratio = 1.5; }},
      {"memory_ratio", [](auto* o) { o->memory_ratio = std::numeric_limits<double>::quiet_NaN(); }},
      {"max_seq_len", [](auto* o) { o->max_seq_len = -1; }},
      {"max_seq_len", [](auto* o) { o->max_seq_len = 1; }},
      {"max_seq_len", [](auto* o) { o->max_seq_len = 131073; }},
      {"max_seq_len", [](auto* o) { o->max_seq_len = int64_t{1} << 40; }},
  };
  for (const auto& test : kCases) {
    ModelEngineOptions options;
    test.change(&options);
    const auto plan = PlanMemory(BillionConfig(), options, 64 * kGiB);
    EXPECT_EQ(plan.status().code(), StatusCode::kUsage) << test.option;
    EXPECT_NE(plan.status().message().find(test.option), std::string::npos)
        << plan.status().message();
  }
}

TEST(MemoryPlanTest, WithoutAGivenSizeTheMachinesMemoryIsUsed) {
  ModelConfig config = BillionConfig();
  config.num_layers = 1;
  config.layers.resize(1);
  config.vocab_size = 100;
  config.hidden_size = config.intermediate_size = 64;
  const MemoryPlan plan = MustPlan(config, {}, 0);
  EXPECT_GT(plan.available_bytes, 0u);
}

TEST(MemoryPlanTest, OnADeviceEverythingTogetherGetsTheRatioAndPagesTakeWhatIsLeft) {
  for (const double ratio : {0.5, 0.9}) {
    const auto device = MakeHostDeviceOps(80 * kGiB, {}, nullptr, DType::kBF16);
    ModelEngineOptions options;
    options.memory_ratio = ratio;
    options.max_prefill_tokens = 8192;
    options.graph_max_rows = 256;
    options.graph_max_tokens = 512;
    const auto plan = PlanMemory(BillionConfig(), options, 0, device.get());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const double total =
        static_cast<double>(plan->weight_bytes + plan->workspace_bytes + plan->kv_bytes);
    EXPECT_LE(total, ratio * 80 * kGiB);
    EXPECT_GT(total, ratio * 80 * kGiB - 64.0 * kMiB) << "less than a page and a bit is left over";
    EXPECT_EQ(plan->limits.max_seq_len, 131072);
    EXPECT_EQ(plan->max_seq_len_reason, "the model's");
    EXPECT_EQ(plan->kv_bytes_per_token, 64u * 1024) << "two bytes an element";
    EXPECT_EQ(plan->graph_bytes, (35u + 40u) * 2 * kMiB) << "2 MiB a graph";
  }
}

// Kernels that are loaded late and graphs take memory of the driver's after the plan.
TEST(MemoryPlanTest, ADeviceKeepsMemoryForItsDriverAtAnyRatio) {
  for (const uint64_t total : {80 * kGiB, 6 * kGiB}) {
    const auto device = MakeHostDeviceOps(total, {}, nullptr, DType::kBF16);
    const auto taken = [&](double ratio) {
      const auto plan = PlanMemory(BillionConfig(), {.memory_ratio = ratio}, 0, device.get());
      MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
      return plan->weight_bytes + plan->workspace_bytes + plan->kv_bytes;
    };
    const uint64_t kept = std::min(384 * kMiB, total / 20);
    EXPECT_LE(taken(1), total - kept);
    EXPECT_GT(taken(1), total - kept - 64 * kMiB);
    EXPECT_LE(taken(0.95), static_cast<uint64_t>(0.95 * static_cast<double>(total)));
    EXPECT_GT(taken(0.95), static_cast<uint64_t>(0.95 * static_cast<double>(total)) - 64 * kMiB);
  }
}

TEST(MemoryPlanTest, ADeviceComputesInItsOwnTypeWhateverTheFileHolds) {
  const auto device = MakeHostDeviceOps(80 * kGiB, {}, nullptr, DType::kF16);
  ModelConfig config = BillionConfig();
  config.dtype = DType::kF32;
  const auto plan = PlanMemory(config, {.memory_ratio = 0.9}, 0, device.get());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->weight_format, DType::kF16);
}

TEST(MemoryPlanTest, ADeviceThatKeepsNoCodesHasNoQuantizedWeights) {
  const auto device = MakeHostDeviceOps(80 * kGiB, {}, nullptr, DType::kBF16);
  for (const auto& [kind, name] : {std::pair(Quantization::kInt8, "quantize int8"),
                                   std::pair(Quantization::kInt4, "quantize int4")}) {
    const auto plan =
        PlanMemory(BillionConfig(), {.memory_ratio = 0.9, .quantization = kind}, 0, device.get());
    EXPECT_EQ(plan.status().code(), StatusCode::kUsage);
    EXPECT_NE(plan.status().message().find(name), std::string::npos);
  }
}

TEST(MemoryPlanTest, ADeviceThatIsTooSmallNamesSettingsThatFit) {
  const auto device = MakeHostDeviceOps(6 * kGiB, {}, nullptr, DType::kBF16);
  ModelEngineOptions options;
  options.memory_ratio = 0.9;
  options.max_seq_len = 131072;
  options.max_prefill_tokens = 8192;
  const auto plan = PlanMemory(BillionConfig(), options, 0, device.get());
  ASSERT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
  const std::string& message = plan.status().message();
  EXPECT_NE(message.find("these fit: "), std::string::npos) << message;
  EXPECT_EQ(message.find("dtype"), std::string::npos) << "a device has one type: " << message;
  EXPECT_EQ(message.find("quantize"), std::string::npos) << message;
}

}  // namespace
}  // namespace minisgl
