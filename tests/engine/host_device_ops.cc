// See host_device_ops.h.
#include "engine/host_device_ops.h"

#include <cstring>
#include <utility>

#include "cpu/sampler.h"
#include "minisgl/base/check.h"
#include "minisgl/host_experts.h"

namespace minisgl {
namespace {

using Operation = std::function<void()>;

struct HostEvent final : DeviceEvent {
  std::vector<Operation> copies;  // to the host, queued before the event
  int64_t operations = 0;         // HostDeviceCounters::operations at the event
};

struct HostGraph final : DeviceGraph {
  std::vector<Operation> operations;
  std::shared_ptr<void> memory;
};

// The parameters for the oracle, which reads the number of spans on the host.
template <typename Params>
Params WithCount(Params params) {
  params.segments.count = params.segments.of_row[params.segments.num_rows];
  return params;
}

class HostDeviceOps final : public DeviceOps {
 public:
  HostDeviceOps(uint64_t total_bytes, HostDeviceFaults faults,
                std::shared_ptr<HostDeviceCounters> counters, DType activation_dtype)
      : total_bytes_(total_bytes),
        faults_(faults),
        counters_(counters != nullptr ? std::move(counters)
                                      : std::make_shared<HostDeviceCounters>()),
        ops_(MakeNaiveOps(activation_dtype)) {}

