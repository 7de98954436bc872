// Operations that note what the sampler is given, and hold each token id against the vocabulary and
// each write of keys and values against the end of its layer.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "engine/forwarding_ops.h"

namespace minisgl {

// What the sampler was given, a value for each row of logits.
struct Sampled {
  std::vector<TokenId> history;
  int32_t prompt_len;
};

class WatchingOps final : public ForwardingOps {
 public:
  explicit WatchingOps(std::vector<Sampled>* sampled) : sampled_(sampled) {}

  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    auto memory = ForwardingOps::Allocate(num_bytes);
    if (memory.ok()) floats_[static_cast<float*>(memory->get())] = num_bytes / sizeof(float);
    return memory;
  }

  void Embedding(const EmbeddingParams& params) override {
    for (int64_t t = 0; t < params.num_tokens; ++t) {
      ASSERT_GE(params.ids[t], 0) << "token " << t;
      ASSERT_LT(params.ids[t], params.table->num_out) << "token " << t;
    }
    ForwardingOps::Embedding(params);
  }

  void RopeKvWrite(const RopeKvWriteParams& params) override {
    const KvLayer& kv = params.kv;
    for (int64_t t = 0; t < params.num_tokens; ++t) {
      const int64_t page = params.slots[t] / kv.page_size, offset = params.slots[t] % kv.page_size;
      const int64_t last = page * kv.page_stride + offset * kv.slot_stride +
                           (params.num_kv_heads - 1) * kv.head_stride + kv.v_offset +
                           params.head_dim - 1;
      EXPECT_LT(static_cast<size_t>(last), floats_.at(kv.base.f32())) << "slot " << params.slots[t];
    }
    ForwardingOps::RopeKvWrite(params);
  }

  void Sample(const SampleParams& params) override {
    for (int64_t i = 0; i < params.num_rows; ++i) {
      const int32_t* history = params.history[i];
      sampled_->push_back({{history, history + params.history_len[i]}, params.prompt_len[i]});
    }
    ForwardingOps::Sample(params);
  }

 private:
  std::map<const float*, size_t> floats_;  // sizes of allocations
  std::vector<Sampled>* const sampled_;
};

}  // namespace minisgl
