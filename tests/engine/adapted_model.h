// Models of tests/golden with their adapters, for tests: requests that go through them, and the
// answers that transformers and peft give.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduled_run.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/random.h"
#include "minisgl/model/adapters.h"
#include "minisgl/model/model_list.h"
#include "minisgl/weights/adapter.h"
#include "model/adapter_fit.h"
#include "weights/architectures.h"

namespace minisgl {

struct AdaptedCase {
  AdapterSlot slot = kNoAdapter;
  std::vector<TokenId> prompt, answer;
};

struct AdaptedModel {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  std::vector<std::string> names;
  std::vector<std::shared_ptr<const Adapter>> adapters;
  std::vector<AdaptedCase> cases;

  ModelList List() const {
    ModelList list(config);
    list.SetAdapters(adapters);
    return list;
  }
};

inline std::vector<TokenId> IdsAt(const Json& object, const char* key) {
  std::vector<TokenId> ids;
  for (const Json& id : object.Find(key)->as_array()) {
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  return ids;
}

// The model of tests/golden/models and all its adapters, with the base's answers once. `file`: a
// GGUF file of tests/golden/gguf with the same model, or "".
inline AdaptedModel LoadAdapted(const std::string& base, const std::string& file = "") {
  AdaptedModel model;
  const std::string golden = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/";
  const std::string dir = golden + (file.empty() ? "models/" + base : "gguf/" + file);
  const std::string folder = golden + "adapters/" + base;
  auto config = LoadModelConfig(dir);
  auto checkpoint = Checkpoint::Open(dir);
  MINISGL_CHECK(config.ok() && checkpoint.ok(), "{}", dir);
  model.config = std::move(config).value();
  model.checkpoint = std::move(checkpoint).value();
  const auto add = [&](const std::string& name, const std::string& own,
                       const std::string& answers) {
    auto adapter = LoadAdapter(own);
    MINISGL_CHECK(adapter.ok(), "{}", adapter.status().message());
    const Status fits = CheckAdapterFits(model.config, **adapter);
    MINISGL_CHECK(fits.ok(), "{}", fits.message());
    auto text = ReadFile(answers + "/answers.json", 1 << 20);
    auto json = ParseJson(*text);
    const auto slot = static_cast<AdapterSlot>(model.adapters.size());
    for (const Json& one : json->Find("cases")->as_array()) {
      const auto prompt = IdsAt(one, "prompt_token_ids");
      model.cases.push_back({slot, prompt, IdsAt(one, "token_ids")});
      if (slot == 0) model.cases.push_back({kNoAdapter, prompt, IdsAt(one, "base")});
    }
    model.names.push_back(name);
    model.adapters.push_back(std::move(adapter).value());
  };
  // What was split of another has its answers.
  const auto answers_of = [&](const std::string& own) {
    return std::filesystem::exists(own + "/answers.json") ? own : folder + "/parameters";
  };
  for (const std::string& name : NamesIn(folder)) {
    add(name, folder + "/" + name, answers_of(folder + "/" + name));
  }
  // GGUF files of some of them.
  for (const std::string& one : NamesIn(golden + "gguf_adapters")) {
    if (!one.starts_with(base + "-")) continue;
    const std::string name = one.substr(base.size() + 1, one.rfind('.') - base.size() - 1);
    add(one, golden + "gguf_adapters/" + one, answers_of(folder + "/" + name));
  }
  return model;
}

inline std::vector<Request> RequestsOf(const AdaptedModel& model,
                                       const std::vector<AdaptedCase>& cases) {
  std::vector<Request> requests;
  for (const AdaptedCase& one : cases) {
    Request request;
    request.id = requests.size() + 1;
    request.prompt = one.prompt;
    request.max_tokens = std::ssize(one.answer);
    request.sampling.temperature = 0;
    request.sampling.num_logprobs = 5;
    if (one.slot != kNoAdapter) {
      auto extras = std::make_shared<RowExtras>();
      extras->adapter = one.slot;
      request.extras = std::move(extras);
      request.marks = {{0, model.adapters[static_cast<size_t>(one.slot)]->hash}};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

inline void ExpectAnswers(const AdaptedModel& model, const std::vector<AdaptedCase>& cases,
                          const ScheduledRun& run) {
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<TokenId> ids;
    const auto answer = run.answers.find(i + 1);
    ASSERT_NE(answer, run.answers.end());
    for (const RowResult& result : answer->second) ids.push_back(result.token);
    const AdapterSlot slot = cases[i].slot;
    EXPECT_EQ(ids, cases[i].answer)
        << "request " << i + 1 << ", "
        << (slot == kNoAdapter ? "the base" : model.names[static_cast<size_t>(slot)]);
  }
}

// An adapter of every matrix of the layers, of random numbers.
inline std::shared_ptr<const Adapter> RandomAdapter(const ModelConfig& config, bool is_dora) {
  constexpr int64_t kRank = 4;
  auto memory = std::make_shared<std::vector<std::vector<float>>>();
  std::map<std::string, TensorView> views;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, float scale,
                       float plus) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t draw = DeriveSeed(memory->size(), static_cast<uint64_t>(i)) >> 40;
      values.push_back(plus + scale * (static_cast<float>(draw) / (1 << 23) - 1));
    }
    memory->push_back(std::move(values));
    views[name] = {reinterpret_cast<const std::byte*>(memory->back().data()), DType::kF32,
                   std::move(shape)};
  };
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const auto& spec : weights::LayerTensors(config, layer)) {
      const bool is_projection = spec.name.ends_with("_proj.weight") && spec.dims.size() == 2;
      // DoRA of such a matrix is refused.
      const bool is_refused = is_dora && spec.role == weights::TensorRole::kLatentUp;
      if (!is_projection || is_refused) continue;
      const model::MatrixSizes sizes = model::SizesOf(config, spec);
      const std::string name =
          "base_model.model." +
          spec.name.substr(0, spec.name.size() - std::string(".weight").size());
      add(name + ".lora_A.weight", {kRank, sizes.num_in}, 0.3f, 0);
      add(name + ".lora_B.weight", {sizes.num_out, kRank}, 0.2f, 0);
      if (is_dora) add(name + ".lora_magnitude_vector", {sizes.num_out}, 0.1f, 0.6f);
    }
  }
  auto adapter = ReadAdapter(
      fmt::format(R"({{"peft_type": "LORA", "r": {}, "lora_alpha": 8, "use_dora": {}}})", kRank,
                  is_dora),
      "c", Checkpoint::FromViews(std::move(views), memory, "a"));
  MINISGL_CHECK(adapter.ok(), "{}", adapter.status().message());
  return std::move(adapter).value();
}

}  // namespace minisgl