  std::string Name() const override { return "host device"; }
  DType activation_dtype() const override { return ops_->activation_dtype(); }

  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    const auto bytes = static_cast<int64_t>(num_bytes);
    if (++counters_->allocations == faults_.fail_allocate ||
        counters_->live_bytes + bytes > static_cast<int64_t>(total_bytes_)) {
      return Status(StatusCode::kOutOfMemory, "the host device is full");
    }
    MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory, ops_->Allocate(num_bytes));
    counters_->live_bytes += bytes;
    return std::shared_ptr<void>(memory.get(), [memory, bytes, counters = counters_](void*) {
      counters->live_bytes -= bytes;
    });
  }
  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override {
    return ops_->PackMatrix(parts, format);
  }
  Result<Matrix> PackEmbedding(const WeightTensor& table, const WeightFormat& format) override {
    return ops_->PackEmbedding(table, format);
  }
  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format) override {
    return ops_->PackExperts(experts, format);
  }
  void Embedding(const EmbeddingParams& p) override {
    Queue([this, p] { ops_->Embedding(p); });
  }
  void Norm(const NormParams& p) override {
    Queue([this, p] { ops_->Norm(p); });
  }
  void Linear(const LinearParams& p) override {
    Queue([this, p] { ops_->Linear(p); });
  }
  void RopeKvWrite(const RopeKvWriteParams& p) override {
    Queue([this, p] { ops_->RopeKvWrite(p); });
  }
  void Attention(const AttentionParams& p) override {
    Queue([this, p] { ops_->Attention(p); });
  }
  void Activate(const ActivateParams& p) override {
    Queue([this, p] { ops_->Activate(p); });
  }
  void GatherRows(const GatherRowsParams& p) override {
    Queue([this, p] { ops_->GatherRows(p); });
  }
  void Softcap(const SoftcapParams& p) override {
    Queue([this, p] { ops_->Softcap(p); });
  }
  void Route(const RouteParams& p) override {
    Queue([this, p] { ops_->Route(p); });
  }
  void ExpertLinear(const ExpertLinearParams& p) override {
    Queue([this, p] { ops_->ExpertLinear(p); });
  }
  void CombineExperts(const CombineExpertsParams& p) override {
    Queue([this, p] { ops_->CombineExperts(p); });
  }
  // The sum arrives when it is waited for. Until then its place has numbers that spread.
  void BeginHostExperts(const HostExpertsParams& p) override {
    MINISGL_CHECK(host_experts_.layer == nullptr, "two layers' experts at once");
    host_experts_ = p;
    Queue([this, p] {
      const size_t num_bytes = static_cast<size_t>(p.num_tokens * p.width) * DTypeBytes(p.x.dtype);
      host_sum_.assign(num_bytes, std::byte{0});
      std::memset(p.out.data, 0xff, num_bytes);
      const int64_t num_real = p.num_real == nullptr ? p.num_tokens : *p.num_real;
      counters_->host_rows += num_real;
      try {
        if (num_real > 0 && status_.ok()) {
          p.layer->Run({.x = p.x,
                        .experts = p.experts,
                        .shares = p.shares,
                        .out = {host_sum_.data(), p.out.dtype},
                        .num_tokens = num_real});
        }
      } catch (const std::exception& error) {
        status_ = MakeStatus(StatusCode::kInternal,
                             "the host device: experts on the CPU failed ({})", error.what());
      }
    });
  }
  void EndHostExperts() override {
    const HostExpertsParams p = std::exchange(host_experts_, {});
    Queue([this, p] { std::memcpy(p.out.data, host_sum_.data(), host_sum_.size()); });
  }
  void ShortConv(const ShortConvParams& p) override {
    Queue([this, p] { ops_->ShortConv(WithCount(p)); });
  }
  void Recurrence(const RecurrenceParams& p) override {
    Queue([this, p] { ops_->Recurrence(WithCount(p)); });
  }
  bool HasAdapterSlots() const override { return true; }
  void SlotLowRank(const SlotLowRankParams& p) override {
    Queue([this, p] { ops_->SlotLowRank(p); });
  }
  void SlotEmbeddings(const SlotEmbeddingParams& p) override {
    Queue([this, p] { ops_->SlotEmbeddings(p); });
  }
  void HeadLinear(const HeadLinearParams& p) override {
    Queue([this, p] { ops_->HeadLinear(p); });
  }
  void PlaceRows(const PlaceRowsParams& p) override {
    Queue([this, p] { ops_->PlaceRows(p); });
  }
  void MixRotary(const MixRotaryParams& p) override {
    Queue([this, p] { ops_->MixRotary(p); });
  }
  void Sample(const SampleParams&) override { MINISGL_CHECK(false, "a device samples places"); }

  Status status() const override { return status_; }
  DeviceMemoryInfo MemoryInfo() override {
    const uint64_t others = counters_->captures == 1 ? faults_.other_bytes : 0;
    return {total_bytes_ - static_cast<uint64_t>(counters_->live_bytes) - others, total_bytes_};
  }
  Status Reserve(const DeviceLimits&) override { return Status(); }
  uint64_t ReservedBytes(const DeviceLimits&) const override { return 0; }
  Result<std::shared_ptr<void>> AllocateHost(size_t num_bytes) override {
    return ops_->Allocate(num_bytes);
  }
  void CopyToDevice(void* device, const void* host, size_t num_bytes) override {
    MINISGL_CHECK(graph_ == nullptr, "a copy from the host inside a graph");
    if (status_.ok()) std::memcpy(device, host, num_bytes);
  }
  void CopyToHost(void* host, const void* device, size_t num_bytes) override {
    MINISGL_CHECK(graph_ == nullptr, "a copy to the host inside a graph");
    // Takes the device's bytes as of this point of the queue. The host sees them after the wait.
    auto bytes = std::make_shared<std::string>(static_cast<const char*>(device), num_bytes);
    copies_.push_back([host, bytes] { std::memcpy(host, bytes->data(), bytes->size()); });
  }
  void CopyOnDevice(void* dst, const void* src, size_t num_bytes) override {
    Queue([=] { std::memcpy(dst, src, num_bytes); });
  }
  Result<std::unique_ptr<DeviceEvent>> MakeEvent() override {
    return std::unique_ptr<DeviceEvent>(new HostEvent);
  }
  void Record(DeviceEvent* event) override {
    static_cast<HostEvent*>(event)->copies = std::exchange(copies_, {});
    static_cast<HostEvent*>(event)->operations = counters_->operations;
  }
  Status Wait(DeviceEvent* event) override {
    if (counters_->waits == 0) counters_->at_start = counters_->operations;
    const int64_t behind = counters_->operations - static_cast<HostEvent*>(event)->operations;
    counters_->waits_before_others += behind > 0 ? 1 : 0;
    if (++counters_->waits == faults_.fail_wait && status_.ok()) {
      status_ = Status(StatusCode::kInternal, "the host device broke");
    }
    for (const Operation& copy : std::exchange(static_cast<HostEvent*>(event)->copies, {})) copy();
    return status_;
  }
  bool IsReached(DeviceEvent* event) override {
    return !status_.ok() || static_cast<HostEvent*>(event)->copies.empty();
  }
  // The host device has no clock: 1 ms passes between any two events.
  Result<double> ElapsedMs(DeviceEvent*, DeviceEvent*) override { return 1.0; }
  Status Synchronize() override {
    for (const Operation& copy : std::exchange(copies_, {})) copy();
    return status_;
  }

  Status BeginCapture() override {
    graph_ = std::make_unique<HostGraph>();
    return status_;
  }
  Result<std::unique_ptr<DeviceGraph>> EndCapture() override {
    auto graph = std::exchange(graph_, nullptr);
    if (++counters_->captures == faults_.fail_capture) {
      return Status(StatusCode::kOutOfMemory, "no memory for a graph");
    }
    if (faults_.graph_bytes > 0) {
      MINISGL_ASSIGN_OR_RETURN(graph->memory, Allocate(faults_.graph_bytes));
    }
    return std::unique_ptr<DeviceGraph>(std::move(graph));
  }
  void Replay(DeviceGraph* graph) override {
    ++counters_->replays;
    if (!status_.ok()) return;
    for (const Operation& operation : static_cast<HostGraph*>(graph)->operations) {
      ++counters_->operations;
      operation();
    }
  }

  void ApplyPlanWrites(const PlanWritesParams& params) override;
  void PrepareTokens(const PrepareTokensParams& params) override;
  void PlanAttention(const AttentionPlanParams& p) override {
    Queue([this, p] {
      counters_->groups = p.shared.num_groups == nullptr ? 0 : *p.shared.num_groups;
    });
  }
  void SamplePlaces(const DeviceSampleParams& params) override;
  void AcceptTokens(const AcceptTokensParams& params) override;
  void KeepStates(const KeepStatesParams& p) override {
    Queue([p] {
      const auto row_bytes = static_cast<size_t>(p.width) * DTypeBytes(p.states.dtype);
      auto* const states = static_cast<std::byte*>(p.states.data);
      for (int32_t i = 0; i < p.num_items; ++i) {
        const KeptState& item = p.items[i];
        const int32_t accepted = item.row < 0 ? item.least : p.num_accepted[item.row];
        if (accepted < item.least || accepted > item.most) continue;
        std::memcpy(states + static_cast<size_t>(item.to) * row_bytes,
                    states + static_cast<size_t>(item.from) * row_bytes, row_bytes);
      }
    });
  }
  void MapTokens(const MapTokensParams& p) override {
    Queue([p] {
      for (int32_t i = 0; i < p.num_tokens; ++i) {
        DeviceToken& token = p.tokens[i];
        if (token.outcome != static_cast<int32_t>(RowResult::Outcome::kToken)) continue;
        token.token = p.ids[token.token];
      }
    });
  }

 private:
  void Queue(Operation operation) {
    if (graph_ != nullptr) {
      graph_->operations.push_back(std::move(operation));
    } else if (status_.ok()) {
      ++counters_->operations;
      operation();
    }
  }
  void SamplePlace(const DeviceSampleParams& p, int32_t place);

  const uint64_t total_bytes_;
  const HostDeviceFaults faults_;
  const std::shared_ptr<HostDeviceCounters> counters_;
  const std::unique_ptr<Ops> ops_;
  Status status_;
  std::shared_ptr<void> loaded_;      // by the first step
  std::unique_ptr<HostGraph> graph_;  // the one being captured, or null
  std::vector<Operation> copies_;     // to the host, since the last event
  cpu::Sampler sampler_;
  HostExpertsParams host_experts_ = {};  // begun, and not ended
  std::vector<std::byte> host_sum_;
};

