// A made-up model whose layers differ in heads, in the widths of keys and values and of the
// feed-forward part, and some of which read the keys and values of an earlier layer: against a
// plain transformer in double precision, written here from the formulas, and bit for bit over
// schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/host_device_ops.h"
#include "engine/kv_storage.h"
#include "golden_models.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"

namespace minisgl {
namespace {

using Vector = std::vector<double>;

ModelConfig MixedConfig() {
  ModelConfig config = TinyConfig();  // 4 query heads on 2 KV heads of 8, feed-forward 48
  config.ropes = {{.dim = 8}, {.theta = 500, .dim = 12}};
  config.layers = {
      {},
      {.rope = 1,
       .num_heads = 2,
       .num_kv_heads = 1,
       .head_dim = 16,
       .value_dim = 32,
       .intermediate_size = 24},
      {.num_heads = 6, .kv_layer = 0},
      {.sliding_window = 9, .rope = -1, .num_kv_heads = 4, .value_dim = 20},
      {.sliding_window = 9, .num_kv_heads = 4, .value_dim = 20, .kv_layer = 3},
      {.rope = 1,
       .num_kv_heads = 1,
       .head_dim = 16,
       .value_dim = 32,
       .intermediate_size = 80,
       .kv_layer = 1},
  };
  config.num_layers = static_cast<int32_t>(config.layers.size());
  return config;
}

// The layers of TinyConfig's architecture, one token and one head after another.
class PlainModel {
 public:
  PlainModel(const ModelConfig& config, const std::vector<FileTensor>& tensors) : config_(config) {
    for (const FileTensor& tensor : tensors) {
      const auto* const values = reinterpret_cast<const float*>(tensor.bytes.data());
      tensors_[tensor.name] = {values, values + tensor.bytes.size() / sizeof(float)};
    }
  }

  // Returns the logits of every token.
  std::vector<Vector> Logits(const std::vector<TokenId>& ids) {
    const auto width = static_cast<size_t>(config_.hidden_size);
    std::vector<Vector> stream;
    for (const TokenId id : ids) {
      const auto row = tensors_.at("model.embed_tokens.weight").begin() +
                       static_cast<ptrdiff_t>(static_cast<size_t>(id) * width);
      stream.emplace_back(row, row + static_cast<ptrdiff_t>(width));
    }
    keys_.resize(config_.layers.size());
    values_.resize(config_.layers.size());
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) RunLayer(layer, &stream);
    std::vector<Vector> logits;
    for (const Vector& x : stream) {
      logits.push_back(Multiply("lm_head.weight", Norm("model.norm.weight", x)));
    }
    return logits;
  }

 private:
  void RunLayer(int32_t layer, std::vector<Vector>* stream) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const LayerConfig& its = config_.layers[static_cast<size_t>(layer)];
    for (size_t t = 0; t < stream->size(); ++t) {
      const Vector x = Norm(prefix + "input_layernorm.weight", (*stream)[t]);
      Vector q = Multiply(prefix + "self_attn.q_proj.weight", x);
      Turn(layer, t, &q);
      if (its.kv_layer < 0) {
        keys_[static_cast<size_t>(layer)].push_back(
            Multiply(prefix + "self_attn.k_proj.weight", x));
        Turn(layer, t, &keys_[static_cast<size_t>(layer)].back());
        values_[static_cast<size_t>(layer)].push_back(
            Multiply(prefix + "self_attn.v_proj.weight", x));
      }
      Add(Multiply(prefix + "self_attn.o_proj.weight", Attend(layer, t, q)), &(*stream)[t]);
      const Vector y = Norm(prefix + "post_attention_layernorm.weight", (*stream)[t]);
      Vector gate = Multiply(prefix + "mlp.gate_proj.weight", y);
      const Vector up = Multiply(prefix + "mlp.up_proj.weight", y);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      Add(Multiply(prefix + "mlp.down_proj.weight", gate), &(*stream)[t]);
    }
  }

