// Damaged model directories: each tensor of a tiny model, damaged in each way, is refused with a
// message that names it and the found and wanted values.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "model/model_weights.h"
#include "model/tiny_model.h"
#include "weights/architectures.h"

namespace minisgl {
namespace {

Status CheckTiny(const ModelConfig& config, const std::vector<FileTensor>& tensors) {
  const TinyModelDir dir;
  const auto checkpoint = WriteCheckpoint(dir, tensors);
  return model::CheckTensors(config, *checkpoint);
}

void ExpectRefused(const Status& status, const std::vector<std::string>& mentions) {
  ASSERT_EQ(status.code(), StatusCode::kBadInput) << status.message();
  EXPECT_EQ(ExitCode(status.code()), 65);
  for (const std::string& mention : mentions) {
    EXPECT_NE(status.message().find(mention), std::string::npos)
        << "\"" << status.message() << "\" does not mention " << mention;
  }
}

// Fills the bytes for whatever shape and dtype a mutation left.
void Resize(FileTensor* tensor) {
  size_t count = 1;
  for (const int64_t size : tensor->shape) count *= static_cast<size_t>(size);
  tensor->bytes.assign(count * (tensor->dtype == "F64" ? 8 : 4), '\0');
}

TEST(TensorCheckTest, WholeModelIsAccepted) {
  const ModelConfig config = TinyConfig();
  const Status status = CheckTiny(config, TinyTensors(config));
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(TensorCheckTest, EveryMissingTensorIsNamed) {
  const ModelConfig config = TinyConfig();
  const auto tensors = TinyTensors(config);
  ASSERT_EQ(tensors.size(), 21u);
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto damaged = tensors;
    damaged.erase(damaged.begin() + static_cast<ptrdiff_t>(i));
    ExpectRefused(CheckTiny(config, damaged), {tensors[i].name});
  }
}

TEST(TensorCheckTest, LayersThatPredictFurtherTokensAreReported) {
  ModelConfig config = TinyConfig();
  auto tensors = TinyTensors(config);
  FileTensor extra = tensors[0];
  for (const char* name : {"eh_proj.weight", "shared_head.norm.weight"}) {
    extra.name = fmt::format("model.layers.{}.{}", config.num_layers, name);
    tensors.push_back(extra);
  }
  ExpectRefused(CheckTiny(config, tensors), {"unknown tensor", "eh_proj.weight"});
  config.num_prediction_layers = 1;
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::kVerbose) lines.push_back(line);
  });
  const Status status = CheckTiny(config, tensors);
  SetLogSink(nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(lines, std::vector<std::string>{
                       "not loaded: 2 tensors of layers that predict further tokens"});
}

TEST(TensorCheckTest, OtherPartsOfAMultimodalModelAreReported) {
  ModelConfig config = TinyConfig();
  auto tensors = TinyTensors(config);
  FileTensor extra = tensors[0];
  for (const char* name : {"vision_tower.layers.0.mlp.weight", "visual.patch_embed.weight",
                           "model.audio_tower.conv.weight"}) {
    extra.name = name;
    tensors.push_back(extra);
  }
  ExpectRefused(CheckTiny(config, tensors), {"unknown tensor", "audio_tower.conv.weight"});
  config.wrapper = "Gemma3ForConditionalGeneration";
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::kVerbose) lines.push_back(line);
  });
  const Status status = CheckTiny(config, tensors);
  SetLogSink(nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(lines, (std::vector<std::string>{"not loaded: 1 tensors of audio",
                                             "not loaded: 2 tensors of images"}));
}

