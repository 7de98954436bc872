// Adapters as PEFT writes them: what is read, and what is refused by its name. Hostile input.
#include "minisgl/weights/adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/random.h"
#include "temporary_folder.h"
#include "weights/adapter_config.h"

namespace minisgl {
namespace {

constexpr const char* kQuery = "base_model.model.model.layers.0.self_attn.q_proj";

// Tensors in memory by name; their numbers are 1, 2, 3, ... / 64.
class AdapterFile {
 public:
  AdapterFile& Add(const std::string& name, std::vector<int64_t> shape) {
    auto values = std::make_shared<std::vector<float>>();
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) values->push_back(static_cast<float>(i + 1) / 64);
    tensors_[name] = {values, std::move(shape)};
    return *this;
  }
  // The matrices of a product of `in` inputs and `out` outputs.
  AdapterFile& AddLora(const std::string& module, int64_t rank, int64_t in = 6, int64_t out = 4) {
    Add(module + ".lora_A.weight", {rank, in});
    return Add(module + ".lora_B.weight", {out, rank});
  }
  float& At(const std::string& name, size_t index) { return tensors_.at(name).first->at(index); }

  Result<std::shared_ptr<const Adapter>> Read(const std::string& keys) const {
    std::map<std::string, TensorView> views;
    for (const auto& [name, tensor] : tensors_) {
      views[name] = {reinterpret_cast<const std::byte*>(tensor.first->data()), DType::kF32,
                     tensor.second};
    }
    auto memory = std::make_shared<decltype(tensors_)>(tensors_);
    return ReadAdapter("{\"peft_type\": \"LORA\"" + (keys.empty() ? "" : ", " + keys) + "}",
                       "adapter_config.json",
                       Checkpoint::FromViews(std::move(views), std::move(memory), "adapter.st"));
  }

 private:
  std::map<std::string, std::pair<std::shared_ptr<std::vector<float>>, std::vector<int64_t>>>
      tensors_;
};

AdapterFile QueryFile(int64_t rank = 2) {
  AdapterFile file;
  file.AddLora(kQuery, rank);
  return file;
}

std::string ErrorOf(const Result<std::shared_ptr<const Adapter>>& read) {
  return read.ok() ? "(none)" : read.status().message();
}

// The message has all of `parts`.
void ExpectError(const Result<std::shared_ptr<const Adapter>>& read,
                 const std::vector<std::string>& parts) {
  EXPECT_FALSE(read.ok());
  if (read.ok()) return;
  EXPECT_EQ(read.status().code(), StatusCode::kBadInput);
  for (const std::string& part : parts) {
    EXPECT_NE(read.status().message().find(part), std::string::npos)
        << read.status().message() << " lacks " << part;
  }
}

TEST(AdapterTest, ScalesByTheRankAndAlphaOfTheModule) {
  AdapterFile file = QueryFile(2);
  file.AddLora("base_model.model.model.layers.0.mlp.down_proj", 3);
  const std::string keys = R"("r": 2, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"],
      "rank_pattern": {"down_proj": 3}, "alpha_pattern": {"layers.0.mlp.down_proj": 9})";
  auto plain = file.Read(keys);
  ASSERT_TRUE(plain.ok()) << ErrorOf(plain);
  ASSERT_EQ((*plain)->changes.size(), 2u);
  EXPECT_EQ((*plain)->changes[0].module, "model.layers.0.mlp.down_proj");
  EXPECT_DOUBLE_EQ((*plain)->changes[0].scale, 3);
  EXPECT_DOUBLE_EQ((*plain)->changes[1].scale, 4);
  auto root = file.Read(keys + R"(, "use_rslora": true)");
  ASSERT_TRUE(root.ok()) << ErrorOf(root);
  EXPECT_DOUBLE_EQ((*root)->changes[0].scale, 9 / std::sqrt(3.0));
  EXPECT_NE((*root)->hash, (*plain)->hash);
}

