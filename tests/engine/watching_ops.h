// Operations that record the sampler's arguments and check:
// - each token id against the vocabulary,
// - each write of keys and values against the end of its layer,
// - the attention arguments of each layer of a step against the first layer's.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/forwarding_ops.h"

namespace minisgl {

// The sampler's arguments for one row of logits.
struct Sampled {
  std::vector<TokenId> history;
  int32_t prompt_len;
};

class WatchingOps final : public ForwardingOps {
 public:
  explicit WatchingOps(std::vector<Sampled>* sampled) : sampled_(sampled) {}

  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    auto memory = ForwardingOps::Allocate(num_bytes);
    if (memory.ok()) bytes_[memory->get()] = num_bytes;
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
      EXPECT_LE((static_cast<size_t>(last) + 1) * DTypeBytes(kv.base.dtype),
                bytes_.at(kv.base.data))
          << "slot " << params.slots[t];
    }
    ForwardingOps::RopeKvWrite(params);
  }

  // A plan made for one call serves all calls of its step.
  void Attention(const AttentionParams& params) override {
    std::vector<int32_t> rows;
    for (int32_t row = 0; row < params.num_rows; ++row) {
      const int32_t kv_len = params.kv_len[row];
      rows.insert(rows.end(), {params.table_row[row], params.row_begin[row + 1], kv_len});
      const int32_t* pages = params.page_table + params.table_row[row] * params.page_table_stride;
      rows.insert(rows.end(), pages, pages + (kv_len - 1) / params.kv.page_size + 1);
    }
    EXPECT_NE(params.step, 0u);
    EXPECT_EQ(steps_.try_emplace({params.step, params.page_table}, rows).first->second, rows);
    ForwardingOps::Attention(params);
  }

  void Sample(const SampleParams& params) override {
    for (int64_t i = 0; i < params.num_rows; ++i) {
      const int32_t* history = params.history[i];
      sampled_->push_back({{history, history + params.history_len[i]}, params.prompt_len[i]});
    }
    ForwardingOps::Sample(params);
  }

 private:
  std::map<const void*, size_t> bytes_;  // sizes of allocations
  std::map<std::pair<uint64_t, const int32_t*>, std::vector<int32_t>> steps_;  // and page tables
  std::vector<Sampled>* const sampled_;
};

}  // namespace minisgl
