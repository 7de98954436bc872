// See adapter_ops.h.
#include "model/adapter_ops.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::model {

HeadRows RowsOfHeads(const HeadLinearParams& params) {
  const int64_t num_heads = params.weights->num_experts, copied = params.num_copied;
  const int64_t x_head = copied + params.weights->num_in;
  const int64_t out_head = copied + params.weights->num_out;
  return {.num_tokens = params.num_tokens,
          .x_token = num_heads * x_head,
          .x_head = x_head,
          .out_token = params.out_stride == 0 ? num_heads * out_head : params.out_stride,
          .out_head = out_head};
}

AdapterOps::AdapterOps(Ops* ops, const Rank& rank, std::vector<AdapterSite> sites,
                       const Matrix* embedding)
    : ForwardingOps(ops), rank_(rank), sites_(std::move(sites)), embedding_(embedding) {
  for (size_t i = 0; i < sites_.size(); ++i) {
    const AdapterSite& site = sites_[i];
    const void* const key =
        site.matrix == nullptr ? static_cast<const void*>(site.experts) : site.matrix;
    site_of_.emplace(key, static_cast<int32_t>(i));
  }
}

void AdapterOps::SetAdapter(AdapterSlot slot, std::shared_ptr<const PackedAdapter> adapter) {
  const auto at = static_cast<size_t>(slot);
  if (at >= slots_.size()) slots_.resize(at + 1);
  slots_[at] = std::move(adapter);
}

void AdapterOps::AddRow(AdapterSlot slot, int32_t row) {
  for (size_t i = 0; i < num_active_; ++i) {
    if (active_[i].slot == slot) return active_[i].rows.push_back(row);
  }
  const auto at = static_cast<size_t>(slot);
  MINISGL_CHECK(at < slots_.size() && slots_[at] != nullptr, "a row of the empty slot {}", slot);
  if (num_active_ == active_.size()) active_.emplace_back();
  Active& active = active_[num_active_++];
  active.adapter = slots_[at].get();
  active.slot = slot;
  active.rows.assign(1, row);
}

void AdapterOps::BeginTokens(std::span<const AdapterSpan> spans) {
  spans_.assign(spans.begin(), spans.end());
  num_active_ = 0;
  for (const AdapterSpan& span : spans_) {
    for (int32_t i = 0; i < span.count; ++i) AddRow(span.slot, span.token + i);
  }
}

void AdapterOps::BeginRows(const int32_t* tokens, int32_t count) {
  num_active_ = 0;
  if (spans_.empty()) return;
  for (int32_t row = 0; row < count; ++row) {
    const int32_t token = tokens == nullptr ? row : tokens[row];
    // Spans are in order.
    const auto after =
        std::upper_bound(spans_.begin(), spans_.end(), token,
                         [](int32_t one, const AdapterSpan& span) { return one < span.token; });
    if (after == spans_.begin()) continue;
    const AdapterSpan& span = *std::prev(after);
    if (token < span.token + span.count) AddRow(span.slot, row);
  }
}

int32_t AdapterOps::ChangedSite(const void* matrices) const {
  if (num_active_ == 0) return -1;
  const auto found = site_of_.find(matrices);
  if (found == site_of_.end()) return -1;
  const auto at = static_cast<size_t>(found->second);
  for (size_t i = 0; i < num_active_; ++i) {
    const PackedAdapter& adapter = *active_[i].adapter;
    if (adapter.products[at] != nullptr || !adapter.experts[at].empty()) return found->second;
  }
  return -1;
}

float* AdapterOps::Inner(int64_t count) {
  if (std::ssize(inner_) < count) inner_.resize(static_cast<size_t>(count));
  return inner_.data();
}

void AdapterOps::FusedLinear(const FusedLinearParams& params) {
  if (ChangedSite(params.linear.weight) < 0) return ops_->FusedLinear(params);
  RunParts(params);
}

void AdapterOps::Linear(const LinearParams& params) {
  ops_->Linear(params);
  const int32_t site = ChangedSite(params.weight);
  if (site < 0) return;
  groups_.clear();
  int64_t count = 0;
  for (size_t i = 0; i < num_active_; ++i) {
    const auto& product = active_[i].adapter->products[static_cast<size_t>(site)];
    if (product == nullptr) continue;
    RunWhole(params, *product, active_[i].rows);
    groups_.push_back({&product->matrices, active_[i].rows});
    count += std::ssize(active_[i].rows) * product->matrices.num_ranks;
  }
  ops_->LowRank({.x = params.x,
                 .out = params.out,
                 .groups = groups_,
                 .inner = Inner(count),
                 .out_stride = params.out_stride});
}

// Runs of neighbouring rows at a time.
void AdapterOps::RunWhole(const LinearParams& params, const PackedProduct& product,
                          std::span<const int32_t> rows) {
  if (product.whole.empty()) return;
  const int64_t stride = params.out_stride == 0 ? params.weight->num_out : params.out_stride;
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    for (const WholePart& part : product.whole) {
      ops_->Linear({.x = params.x.At(rows[begin] * params.weight->num_in),
                    .weight = &part.matrix,
                    .bias = nullptr,
                    .out = params.out.At(rows[begin] * stride + part.first_out),
                    .num_tokens = static_cast<int64_t>(end - begin),
                    .out_stride = stride});
    }
    begin = end;
  }
}