TEST(AdapterTest, APatternIsAnExpressionAtTheEndOfAName) {
  const auto scale_with = [](const std::string& pattern) {
    auto read = QueryFile(2).Read(
        "\"r\": 2, \"lora_alpha\": 2, \"target_modules\": [\"q_proj\"], "
        "\"alpha_pattern\": {\"" +
        pattern + "\": 10}");
    EXPECT_TRUE(read.ok()) << ErrorOf(read);
    return read.ok() ? (*read)->changes[0].scale : 0;
  };
  for (const char* fits :
       {"q_proj", "self_attn.q_proj", "layers.0.self_attn.q_proj", ".*q_proj", ".*[02].*q_proj",
        "^model.layers.0.self_attn.q_proj", ".*_proj", "(k|q)_proj",
        "layers\\\\.\\\\d+\\\\.self_attn\\\\.q_proj", "q_pro[j-k]{1,2}"}) {
    EXPECT_EQ(scale_with(fits), 5) << fits;
  }
  for (const char* other : {"proj", "k_proj", "layers.1.self_attn.q_proj", "^q_proj", "q_proj.x",
                            "_proj", "q_proj{2}"}) {
    EXPECT_EQ(scale_with(other), 1) << other;
  }
}

TEST(AdapterTest, KindsThatAreNotDoneAreRefusedByName) {
  const AdapterFile file = QueryFile(8);
  const std::string good = R"("target_modules": ["q_proj"])";
  ASSERT_TRUE(file.Read(good).ok()) << ErrorOf(file.Read(good));
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"alora_invocation_tokens", "[1, 2]"},
           {"layer_replication", "[[0, 4], [2, 5]]"},
           {"use_qalora", "true"},
           {"use_bdlora", "{\"nblocks\": 2}"},
           {"arrow_config", "{\"top_k\": 2}"},
           {"kasa_config", "{\"beta\": 1}"},
           {"monteclora_config", "{\"x\": 1}"},
           {"velora_config", "{\"x\": 1}"},
           {"bias", "\"some\""},
           {"a_key_of_next_year", "true"},
           {"r", "0"},
           {"r", "\"8\""},
           {"lora_alpha", "\"x\""},
           {"use_dora", "3"},
           {"target_modules", "[3]"},
           {"target_modules", "\"(q_proj\""},
           {"rank_pattern", "{\"q_proj\": -1}"},
           {"rank_pattern", "{\"(?=x)\": 8}"},
           {"alpha_pattern", "[1]"},
           {"trainable_token_indices", "[1, 1]"},
           {"trainable_token_indices", "{\"embed_tokens\": [-5]}"}}) {
    const bool is_target = key == "target_modules";
    ExpectError(file.Read((is_target ? "" : good + ", ") + "\"" + key + "\": " + value),
                {"adapter_config.json", "\"" + key});
  }
  // What is null, false or empty asks for nothing.
  EXPECT_TRUE(file.Read(good + R"(, "alora_invocation_tokens": null, "use_qalora": false,
      "arrow_config": {}, "a_key_of_next_year": null, "loftq_config": {"x": 1})")
                  .ok());
  for (const char* kind : {"IA3", "PROMPT_TUNING", "VERA", "lora", ""}) {
    auto read = ReadAdapter("{\"peft_type\": \"" + std::string(kind) + "\"}", "c.json",
                            Checkpoint::FromViews({}, nullptr, "t"));
    ExpectError(read, {"c.json", "peft_type", kind});
  }
}

TEST(AdapterTest, WhatTheConfigNamesMustBeInTheFile) {
  const AdapterFile file = QueryFile(8);
  ExpectError(file.Read(R"("target_modules": ["q_proj", "v_proj"])"), {"v_proj", "adapter.st"});
  ExpectError(file.Read(R"("target_modules": ".*\\.v_proj")"), {"v_proj"});
  ExpectError(file.Read(R"("target_modules": ["q_proj"], "modules_to_save": ["lm_head"])"),
              {"modules_to_save", "lm_head"});
  ExpectError(file.Read(R"("target_modules": ["q_proj"], "trainable_token_indices": [4])"),
              {"trainable_token_indices", "embed_tokens"});
  ExpectError(
      file.Read(R"("target_modules": ["q_proj"], "target_parameters": ["mlp.experts.down_proj"])"),
      {"target_parameters"});
  EXPECT_TRUE(file.Read(R"("target_modules": "all-linear")").ok());
  EXPECT_TRUE(file.Read(R"("target_modules": ".*\\.q_proj")").ok());
}