// Tensors that trainers and old conversions leave in files.
TEST(TensorCheckTest, TensorsOutsideTheModelAreAWarning) {
  const ModelConfig config = TinyConfig();
  const auto own = TinyTensors(config);
  const auto warnings_of = [&](const std::vector<std::string>& names,
                               std::vector<int64_t> shape) -> std::vector<std::string> {
    auto tensors = own;
    for (const std::string& name : names) {
      FileTensor extra = tensors[0];
      extra.name = name;
      extra.shape = shape;
      Resize(&extra);
      tensors.push_back(extra);
    }
    std::vector<std::string> warnings;
    SetLogSink([&](LogLevel level, const std::string& line) {
      if (level == LogLevel::kWarning) warnings.push_back(line.substr(line.find("not loaded")));
    });
    const Status status = CheckTiny(config, tensors);
    SetLogSink(nullptr);
    if (!status.ok()) return {status.message()};
    return warnings;
  };
  EXPECT_EQ(warnings_of({}, {}), std::vector<std::string>());
  EXPECT_EQ(warnings_of({"rotary_emb.inv_freq"}, {4}),
            std::vector<std::string>{"not loaded: 1 tensor without elements or outside the model "
                                     "(rotary_emb.inv_freq)"});
  EXPECT_EQ(warnings_of({"opt.a", "opt.b", "opt.c", "v_head.summary.weight", "x", "y", "z"}, {2}),
            std::vector<std::string>{"not loaded: 7 tensors without elements or outside the model "
                                     "(opt.a, opt.b, opt.c, v_head.summary.weight, x and 2 more)"});
  // Without elements it cannot matter, wherever it stands.
  EXPECT_EQ(warnings_of({"model.layers.0.self_attn.shell"}, {0, 4}),
            std::vector<std::string>{"not loaded: 1 tensor without elements or outside the model "
                                     "(model.layers.0.self_attn.shell)"});
  EXPECT_EQ(warnings_of({"model.layers.0.self_attn.rotary_emb.cos_cached"}, {4}),
            std::vector<std::string>());
  for (const char* name : {"model.layers.0.self_attn.gate.weight", "model.extra.weight",
                           "lm_head.bias", "model.layers.7.mlp.up_proj.weight"}) {
    const auto found = warnings_of({name}, {4});
    ASSERT_EQ(found.size(), 1u) << name;
    EXPECT_NE(found[0].find(fmt::format("unknown tensor \"{}\"", name)), std::string::npos)
        << found[0];
  }
}

TEST(TensorCheckTest, EveryWrongShapeIsNamedWithFoundAndWanted) {
  const std::vector<std::function<void(std::vector<int64_t>*)>> mutations = {
      [](auto* shape) { shape->push_back(1); },
      [](auto* shape) { shape->insert(shape->begin(), 1); },
      [](auto* shape) { shape->front() += 1; },
      [](auto* shape) { shape->back() -= 1; },
      [](auto* shape) { shape->front() = 0; },
      [](auto* shape) { shape->clear(); },
  };
  const ModelConfig config = TinyConfig();
  const auto tensors = TinyTensors(config);
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const auto& mutate : mutations) {
      auto damaged = tensors;
      mutate(&damaged[i].shape);
      Resize(&damaged[i]);
      ExpectRefused(CheckTiny(config, damaged),
                    {tensors[i].name, ShapeToString(damaged[i].shape), "wanted ["});
    }
  }
}

TEST(TensorCheckTest, EveryWrongDTypeIsNamed) {
  const ModelConfig config = TinyConfig();
  const auto tensors = TinyTensors(config);
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const char* dtype : {"I32", "F64"}) {
      auto damaged = tensors;
      damaged[i].dtype = dtype;
      Resize(&damaged[i]);
      ExpectRefused(CheckTiny(config, damaged), {tensors[i].name, dtype});
    }
  }
}

TEST(TensorCheckTest, TensorsOfDifferentWidthsAreAccepted) {
  const ModelConfig config = TinyConfig();
  auto tensors = TinyTensors(config);
  for (FileTensor& tensor : tensors) {
    if (!tensor.name.ends_with("proj.weight")) continue;
    tensor.dtype = "BF16";
    tensor.bytes.resize(tensor.bytes.size() / 2);
  }
  const Status status = CheckTiny(config, tensors);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(TensorCheckTest, UnknownTensorIsNamed) {
  const ModelConfig config = TinyConfig();
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.2.mlp.up_proj.weight",
        "model.layers.00.mlp.up_proj.weight", "model.layers.{}.mlp.up_proj.weight", "lm_head.bias",
        "model.x"}) {
    auto tensors = TinyTensors(config);
    tensors.push_back(FileTensor::F32(name, {2}, {1, 2}));
    ExpectRefused(CheckTiny(config, tensors), {name, "LlamaForCausalLM", "2 layers"});
  }
}