  Vector Attend(int32_t layer, size_t t, const Vector& q) const {
    const LayerConfig& its = config_.layers[static_cast<size_t>(layer)];
    const LayerShape shape = LayerShapeOf(config_, layer);
    const auto source = static_cast<size_t>(its.kv_layer < 0 ? layer : its.kv_layer);
    const auto dim = static_cast<size_t>(shape.head_dim);
    const auto value_dim = static_cast<size_t>(shape.value_dim);
    const size_t first = its.sliding_window == 0 || t < static_cast<size_t>(its.sliding_window)
                             ? 0
                             : t + 1 - static_cast<size_t>(its.sliding_window);
    Vector out;
    for (int32_t head = 0; head < shape.num_heads; ++head) {
      const auto kv_head = static_cast<size_t>(head / (shape.num_heads / shape.num_kv_heads));
      Vector sum(value_dim, 0.0);
      double total = 0;
      for (size_t key = first; key <= t; ++key) {
        double score = 0;
        for (size_t e = 0; e < dim; ++e) {
          score += q[static_cast<size_t>(head) * dim + e] * keys_[source][key][kv_head * dim + e];
        }
        const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
        total += weight;
        for (size_t e = 0; e < value_dim; ++e) {
          sum[e] += weight * values_[source][key][kv_head * value_dim + e];
        }
      }
      for (const double value : sum) out.push_back(value / total);
    }
    return out;
  }

  void Turn(int32_t layer, size_t position, Vector* heads) const {
    const int32_t rope = config_.layers[static_cast<size_t>(layer)].rope;
    if (rope < 0) return;
    const RopeConfig& its = config_.ropes[static_cast<size_t>(rope)];
    const auto head_dim = static_cast<size_t>(LayerShapeOf(config_, layer).head_dim);
    const auto half = static_cast<size_t>(its.dim) / 2;
    for (size_t head = 0; head < heads->size(); head += head_dim) {
      for (size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(its.theta, -2.0 * static_cast<double>(i) / its.dim);
        double& a = (*heads)[head + i];
        double& b = (*heads)[head + i + half];
        std::tie(a, b) = std::pair(a * std::cos(angle) - b * std::sin(angle),
                                   b * std::cos(angle) + a * std::sin(angle));
      }
    }
  }

  Vector Multiply(const std::string& name, const Vector& x) const {
    const Vector& weights = tensors_.at(name);
    EXPECT_EQ(weights.size() % x.size(), 0u) << name;
    Vector out(weights.size() / x.size(), 0.0);
    for (size_t i = 0; i < weights.size(); ++i) out[i / x.size()] += weights[i] * x[i % x.size()];
    return out;
  }

  Vector Norm(const std::string& name, Vector x) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_eps);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * tensors_.at(name)[i];
    return x;
  }

  static void Add(const Vector& x, Vector* sum) {
    for (size_t i = 0; i < x.size(); ++i) (*sum)[i] += x[i];
  }

  const ModelConfig config_;
  std::map<std::string, Vector> tensors_;
  std::vector<std::vector<Vector>> keys_, values_;  // [layers][tokens]
};

class LayerShapesTest : public testing::Test {
 protected:
  LayerShapesTest()
      : tensors_(TinyTensors(config_)), checkpoint_(WriteCheckpoint(dir_, tensors_)) {}

  void ExpectNearPlain(Ops* ops, DType dtype, double tolerance) {
    const std::vector<TokenId> ids = RandomPrompt(75, 3);
    const auto expected = PlainModel(config_, tensors_).Logits(ids);
    const auto actual = ComputeLogits(config_, *checkpoint_, dtype, ops, ids);
    ASSERT_TRUE(actual.ok()) << actual.status().message();
    const auto vocab = static_cast<size_t>(config_.vocab_size);
    for (size_t t = 0; t < ids.size(); ++t) {
      double largest = 0;
      for (const double logit : expected[t]) largest = std::max(largest, std::abs(logit));
      for (size_t v = 0; v < vocab; ++v) {
        ASSERT_NEAR((*actual)[t * vocab + v], expected[t][v], tolerance * largest)
            << ops->Name() << " " << DTypeName(dtype) << " token " << t << " logit " << v;
      }
    }
  }