void HostDeviceOps::ApplyPlanWrites(const PlanWritesParams& p) {
  Queue([p] {
    for (int32_t i = 0; i < p.num_page_table_writes; ++i) {
      const PageTableWrite& write = p.page_table_writes[i];
      for (int32_t j = 0; j < write.count; ++j) {
        p.page_table[write.table_row * p.page_table_stride + write.first + j] =
            p.pages[write.offset + j];
      }
    }
    for (int32_t i = 0; i < p.num_token_pool_writes; ++i) {
      const TokenPoolWrite& write = p.token_pool_writes[i];
      for (int32_t j = 0; j < write.count; ++j) {
        p.token_pool[write.table_row * p.token_pool_stride + write.first + j] =
            p.tokens[write.offset + j];
      }
    }
    if (p.front_bytes > 0) {
      std::memcpy(p.front_copy, p.front, static_cast<size_t>(p.front_bytes));
    }
  });
}

void HostDeviceOps::PrepareTokens(const PrepareTokensParams& p) {
  if (graph_ == nullptr && ++counters_->runs == 1 && faults_.load_bytes > 0) {
    const auto loaded = Allocate(faults_.load_bytes);
    if (loaded.ok()) {
      loaded_ = *loaded;
    } else if (status_.ok()) {
      status_ = loaded.status();
    }
  }
  Queue([p] {
    MINISGL_CHECK(p.row_begin[p.num_rows] == p.num_tokens, "{} tokens in rows, {} in the step",
                  p.row_begin[p.num_rows], p.num_tokens);
    for (int32_t row = 0; row < p.num_rows; ++row) {
      for (int32_t t = p.row_begin[row]; t < p.row_begin[row + 1]; ++t) {
        const int32_t position = p.kv_len[row] - (p.row_begin[row + 1] - t);
        const int32_t page =
            p.page_table[p.table_row[row] * p.page_table_stride + position / p.page_size];
        p.token_ids[t] = p.token_pool[p.table_row[row] * p.token_pool_stride + position];
        p.positions[t] = position;
        p.slots[t] = int64_t{page} * p.page_size + position % p.page_size;
      }
    }
  });
}