TEST(TensorCheckTest, FewerLayersThanTheFileHoldsIsRefused) {
  ModelConfig config = TinyConfig();
  const auto tensors = TinyTensors(config);
  config.num_layers = 1;
  config.layers.resize(1);
  ExpectRefused(CheckTiny(config, tensors), {"model.layers.1."});
}

TEST(TensorCheckTest, MoreLayersThanTheFileHoldsEndAtTheFirstMissing) {
  ModelConfig config = TinyConfig();
  const auto tensors = TinyTensors(config);
  config.num_layers = 10000;
  config.layers.resize(10000);
  ExpectRefused(CheckTiny(config, tensors), {"model.layers.2.input_layernorm.weight"});
}

TEST(TensorCheckTest, StoredRotaryFrequenciesArePassedOver) {
  const ModelConfig config = TinyConfig();
  auto tensors = TinyTensors(config);
  tensors.push_back(
      FileTensor::F32("model.layers.0.self_attn.rotary_emb.inv_freq", {4}, {1, 1, 1, 1}));
  const Status status = CheckTiny(config, tensors);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(TensorCheckTest, HeadOfATiedModelMayBeStored) {
  ModelConfig config = TinyConfig();
  const auto with_head = TinyTensors(config);
  config.tie_word_embeddings = true;
  EXPECT_TRUE(CheckTiny(config, TinyTensors(config)).ok());
  EXPECT_TRUE(CheckTiny(config, with_head).ok());
}

// As some programs store tied weights.
TEST(TensorCheckTest, HeadOfATiedModelMayStandForItsEmbedding) {
  ModelConfig config = TinyConfig();
  config.tie_word_embeddings = true;
  auto tensors = TinyTensors(config);
  TensorNamed(&tensors, "model.embed_tokens.weight").name = "lm_head.weight";
  EXPECT_TRUE(CheckTiny(config, tensors).ok());
  config.tie_word_embeddings = false;
  ExpectRefused(CheckTiny(config, tensors), {"model.embed_tokens.weight"});
}

TEST(TensorCheckTest, AbsurdSizesAreRefusedWithoutOverflow) {
  ModelConfig config = TinyConfig();
  const auto tensors = TinyTensors(config);
  config.num_heads = config.head_dim = std::numeric_limits<int32_t>::max();
  config.hidden_size = config.vocab_size = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(CheckTiny(config, tensors).code(), StatusCode::kBadInput);
  const auto bytes = CountDecoderBytes(config, {.weight_format = DType::kF32,
                                                .max_step_tokens = 1 << 20,
                                                .max_logit_rows = 1 << 20,
                                                .max_seq_len = int64_t{1} << 31});
  EXPECT_FALSE(bytes.weights.has_value());
  EXPECT_FALSE(bytes.workspace.has_value());
}

// Architectures with more tensors than Llama: the list of required tensors equals the tensors of
// the reference's files, and each is counted.
TEST(TensorCheckTest, RequiredTensorsAreThoseOfTheReference) {
  for (const char* name : {"separate_head", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const std::string dir = std::string(MINISGL_SOURCE_DIR "/tests/golden/models/") + name;
    const auto config = LoadModelConfig(dir);
    const auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(config.ok() && checkpoint.ok());
    const auto required = weights::RequiredTensors(*config);
    ASSERT_TRUE(required.ok()) << required.status().message();
    EXPECT_EQ(required->size(), (*checkpoint)->Names().size());
    uint64_t bytes = 0;
    for (const weights::RequiredTensor& tensor : *required) {
      const auto view = (*checkpoint)->Get(tensor.name);
      ASSERT_TRUE(view.ok()) << view.status().message();
      EXPECT_EQ(view->shape, tensor.shape) << tensor.name;
      EXPECT_EQ(tensor.is_norm, tensor.name.ends_with("norm.weight")) << tensor.name;
      const size_t width = tensor.shape.size() == 1 ? sizeof(float) : DTypeBytes(config->dtype);
      bytes += static_cast<uint64_t>(view->num_elements()) * width;
    }
    const auto counted = CountDecoderBytes(*config, {.weight_format = config->dtype});
    EXPECT_EQ(counted.weights, bytes);
  }
}

// Int8 counts whole blocks of inputs, whichever way round a file has its matrices, and whole lines
// of codes where tiles may read them; it leaves routers and the weight of a shared part as they
// are. Int4 counts lines of codes, and the tables of tokens as int8.
TEST(TensorCheckTest, QuantizedBytesAreThoseOfWholeBlocks) {
  for (const char* name : {"separate_head", "odd_heads", "mixtral", "qwen2_moe", "gpt_oss"}) {
    SCOPED_TRACE(name);
    const std::string dir = std::string(MINISGL_SOURCE_DIR "/tests/golden/models/") + name;
    const auto config = LoadModelConfig(dir);
    const auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(config.ok() && checkpoint.ok());
    uint64_t bytes = 0, int4_bytes = 0;
    for (const std::string& tensor : (*checkpoint)->Names()) {
      const std::vector<int64_t> shape = (*checkpoint)->Get(tensor)->shape;
      const auto count = static_cast<uint64_t>((*checkpoint)->Get(tensor)->num_elements());
      const bool is_vector = shape.size() == 1 || tensor.ends_with("bias");
      const bool is_router = tensor.ends_with(".gate.weight") ||
                             tensor.ends_with("router.weight") ||
                             tensor.ends_with("shared_expert_gate.weight");
      // gpt_oss stores its experts [X, in, out].
      const bool is_turned = std::string(name) == "gpt_oss" && shape.size() == 3;
      const auto num_in = static_cast<uint64_t>(is_turned ? shape[1] : shape.back());
      const bool is_table =
          tensor.find("embed_tokens") != std::string::npos || tensor == "lm_head.weight";
      const uint64_t blocks = CeilDiv<uint64_t>(num_in, 32);
      const uint64_t lines = CeilDiv<uint64_t>(num_in, 128);
      const bool may_have_lines = config->dtype == DType::kBF16;
      const uint64_t inputs = may_have_lines ? lines * 128 : CeilDiv<uint64_t>(num_in, 64) * 64;
      const uint64_t row_bytes = inputs + blocks * 2;
      if (is_vector) {
        bytes += count * sizeof(float);
        int4_bytes += count * sizeof(float);
      } else if (is_router) {
        bytes += count * DTypeBytes(config->dtype);
        int4_bytes += count * DTypeBytes(config->dtype);
      } else {
        bytes += count / num_in * row_bytes;
        int4_bytes += count / num_in * (is_table ? row_bytes : lines * 64 + blocks * 2);
      }
    }
    const auto counted =
        CountDecoderBytes(*config, {.weight_format = {config->dtype, Quantization::kInt8}});
    EXPECT_EQ(counted.weights, bytes);
    const auto of_int4 =
        CountDecoderBytes(*config, {.weight_format = {config->dtype, Quantization::kInt4}});
    EXPECT_EQ(of_int4.weights, int4_bytes);
  }
}

TEST(TensorCheckTest, WeightBytesCountWhatTheFileHolds) {
  const ModelConfig config = TinyConfig();
  const TinyModelDir dir;
  const auto checkpoint = WriteCheckpoint(dir, TinyTensors(config));
  const auto ops = MakeNaiveOps();
  const DecoderOptions options{
      .weight_format = DType::kF32, .max_step_tokens = 4, .max_logit_rows = 2, .max_seq_len = 8};
  const auto decoder = Decoder::Load(config, *checkpoint, options, ops.get());
  ASSERT_TRUE(decoder.ok()) << decoder.status().message();
  EXPECT_EQ((*decoder)->weight_bytes(), checkpoint->total_bytes());
  EXPECT_GT((*decoder)->workspace_bytes(), 0u);
}

}  // namespace
}  // namespace minisgl