TEST(AdapterTest, TensorsThatFitNothingAreNamed) {
  const std::string keys = R"("target_modules": ["q_proj"])";
  const auto with = [&](const std::string& name, std::vector<int64_t> shape) {
    AdapterFile file = QueryFile(8);
    file.Add(name, std::move(shape));
    return file.Read(keys);
  };
  for (const char* name : {"model.layers.0.self_attn.k_proj.lora_A.weight",
                           "base_model.model.model.layers.0.self_attn.k_proj.lora_C",
                           "base_model.model.x.vera_lambda_b", "base_model.model.lm_head.weight"}) {
    ExpectError(with(name, {8, 6}), {name});
  }
  // One of a pair.
  const std::string key = "base_model.model.model.layers.0.self_attn.k_proj";
  ExpectError(with(key + ".lora_A.weight", {8, 6}), {"k_proj.lora_A.weight", "lora_B"});
  ExpectError(with(key + ".lora_B.weight", {4, 8}), {"k_proj.lora_B.weight", "lora_A"});
  ExpectError(with(key + ".lora_magnitude_vector", {4}), {"k_proj.lora_magnitude_vector"});
  ExpectError(with(std::string(kQuery) + ".lora_embedding_A", {8, 6}), {"q_proj"});
  // DoRA in the file, and not in the config; and the other way round.
  ExpectError(with(std::string(kQuery) + ".lora_magnitude_vector", {4}), {"use_dora"});
  ExpectError(QueryFile(8).Read(keys + R"(, "use_dora": true)"), {"lora_magnitude_vector"});
  ExpectError(AdapterFile().Read(keys), {"no tensor"});
}

TEST(AdapterTest, ShapesAndNumbersAreChecked) {
  const std::string keys = R"("r": 2, "target_modules": ["q_proj"])";
  const std::string a = std::string(kQuery) + ".lora_A.weight";
  const std::string b = std::string(kQuery) + ".lora_B.weight";
  const auto shaped = [&](std::vector<int64_t> of_a, std::vector<int64_t> of_b) {
    AdapterFile file;
    file.Add(a, std::move(of_a)).Add(b, std::move(of_b));
    return file.Read(keys);
  };
  EXPECT_TRUE(shaped({2, 6}, {4, 2}).ok());
  ExpectError(shaped({2, 6}, {2, 4}), {b, "[2, 4]"});       // turned
  ExpectError(shaped({3, 6}, {4, 3}), {a, "3 rows", "2"});  // another rank
  ExpectError(shaped({2}, {4, 2}), {a, "[2]"});
  ExpectError(shaped({2, 0}, {4, 2}), {a, "[2, 0]"});
  ExpectError(shaped({2, 6, 1}, {4, 2}), {a});
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AdapterFile file = QueryFile(2);
    file.At(a, 7) = value;
    ExpectError(file.Read(keys), {a, "element 7"});
  }
}

TEST(AdapterTest, AllPartsOfAModuleAreRead) {
  AdapterFile file = QueryFile(2);
  const std::string embedding = "base_model.model.model.embed_tokens";
  file.Add(std::string(kQuery) + ".lora_B.bias", {4})
      .Add(std::string(kQuery) + ".base_layer.bias", {4});
  file.Add(std::string(kQuery) + ".lora_magnitude_vector", {4});
  file.Add(embedding + ".lora_embedding_A", {2, 9}).Add(embedding + ".lora_embedding_B", {6, 2});
  file.Add(embedding + ".base_layer.weight", {9, 6});
  file.Add(embedding + ".token_adapter.trainable_tokens_delta", {2, 6});
  file.Add("base_model.model.lm_head.weight", {9, 6});
  auto read = file.Read(R"("r": 2, "use_dora": true, "bias": "lora_only", "lora_bias": true,
      "target_modules": ["q_proj", "embed_tokens"], "modules_to_save": ["lm_head"],
      "trainable_token_indices": [7, 3], "base_model_name_or_path": "me/base")");
  ASSERT_TRUE(read.ok()) << ErrorOf(read);
  const Adapter& adapter = **read;
  ASSERT_EQ(adapter.changes.size(), 3u);
  EXPECT_EQ(adapter.base, "me/base");
  const AdapterChange& head = adapter.changes[0];
  EXPECT_EQ(head.module, "lm_head");
  EXPECT_NE(head.weight.data, nullptr);
  EXPECT_FALSE(head.is_low_rank());
  const AdapterChange& table = adapter.changes[1];
  EXPECT_TRUE(table.is_embedding);
  EXPECT_EQ(table.tokens, (std::vector<TokenId>{7, 3}));
  const AdapterChange& query = adapter.changes[2];
  EXPECT_NE(query.magnitude.data, nullptr);
  EXPECT_NE(query.bias.data, nullptr);
  EXPECT_NE(query.b_bias.data, nullptr);
}

