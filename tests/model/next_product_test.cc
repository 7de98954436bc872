// LinearParams::next: each product names the matrix of the product after it.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "engine/forwarding_ops.h"
#include "minisgl/model/decoder.h"
#include "minisgl/weights/checkpoint.h"
#include "model/tiny_model.h"

namespace minisgl {
namespace {

// Lists the products and computes nothing.
class ListingOps : public ForwardingOps {
 public:
  struct Product {
    const Matrix* weight;
    const Matrix* next;
  };
  void Linear(const LinearParams& p) override { products.push_back({p.weight, p.next}); }
  void Embedding(const EmbeddingParams&) override {}
  void Norm(const NormParams&) override {}
  void RopeKvWrite(const RopeKvWriteParams&) override {}
  void Attention(const AttentionParams&) override {}
  void Activate(const ActivateParams&) override {}
  void GatherRows(const GatherRowsParams&) override {}
  void Softcap(const SoftcapParams&) override {}
  void Route(const RouteParams&) override {}
  void ExpertLinear(const ExpertLinearParams&) override {}
  void CombineExperts(const CombineExpertsParams&) override {}
  std::vector<Product> products;
};

class NextProductTest : public testing::Test {
 protected:
  // The products of two passes.
  std::vector<ListingOps::Product> Products(const ModelConfig& config,
                                            const Checkpoint& checkpoint) {
    const DecoderOptions options = {
        .weight_format = DType::kF32, .max_step_tokens = 2, .max_logit_rows = 2, .max_seq_len = 8};
    auto decoder = Decoder::Load(config, checkpoint, options, &ops_);
    EXPECT_TRUE(decoder.ok()) << decoder.status().message();
    const std::vector<KvLayer> kv(static_cast<size_t>(config.num_layers));
    for (int pass = 0; pass < 2; ++pass) {
      (*decoder)->Forward({.num_tokens = 1, .num_rows = 1, .kv = kv, .num_logit_tokens = 1});
    }
    return std::exchange(ops_.products, {});
  }
  ListingOps ops_;
};

TEST_F(NextProductTest, ADenseModelNamesEachFollowingMatrix) {
  const TinyModelDir dir;
  const ModelConfig config = TinyConfig();
  const auto checkpoint = WriteCheckpoint(dir, TinyTensors(config));
  const auto products = Products(config, *checkpoint);
  ASSERT_EQ(products.size(), 2 * (4 * static_cast<size_t>(config.num_layers) + 1));
  for (size_t i = 0; i + 1 < products.size(); ++i) {
    EXPECT_EQ(products[i].next, products[i + 1].weight) << "product " << i;
  }
  EXPECT_EQ(products.back().next, products[0].weight);
}

// The matrices of experts are chosen by the router: none is named.
TEST_F(NextProductTest, AModelOfExpertsNamesNothingBeforeExperts) {
  const std::string dir = MINISGL_SOURCE_DIR "/tests/golden/models/mixtral";
  const auto config = LoadModelConfig(dir);
  const auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(config.ok() && checkpoint.ok());
  const auto products = Products(*config, **checkpoint);
  int num_unnamed = 0;
  for (size_t i = 0; i + 1 < products.size(); ++i) {
    if (products[i].next == nullptr) {
      ++num_unnamed;
    } else {
      EXPECT_EQ(products[i].next, products[i + 1].weight) << "product " << i;
    }
  }
  EXPECT_EQ(num_unnamed, 2 * config->num_layers);  // the routers
}

}  // namespace
}  // namespace minisgl
