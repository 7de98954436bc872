// Quantized checkpoints inside a multimodal model: checkpoints of a text model alone, with tensors
// renamed as multimodal models name them, beside tensors of images. Their logits are the same to
// the bit.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden_models.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/ops.h"
#include "minisgl/weights/checkpoint.h"
#include "model/tiny_model.h"

namespace minisgl {
namespace {

struct Wrapped {
  const char* golden;
  const char* wrapper;
  const char* wrapper_type;
};

struct TextNames {
  const char *prefix, *head;
};
constexpr TextNames kNames[] = {{"language_model.model.", "language_model.lm_head"},
                                {"model.language_model.", "lm_head"},
                                {"model.", "lm_head"}};

std::string Renamed(const std::string& name, const TextNames& names) {
  constexpr std::string_view kModel = "model.", kHead = "lm_head";
  if (name.starts_with(kModel)) return names.prefix + name.substr(kModel.size());
  EXPECT_TRUE(name.starts_with(kHead)) << name;
  return names.head + name.substr(kHead.size());
}

const char* StoredName(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kE4M3:
      return "F8_E4M3";
    case DType::kE8M0:
      return "F8_E8M0";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    default:
      return "F32";
  }
}

class WrappedCheckpointTest : public testing::TestWithParam<Wrapped> {
 protected:
  void SetUp() override {
    const Json golden = ReadGolden(GetParam().golden);
    ASSERT_TRUE(golden.is_object());
    dir_ = GoldenModelDir(golden);
    ids_ = ToIds(*golden.Find("cases")->as_array()[1].Find("ids"));
    auto opened = Checkpoint::Open(dir_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    plain_ = std::move(opened).value();
  }

  // The configuration of the model inside the wrapper, whose quantization stands at the top or
  // inside.
  std::string WrappedConfig(bool quantization_at_top) const {
    const auto text = ReadFile(dir_ + "/config.json", uint64_t{1} << 20);
    EXPECT_TRUE(text.ok());
    auto inside = ParseJson(*text);
    EXPECT_TRUE(inside.ok());
    Json outside = Json::Object{};
    outside.Set("architectures", Json::Array{Json(GetParam().wrapper)});
    outside.Set("model_type", GetParam().wrapper_type);
    const Json* quantization = inside->Find("quantization_config");
    EXPECT_NE(quantization, nullptr);
    if (quantization != nullptr && quantization_at_top) {
      outside.Set("quantization_config", *quantization);
      inside->Set("quantization_config", Json());
    }
    outside.Set("text_config", *std::move(inside));
    outside.Set("vision_config", Json::Object{});
    return outside.Dump();
  }

  std::unique_ptr<Checkpoint> Write(const TinyModelDir& dir, const TextNames& names,
                                    bool quantization_at_top) const {
    std::vector<FileTensor> tensors;
    for (const std::string& name : plain_->Names()) {
      const auto view = plain_->GetStored(name);
      EXPECT_TRUE(view.ok());
      tensors.push_back(
          {Renamed(name, names), StoredName(view->dtype), view->shape,
           std::string(reinterpret_cast<const char*>(view->data), view->num_bytes())});
    }
    tensors.push_back(FileTensor::F32("vision_tower.layers.0.weight", {1, 2}, {1, 2}));
    std::ofstream(dir.path() + "/config.json") << WrappedConfig(quantization_at_top);
    return WriteCheckpoint(dir, tensors);
  }

  std::string dir_;
  std::vector<TokenId> ids_;
  std::unique_ptr<Checkpoint> plain_;
};

TEST_P(WrappedCheckpointTest, HasTheLogitsOfTheTextModelAlone) {
  const auto config = LoadModelConfig(dir_);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto ops = MakeCpuOps({.num_threads = 2, .target = TargetOfF32Activations()});
  ASSERT_TRUE(ops.ok());
  const WeightFormat format = {DType::kF32, Quantization::kStored};
  const auto wanted = ComputeLogits(*config, *plain_, format, ops->get(), ids_);
  ASSERT_TRUE(wanted.ok()) << wanted.status().message();
  for (const TextNames& names : kNames) {
    for (const bool at_top : {false, true}) {
      SCOPED_TRACE(std::string(names.prefix) + (at_top ? ", at the top" : ", inside"));
      const TinyModelDir dir;
      const auto checkpoint = Write(dir, names, at_top);
      const auto inner = LoadModelConfig(dir.path());
      ASSERT_TRUE(inner.ok()) << inner.status().message();
      EXPECT_EQ(inner->wrapper, GetParam().wrapper);
      EXPECT_EQ(inner->tie_word_embeddings, config->tie_word_embeddings);
      ASSERT_EQ(inner->quantization.schemes, config->quantization.schemes);
      const auto found = ComputeLogits(*inner, *checkpoint, format, ops->get(), ids_);
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_TRUE(*found == *wanted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WrappedCheckpointTest,
    testing::Values(Wrapped{"quant_ct_int4", "LlavaForConditionalGeneration", "llava"},
                    Wrapped{"quant_ct_mixed", "InternVLForConditionalGeneration", "internvl"},
                    Wrapped{"quant_fp8_block", "InternVLForConditionalGeneration", "internvl"},
                    Wrapped{"quant_gptq", "LlavaOnevisionForConditionalGeneration",
                            "llava_onevision"},
                    Wrapped{"quant_nvfp4_ct", "LlavaNextForConditionalGeneration", "llava_next"},
                    Wrapped{"quant_mxfp8_ct", "LlavaForConditionalGeneration", "llava"}),
    [](const auto& test) { return std::string(test.param.golden); });

}  // namespace
}  // namespace minisgl