void HostDeviceOps::SamplePlaces(const DeviceSampleParams& p) {
  Queue([this, p] {
    for (int32_t place = 0; place < p.num_places; ++place) SamplePlace(p, place);
  });
}

void HostDeviceOps::SamplePlace(const DeviceSampleParams& p, int32_t place) {
  const DeviceSampling& from = p.places[place];
  SamplingParams sampling;
  sampling.temperature = from.temperature;
  sampling.top_k = from.top_k;
  sampling.top_p = from.top_p;
  sampling.min_p = from.min_p;
  sampling.repetition_penalty = from.repetition_penalty;
  sampling.presence_penalty = from.presence_penalty;
  sampling.frequency_penalty = from.frequency_penalty;
  sampling.seed = from.seed;
  sampling.num_logprobs = from.num_logprobs;
  for (int32_t i = from.bias_begin; i < from.bias_end; ++i) {
    sampling.logit_bias.emplace_back(p.bias_ids[i], p.bias_values[i]);
  }
  sampling.min_tokens = from.history_len - from.prompt_len + 1;
  sampling.banned_until_min.assign(p.banned_ids + from.banned_begin,
                                   p.banned_ids + from.banned_end);
  const uint32_t* const mask = p.mask_of == nullptr || p.mask_of[place] < 0
                                   ? nullptr
                                   : p.masks + p.mask_of[place] * MaskWords(p.vocab_size);
  RowResult result;
  sampler_.SampleRow({.logits = p.logits + place * p.vocab_size,
                      .vocab_size = p.vocab_size,
                      .sampling = &sampling,
                      .history = p.token_pool + from.table_row * p.token_pool_stride,
                      .prompt_len = from.prompt_len,
                      .history_len = from.history_len,
                      .mask = mask},
                     &result);
  p.sampled[place] = {result.token, static_cast<int32_t>(result.outcome), result.logprob,
                      static_cast<int32_t>(result.top_logprobs.size())};
  MINISGL_CHECK(std::ssize(result.top_logprobs) <= p.max_logprobs, "{} ranks",
                result.top_logprobs.size());
  std::copy(result.top_logprobs.begin(), result.top_logprobs.end(),
            p.top_logprobs + int64_t{place} * p.max_logprobs);
}

// Results that it stores on the host arrive like a copy.
void HostDeviceOps::AcceptTokens(const AcceptTokensParams& p) {
  Queue([this, p] {
    const auto is_token = [&](int32_t place) {
      return p.sampled[place].outcome == static_cast<int32_t>(RowResult::Outcome::kToken);
    };
    for (int32_t row = 0; row < p.num_rows; ++row) {
      const int32_t begin = p.place_begin[row];
      const int32_t num_drafts = p.place_begin[row + 1] - begin - 1;
      p.num_accepted[row] = 0;
      if (num_drafts < 0) continue;
      const int32_t first = p.kv_len[row] - num_drafts;
      int32_t* const tokens = p.token_pool + p.table_row[row] * p.token_pool_stride;
      int32_t accepted = 0;
      while (accepted < num_drafts && is_token(begin + accepted) &&
             p.sampled[begin + accepted].token == tokens[first + accepted]) {
        ++accepted;
      }
      if (is_token(begin + accepted) && first + accepted < p.token_pool_stride) {
        tokens[first + accepted] = p.sampled[begin + accepted].token;
      }
      p.num_accepted[row] = accepted;
    }
    if (p.host == nullptr) return;
    const std::vector<DeviceToken> sampled(p.sampled, p.sampled + p.place_begin[p.num_rows]);
    const std::vector<int32_t> accepted(p.num_accepted, p.num_accepted + p.num_rows);
    copies_.push_back([host = *p.host, sampled, accepted] {
      std::copy(sampled.begin(), sampled.end(), host.sampled);
      std::copy(accepted.begin(), accepted.end(), host.num_accepted);
    });
  });
}

}  // namespace

std::unique_ptr<DeviceOps> MakeHostDeviceOps(uint64_t total_bytes, HostDeviceFaults faults,
                                             std::shared_ptr<HostDeviceCounters> counters,
                                             DType activation_dtype) {
  return std::make_unique<HostDeviceOps>(total_bytes, faults, std::move(counters),
                                         activation_dtype);
}

}  // namespace minisgl