void AdapterOps::Embedding(const EmbeddingParams& params) {
  ops_->Embedding(params);
  if (params.table != embedding_) return;
  for (size_t i = 0; i < num_active_; ++i) {
    const Active& active = active_[i];
    if (active.adapter->embedding == nullptr) continue;
    ReplaceEmbeddings(params, active);
    // Ranks add what they look up; the first one has what adapters add.
    if (active.adapter->embedding->product != nullptr && rank_.is_first()) {
      AddEmbeddings(params, active);
    }
  }
}

void AdapterOps::ReplaceEmbeddings(const EmbeddingParams& params, const Active& active) {
  const PackedEmbedding& embedding = *active.adapter->embedding;
  const int64_t width = params.table->num_in;
  for (const int32_t token : active.rows) {
    const int32_t id = params.ids[token];
    const auto found = embedding.row_of.find(id);
    const bool is_row = found != embedding.row_of.end();
    if (!is_row && embedding.whole.data == nullptr) continue;
    const TensorView& from = is_row ? embedding.rows : embedding.whole;
    const int64_t first = (is_row ? found->second : int64_t{id}) * width;
    float* const out = params.out + token * width;
    for (int64_t i = 0; i < width; ++i) {
      out[i] = rank_.is_first() ? from.At(first + i) * params.scale : 0.0f;
    }
  }
}

void AdapterOps::AddEmbeddings(const EmbeddingParams& params, const Active& active) {
  const PackedEmbedding& embedding = *active.adapter->embedding;
  const int64_t rank = embedding.a.shape[0], vocab_size = embedding.a.shape[1];
  float* inner = Inner(std::ssize(active.rows) * rank);
  for (const int32_t token : active.rows) {
    for (int64_t k = 0; k < rank; ++k) {
      *inner++ = embedding.a.At(k * vocab_size + params.ids[token]) * params.scale;
    }
  }
  groups_.assign(1, {&embedding.product->matrices, active.rows});
  ops_->LowRank({.x = nullptr, .out = params.out, .groups = groups_, .inner = inner_.data()});
}

void AdapterOps::ListExpertRows(const ExpertLinearParams& params, const Active& active,
                                size_t site) {
  const auto& products = active.adapter->experts[site];
  expert_begins_.assign(products.size() + 1, 0);
  const int32_t chosen = params.num_chosen;
  const auto visit = [&](const auto& take) {
    for (const int32_t token : active.rows) {
      for (int32_t k = 0; k < chosen; ++k) {
        const int32_t row = token * chosen + k;
        take(static_cast<size_t>(params.experts[row]), row);
      }
    }
  };
  visit([&](size_t expert, int32_t) { ++expert_begins_[expert + 1]; });
  for (size_t i = 1; i < expert_begins_.size(); ++i) expert_begins_[i] += expert_begins_[i - 1];
  expert_rows_.resize(active.rows.size() * static_cast<size_t>(chosen));
  tokens_ = expert_begins_;
  visit([&](size_t expert, int32_t row) {
    expert_rows_[static_cast<size_t>(tokens_[expert]++)] = row;
  });
}

void AdapterOps::HeadLinear(const HeadLinearParams& params) {
  ops_->HeadLinear(params);
  const int32_t site = ChangedSite(params.weights);
  if (site < 0) return;
  const auto num_tokens = static_cast<int32_t>(params.num_tokens);
  for (size_t i = 0; i < num_active_; ++i) {
    const Active& active = active_[i];
    const auto& products = active.adapter->experts[static_cast<size_t>(site)];
    if (products.empty()) continue;
    expert_rows_.clear();
    for (size_t head = 0; head < products.size(); ++head) {
      for (const int32_t token : active.rows) {
        expert_rows_.push_back(static_cast<int32_t>(head) * num_tokens + token);
      }
    }
    groups_.clear();
    int64_t count = 0;
    for (size_t head = 0; head < products.size(); ++head) {
      const size_t rows = active.rows.size();
      groups_.push_back(
          {&products[head]->matrices, std::span(expert_rows_).subspan(head * rows, rows)});
      count += static_cast<int64_t>(rows) * products[head]->matrices.num_ranks;
    }
    ops_->LowRank({.x = params.x.At(params.num_copied),
                   .out = params.out.At(params.num_copied),
                   .groups = groups_,
                   .inner = Inner(count),
                   .heads = RowsOfHeads(params)});
  }
}

void AdapterOps::ExpertLinear(const ExpertLinearParams& params) {
  ops_->ExpertLinear(params);
  const int32_t site = ChangedSite(params.weights);
  if (site < 0) return;
  for (size_t i = 0; i < num_active_; ++i) {
    const auto& products = active_[i].adapter->experts[static_cast<size_t>(site)];
    if (products.empty()) continue;
    ListExpertRows(params, active_[i], static_cast<size_t>(site));
    groups_.clear();
    int64_t count = 0;
    for (size_t expert = 0; expert < products.size(); ++expert) {
      const auto begin = static_cast<size_t>(expert_begins_[expert]);
      const auto rows = static_cast<size_t>(expert_begins_[expert + 1]) - begin;
      if (products[expert] == nullptr || rows == 0) continue;
      groups_.push_back(
          {&products[expert]->matrices, std::span(expert_rows_).subspan(begin, rows)});
      count += static_cast<int64_t>(rows) * products[expert]->matrices.num_ranks;
    }
    ops_->LowRank({.x = params.x,
                   .out = params.out,
                   .groups = groups_,
                   .inner = Inner(count),
                   .rows_per_input = params.x_per_choice ? 1 : params.num_chosen});
  }
}

}  // namespace minisgl::model
