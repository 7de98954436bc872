// The options of prefixes that outlive the process, and what makes two caches one.
#include "load/prefix_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "load/run_options_fixture.h"

namespace minisgl::load {
namespace {

using PrefixCacheOptionsTest = RunOptionsTest;

TEST_F(PrefixCacheOptionsTest, SizesHaveUnits) {
  const std::vector<std::pair<std::string, int64_t>> cases = {{"1", 1},
                                                              {"500", 500},
                                                              {"4K", 4096},
                                                              {"4MiB", int64_t{4} << 20},
                                                              {"20G", int64_t{20} << 30},
                                                              {"3T", int64_t{3} << 40}};
  for (const auto& [text, bytes] : cases) {
    ASSERT_EQ(Parse({"--prefix-cache", "d", "--prefix-cache-size", text}), "") << text;
    EXPECT_EQ(options_.engine.prefix_cache.max_bytes, bytes);
    ASSERT_EQ(Parse({"--host-cache", text}), "") << text;
    EXPECT_EQ(options_.engine.prefix_cache.host_bytes, bytes);
  }
  for (const char* text : {"", "0", "-1", "K", "iB", "4X", "4 G", "1.5G", "0x10", "99999999999T",
                           "9223372036854775808", "4GG"}) {
    EXPECT_NE(Parse({"--prefix-cache-size", text}).find("--prefix-cache-size"), std::string::npos)
        << text;
  }
}

TEST_F(PrefixCacheOptionsTest, OtherValuesAreRefused) {
  EXPECT_NE(Parse({"--prefix-cache", ""}), "");
  EXPECT_NE(Parse({"--prefix-cache-on-error", "ignore"}), "");
  ASSERT_EQ(Parse({"--prefix-cache-on-error", "fail"}), "");
  EXPECT_EQ(options_.engine.prefix_cache.on_error, KvFailurePolicy::kFail);
  ASSERT_EQ(Parse({}), "");
  EXPECT_EQ(options_.engine.prefix_cache.on_error, KvFailurePolicy::kRecompute);
}

TEST_F(PrefixCacheOptionsTest, WhatCannotBeKeptIsRefusedInOneLine) {
  EngineSetup engine;
  EXPECT_TRUE(CheckPrefixCache(engine).ok());
  engine.options.cache = CacheKind::kNaive;
  engine.plan.limits.num_window_pages = 10;
  EXPECT_TRUE(CheckPrefixCache(engine).ok());  // no cache is asked for
  engine.options.prefix_cache.folder = "d";
  EXPECT_NE(CheckPrefixCache(engine).message().find("--cache radix"), std::string::npos);
  engine.options.cache = CacheKind::kRadix;
  EXPECT_NE(CheckPrefixCache(engine).message().find("sliding window"), std::string::npos);
  engine.plan.limits.num_window_pages = 0;
  EXPECT_NE(CheckPrefixCache(engine).message().find("no layers with keys"), std::string::npos);
  engine.plan.kv_bytes_per_token = 1000;
  EXPECT_TRUE(CheckPrefixCache(engine).ok());
  engine.plan.limits.num_state_slots = 10;
  EXPECT_TRUE(CheckPrefixCache(engine).ok());
  engine.options.prefix_cache = {.max_bytes = 5};
  EXPECT_EQ(CheckPrefixCache(engine).code(), StatusCode::kUsage);
}

EngineSetup PlainSetup() {
  EngineSetup engine;
  engine.plan.kv_bytes_per_token = 1000;
  engine.plan.limits.max_seq_len = 8192;
  return engine;
}

// All that may change a bit of keys and values is part of the identity, and no more than that.
TEST(KvIdentityTest, NamesAllThatChangesABit) {
  const EngineSetup engine = PlainSetup();
  ModelConfig config;
  const std::string device = "cpu (avx512, 2 threads)";
  const std::string first = KvIdentity(engine, config, "{}", "abc", device);
  EXPECT_EQ(first, KvIdentity(engine, config, "{}", "abc", "cpu (avx512, 9 threads)"));
  EngineSetup longer = PlainSetup();
  longer.plan.limits.max_seq_len = 4096;
  longer.plan.limits.page_size = 64;
  EXPECT_EQ(first, KvIdentity(longer, config, "{}", "abc", device));

  std::set<std::string> all = {first};
  const auto add = [&](const EngineSetup& setup, const ModelConfig& of, const std::string& text,
                       const std::string& weights, const std::string& name) {
    const std::string identity = KvIdentity(setup, of, text, weights, name);
    EXPECT_TRUE(all.insert(identity).second) << identity;
  };
  add(engine, config, "{ }", "abc", device);
  add(engine, config, "{}", "abd", device);
  add(engine, config, "{}", "abc", "cpu (avx2, 2 threads)");
  add(engine, config, "{}", "abc", "NVIDIA H200");
  EngineSetup other = PlainSetup();
  other.plan.kv_bytes_per_token = 500;  // bf16 instead of f32
  add(other, config, "{}", "abc", device);
  other = PlainSetup();
  other.plan.weight_format.quantization = Quantization::kInt8;
  add(other, config, "{}", "abc", device);
  other.plan.weight_format.dtype = DType::kF16;  // keys and values are f32, too
  add(other, config, "{}", "abc", device);
  other = PlainSetup();
  other.plan.kv_kind = KvKind::kFp8;
  add(other, config, "{}", "abc", device);
  other = PlainSetup();
  other.options.deterministic = true;
  add(other, config, "{}", "abc", device);
  other = PlainSetup();
  other.options.all_reduce = RankSumsBy::kNccl;
  add(other, config, "{}", "abc", device);
  config.ropes.resize(1);
  config.ropes[0].scaling = RopeScaling::kDynamic;
  add(engine, config, "{}", "abc", device);
  add(longer, config, "{}", "abc", device);
}

}  // namespace
}  // namespace minisgl::load