TEST(AdapterTest, EqualContentHasOneHash) {
  const std::string keys = R"("r": 2, "target_modules": ["q_proj"])";
  const auto hash = [](const AdapterFile& file, const std::string& with) {
    auto read = file.Read(with);
    EXPECT_TRUE(read.ok()) << ErrorOf(read);
    return read.ok() ? (*read)->hash : ContentHash{};
  };
  const ContentHash first = hash(QueryFile(2), keys);
  EXPECT_EQ(hash(QueryFile(2), keys + R"(, "lora_dropout": 0.1, "base_model_name_or_path": "x")"),
            first);
  EXPECT_EQ(HashText(first).size(), 32u);
  EXPECT_NE(hash(QueryFile(2), keys + R"(, "lora_alpha": 9)"), first);
  AdapterFile other = QueryFile(2);
  other.At(std::string(kQuery) + ".lora_A.weight", 3) += 1;
  EXPECT_NE(hash(other, keys), first);
}

TEST(AdapterTest, FoldersOfOldAndOtherKindsAreNamed) {
  const TemporaryFolder folder;
  const std::string dir = folder.Path("");
  EXPECT_FALSE(IsAdapterDir(dir));
  EXPECT_EQ(LoadAdapter(dir).status().code(), StatusCode::kNoInput);
  std::ofstream(dir + "/adapter_config.json") << R"({"peft_type": "LORA"})";
  EXPECT_TRUE(IsAdapterDir(dir));
  EXPECT_FALSE(LoadAdapter(dir).ok());
  std::ofstream(dir + "/adapter_model.bin") << "x";
  ExpectError(LoadAdapter(dir), {"adapter_model.bin", "pickle"});
  std::ofstream(dir + "/adapter_config.json") << R"({"peft_type": "IA3"})";
  ExpectError(LoadAdapter(dir), {"IA3"});
  std::ofstream(dir + "/adapter_model.safetensors") << "no header";
  std::ofstream(dir + "/adapter_config.json") << R"({"peft_type": "LORA"})";
  ExpectError(LoadAdapter(dir), {"adapter_model.safetensors"});
}

// Texts of which bytes were changed, cut out or doubled: an error or an adapter, and nothing else.
TEST(AdapterTest, DamagedConfigsEndInAnError) {
  const std::string good = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4.5,
      "target_modules": ".*\\.(q|k)_proj", "rank_pattern": {"^a.*[bc]+(d|e){1,3}$": 2},
      "alpha_pattern": {"x{2,}": 3}, "trainable_token_indices": {"embed_tokens": [1, 2]}})";
  uint64_t state = 1;
  const auto draw = [&](size_t bound) {
    return static_cast<size_t>(DeriveSeed(7, state++) % bound);
  };
  constexpr std::string_view kBytes = "{}[]()\\\"*+?.|^$,:0129aeE-\x80\xff\x01";
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (size_t changes = 1 + draw(4); changes > 0; --changes) {
      const size_t at = draw(text.size());
      switch (draw(3)) {
        case 0:
          text[at] = kBytes[draw(kBytes.size())];
          break;
        case 1:
          text.erase(at, 1 + draw(6));
          break;
        default:
          text.insert(at, text.substr(draw(text.size()), 1 + draw(12)));
      }
      if (text.empty()) text = "{";
    }
    auto config = weights::ReadAdapterConfig(text, "c");
    if (config.ok()) config->RankOf("model.layers.0.self_attn.q_proj");
  }
}

TEST(NamePatternTest, RepetitionsCannotTakeForever) {
  for (const char* pattern :
       {"(((((a{1000}){1000}){1000}){1000}){1000})", "((((){1000}){1000}){1000}){1000}",
        "(a*)*(b*)*((c*)*)*", "((((((((((a?)+)+)+)+)+)+)+)+)+)+b",
        "(((((((((((((((((((((((((((((((((((((((((((((((((((a"}) {
    auto read = weights::NamePattern::Parse(pattern);
    if (read.ok()) EXPECT_FALSE(read->Matches(std::string(300, 'a') + "x"));
  }
}

}  // namespace
}  // namespace minisgl