  std::vector<RowResult> Generate(DriverOptions options, int32_t chunk) {
    options.max_running_requests = 4;
    EngineDriver driver(config_, *checkpoint_, options);
    TestRow* const first = driver.AddRow(RandomPrompt(75, 3));
    std::vector<RowResult> results = driver.Generate(first, chunk, 20);
    // Again on half of the first row's pages.
    const int32_t num_shared = 37 / options.page_size;
    TestRow* const second = driver.AddRowSharing(*first, num_shared, RandomPrompt(75, 3));
    EXPECT_TRUE(SameResults(driver.Generate(second, chunk, 20), results)) << "after a prefix";
    return results;
  }

  const ModelConfig config_ = MixedConfig();
  const TinyModelDir dir_;
  const std::vector<FileTensor> tensors_;
  const std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(LayerShapesTest, LogitsAreThoseOfThePlainModel) {
  const auto naive = MakeNaiveOps();
  ExpectNearPlain(naive.get(), DType::kF32, 1e-5);
  for (const cpu::CpuTarget target : cpu::AvailableCpuTargets()) {
    for (const int num_threads : {1, 2}) {
      const auto ops =
          MakeCpuOps({.num_threads = num_threads, .target = cpu::CpuTargetName(target)});
      ASSERT_TRUE(ops.ok());
      ExpectNearPlain(ops->get(), DType::kF32, 1e-5);
      // Weights, keys and values rounded to bf16.
      ExpectNearPlain(ops->get(), DType::kBF16, 0.1);
    }
  }
}

TEST_F(LayerShapesTest, EveryPropertyMatters) {
  const auto naive = MakeNaiveOps();
  const std::vector<TokenId> ids = RandomPrompt(30, 3);
  const auto logits = ComputeLogits(config_, *checkpoint_, DType::kF32, naive.get(), ids);
  ASSERT_TRUE(logits.ok());
  ModelConfig other = config_;
  other.layers[4].kv_layer = 0;  // of other widths: the tensors no longer fit
  other.layers[4].num_kv_heads = 2;
  other.layers[4].value_dim = 0;
  other.layers[4].sliding_window = 0;
  EXPECT_EQ(ComputeLogits(other, *checkpoint_, DType::kF32, naive.get(), ids).status().code(),
            StatusCode::kBadInput);
  other = config_;
  other.layers[5].intermediate_size = 0;
  EXPECT_EQ(ComputeLogits(other, *checkpoint_, DType::kF32, naive.get(), ids).status().code(),
            StatusCode::kBadInput);
  other = config_;
  other.layers[2].kv_layer = -1;  // its keys and values are not in the file
  EXPECT_EQ(ComputeLogits(other, *checkpoint_, DType::kF32, naive.get(), ids).status().code(),
            StatusCode::kBadInput);
  other = config_;
  other.layers[4].sliding_window = 5;
  const auto narrow = ComputeLogits(other, *checkpoint_, DType::kF32, naive.get(), ids);
  ASSERT_TRUE(narrow.ok());
  EXPECT_NE(*narrow, *logits);
}

TEST_F(LayerShapesTest, EveryScheduleGivesTheSameBits) {
  for (const std::optional<DType> dtype : {std::optional<DType>(), {DType::kBF16}}) {
    const auto expected = Generate({.weight_dtype = dtype}, kAll);
    ASSERT_EQ(expected.size(), 20u);
    for (const int32_t page_size : {4, 16}) {
      for (const int32_t chunk : {7, 32}) {
        for (const int num_threads : {1, 2}) {
          const auto found = Generate(
              {.page_size = page_size, .num_threads = num_threads, .weight_dtype = dtype}, chunk);
          EXPECT_TRUE(SameResults(found, expected)) << page_size << " " << chunk;
        }
      }
    }
  }
}

TEST_F(LayerShapesTest, MemoryIsThatOfTheLayers) {
  // Layers 0, 1 and 3 each take KV heads times the widths of keys and values.
  EXPECT_EQ(engine::KvBytesPerToken(config_, DType::kF32),
            4u * (2 * (8 + 8) + 1 * (16 + 32) + 4 * (8 + 20)));
  EXPECT_EQ(engine::WindowBytesPerToken(config_, DType::kBF16), 2u * 4 * (8 + 20));
  const auto naive = MakeNaiveOps();
  const auto storage = engine::KvStorage::Make(config_, DType::kF32, 3, 16, naive.get());
  ASSERT_TRUE(storage.ok());
  const std::vector<KvLayer>& kv = storage->layers();
  ASSERT_EQ(kv.size(), 6u);
  EXPECT_EQ(kv[2].base.data, kv[0].base.data);
  EXPECT_EQ(kv[4].base.data, kv[3].base.data);
  EXPECT_EQ(kv[5].base.data, kv[1].base.data);
  EXPECT_EQ(kv[1].page_stride, 16 * (16 + 32));

  uint64_t file_bytes = 0;
  for (const FileTensor& tensor : tensors_) file_bytes += tensor.bytes.size();
  const DecoderOptions options = {
      .weight_format = DType::kF32, .max_step_tokens = 10, .max_logit_rows = 3, .max_seq_len = 64};
  const DecoderBytes bytes = CountDecoderBytes(config_, options);
  EXPECT_EQ(bytes.weights, file_bytes);
  // [T, ...] residual and hidden 32, qkv 4 * 8 + 4 * (8 + 20), attention 4 * 32, gate and up 2 * 80
  // and 80; [N, ...] residual, hidden and logits; cosines and sines of both embeddings.
  EXPECT_EQ(bytes.workspace,
            4u * (10 * (32 + 32 + 144 + 128 + 160 + 80) + 3 * (32 + 32 + 97) + 64 * (8 + 12)));
}

TEST(LayerShapeTest, LayersStateWhatDiffers) {
  const ModelConfig tiny = TinyConfig(), mixed = MixedConfig();
  EXPECT_TRUE(HasUniformAttention(tiny));
  EXPECT_FALSE(HasUniformAttention(mixed));
  EXPECT_EQ(LayerShapes(tiny).size(), 1u);
  EXPECT_EQ(LayerShapes(mixed).size(), 5u);
  EXPECT_EQ(LayerShapeOf(mixed, 0), LayerShapeOf(tiny, 0));
  EXPECT_EQ(LayerShapeOf(mixed, 1), (LayerShape{2, 1, 16, 32, 24}));
  EXPECT_EQ(LayerShapeOf(mixed, 3), (LayerShape{4, 4, 8, 20, 48}));
  ModelConfig other = tiny;
  other.layers[1].intermediate_size = 7;  // not of attention
  EXPECT_TRUE(HasUniformAttention(other));
  other.value_dim = 6;
  EXPECT_TRUE(HasUniformAttention(other));
  EXPECT_EQ(LayerShapeOf(other, 1), (LayerShape{4, 2, 8, 6, 7}));
  other.layers[1].kv_layer = 0;
  EXPECT_FALSE(HasUniformAttention(other));
  other.layers[1].kv_layer = -1;
  other.layers[1].head_dim = 16;  // and values of that width
  EXPECT_FALSE(HasUniformAttention(other));
  EXPECT_EQ(LayerShapeOf(other, 1), (LayerShape{4, 2, 16, 16, 7}));
}

}  // namespace
}  // namespace minisgl
