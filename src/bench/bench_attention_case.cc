#include "bench/bench_attention_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "minisgl/base/random.h"
#include "weights/random_checkpoint.h"

namespace minisgl::bench {
namespace {

constexpr int64_t kFillTokens = 4096;  // tokens of one RopeKvWrite

uint64_t Count(int64_t value) { return static_cast<uint64_t>(value); }

// Fills [count, width] activations of the device with random values.
Status FillRandom(const ActivationArray& array, uint64_t count, uint64_t seed, Ops* ops) {
  const uint64_t num_bytes = count * DTypeBytes(array.ptr().dtype);
  MINISGL_ASSIGN_OR_RETURN(
      const auto values,
      weights::MakeRandomMemory(num_bytes, array.ptr().dtype, 0, kUnitSpread, seed));
  return ops->Upload(array.ptr().data, values.get(), num_bytes);
}

std::vector<int32_t> ShuffledPages(int64_t count, uint64_t seed) {
  std::vector<int32_t> pages(Count(count));
  std::iota(pages.begin(), pages.end(), 0);
  for (size_t i = pages.size(); i > 1; --i) {
    const double u = UniformDouble(seed, i);
    std::swap(pages[i - 1], pages[static_cast<size_t>(u * static_cast<double>(i))]);
  }
  return pages;
}

// Returns [copies * rows, row_pages]: each copy takes consecutive elements of `pages`, first those
// that its rows share.
std::vector<int32_t> MakePageTable(const AttentionSize& size, int copies,
                                   const std::vector<int32_t>& pages) {
  std::vector<int32_t> table;
  const int64_t shared = size.shared_pages(), own = size.row_pages() - shared;
  for (int64_t copy = 0; copy < copies; ++copy) {
    const auto begin = pages.begin() + copy * size.num_pages();
    for (int64_t row = 0; row < size.num_rows; ++row) {
      table.insert(table.end(), begin, begin + shared);
      const auto own_begin = begin + shared + row * own;
      table.insert(table.end(), own_begin, own_begin + own);
    }
  }
  return table;
}

}  // namespace

const char* KvFormatName(const engine::KvFormat& format) {
  return format.kind == KvKind::kFp8 ? "fp8" : DTypeName(format.dtype);
}

uint64_t KvTokenBytes(const AttentionHeads& heads, const engine::KvFormat& format) {
  return engine::KvBytesPerToken(AttentionConfig(heads), format).value_or(0);
}

ModelConfig AttentionConfig(const AttentionHeads& heads) {
  ModelConfig config;
  config.dtype = DType::kBF16;
  config.num_layers = 1;
  config.num_heads = heads.query;
  config.num_kv_heads = heads.kv;
  config.head_dim = heads.dim;
  config.value_dim = heads.latent;
  config.latent.rank = heads.latent;
  return config;
}

Result<std::unique_ptr<AttentionCase>> AttentionCase::Make(const AttentionSize& size,
                                                           const AttentionHeads& heads, int copies,
                                                           uint64_t seed, BenchDevice* device) {
  std::unique_ptr<AttentionCase> made(new AttentionCase(size, heads, device));
  const int64_t num_pages = copies * size.num_pages();
  MINISGL_ASSIGN_OR_RETURN(
      made->kv_,
      engine::KvStorage::Make(AttentionConfig(heads), BenchKvFormat(heads, *device->ops()),
                              static_cast<int32_t>(num_pages), size.page_size, device->ops()));
  MINISGL_RETURN_IF_ERROR(made->FillKv(num_pages * size.page_size, seed));
  MINISGL_RETURN_IF_ERROR(made->MakeArrays(copies, seed));
  if (device->on_gpu()) {
    MINISGL_RETURN_IF_ERROR(made->MakeGroups());
    MINISGL_RETURN_IF_ERROR(made->Plan());
  }
  return made;
}

// Groups all rows over the splits that they share.
Status AttentionCase::MakeGroups() {
  // The last key of a row is never shared, because each step writes it.
  const int32_t shared_pages = std::min(size_.shared_pages(), (size_.kv_len - 1) / size_.page_size);
  const int32_t splits = shared_pages * size_.page_size / AttentionSplitKeys(size_.kv_len);
  if (size_.extend_len > 1 || splits == 0 || size_.num_rows < 2) return Status();
  const std::vector<int32_t> count = {1}, begin = {0, size_.num_rows};
  const std::vector<int32_t> shared_splits(Count(size_.num_rows), splits);
  std::vector<int32_t> rows(Count(size_.num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  const std::pair<DeviceArray<int32_t>*, const std::vector<int32_t>*> arrays[] = {
      {&num_groups_, &count},
      {&group_begin_, &begin},
      {&group_rows_, &rows},
      {&shared_splits_, &shared_splits}};
  for (const auto& [array, values] : arrays) {
    MINISGL_ASSIGN_OR_RETURN(*array, Upload<int32_t>(device_->ops(), *values));
  }
  return Status();
}

Status AttentionCase::Plan() {
  device_->device()->PlanAttention({.row_begin = row_begin_.data(),
                                    .kv_len = kv_len_.data(),
                                    .num_rows = size_.num_rows,
                                    .num_decode_rows = size_.extend_len == 1 ? size_.num_rows : 0,
                                    .num_tokens = size_.num_tokens(),
                                    .num_heads = heads_.query,
                                    .num_kv_heads = heads_.kv,
                                    .head_dim = heads_.dim,
                                    .shared = {.num_groups = num_groups_.data(),
                                               .group_begin = group_begin_.data(),
                                               .rows = group_rows_.data(),
                                               .shared_splits = shared_splits_.data()},
                                    .v_head_dim = heads_.latent,
                                    .values_in_keys = heads_.latent > 0,
                                    .has_codes = heads_.kv_kind == KvKind::kFp8});
  return device_->device()->Synchronize();
}

Status AttentionCase::MakeArrays(int copies, uint64_t seed) {
  Ops* ops = device_->ops();
  const DType dtype = ops->activation_dtype();
  const auto tokens = Count(size_.num_tokens());
  const uint64_t width = Count(heads_.token_width(heads_.query));
  MINISGL_ASSIGN_OR_RETURN(qkv_, ActivationArray::Make(ops, dtype, {tokens, width}));
  MINISGL_RETURN_IF_ERROR(FillRandom(qkv_, tokens * width, DeriveSeed(seed, 1), ops));
  MINISGL_ASSIGN_OR_RETURN(
      out_,
      ActivationArray::Make(ops, dtype, {tokens, Count(heads_.query), Count(heads_.value_dim())}));
  const std::vector<int32_t> table =
      MakePageTable(size_, copies, ShuffledPages(copies * size_.num_pages(), DeriveSeed(seed, 2)));
  std::vector<int32_t> table_row(Count(copies) * Count(size_.num_rows));
  std::iota(table_row.begin(), table_row.end(), 0);
  std::vector<int32_t> row_begin;
  for (int32_t row = 0; row <= size_.num_rows; ++row) row_begin.push_back(row * size_.extend_len);
  const std::vector<int32_t> kv_len(Count(size_.num_rows), size_.kv_len);
  const std::pair<DeviceArray<int32_t>*, const std::vector<int32_t>*> arrays[] = {
      {&page_table_, &table},
      {&table_row_, &table_row},
      {&row_begin_, &row_begin},
      {&kv_len_, &kv_len}};
  for (const auto& [array, values] : arrays) {
    MINISGL_ASSIGN_OR_RETURN(*array, Upload<int32_t>(ops, *values));
  }
  return Status();
}

// Writes a key and a value to every slot, not rotated: at position 0 the angle is 0.
Status AttentionCase::FillKv(int64_t num_slots, uint64_t seed) {
  Ops* ops = device_->ops();
  const DType dtype = ops->activation_dtype();
  const int64_t chunk = std::min(num_slots, kFillTokens);
  const uint64_t count = Count(chunk) * Count(heads_.token_width(heads_.kv));
  MINISGL_ASSIGN_OR_RETURN(const ActivationArray qkv, ActivationArray::Make(ops, dtype, {count}));
  const std::vector<float> ones(Count(heads_.dim / 2), 1.0f), zeros(ones.size(), 0.0f);
  MINISGL_ASSIGN_OR_RETURN(const auto cos, Upload<float>(ops, ones));
  MINISGL_ASSIGN_OR_RETURN(const auto sin, Upload<float>(ops, zeros));
  MINISGL_ASSIGN_OR_RETURN(const auto positions, DeviceArray<int32_t>::Make(ops, {Count(chunk)}));
  MINISGL_ASSIGN_OR_RETURN(const auto slots, DeviceArray<int64_t>::Make(ops, {Count(chunk)}));
  std::vector<int64_t> host_slots(Count(chunk));
  const uint64_t num_bytes = count * DTypeBytes(dtype);
  MINISGL_ASSIGN_OR_RETURN(const auto values,
                           weights::MakeRandomMemory(num_bytes, dtype, 0, kUnitSpread, seed));
  for (int64_t first = 0; first < num_slots; first += chunk) {
    const int64_t tokens = std::min(chunk, num_slots - first);
    std::iota(host_slots.begin(), host_slots.end(), first);
    MINISGL_RETURN_IF_ERROR(
        ops->Upload(slots.data(), host_slots.data(), Count(tokens) * sizeof(int64_t)));
    // Upload again: the operation may overwrite its inputs.
    MINISGL_RETURN_IF_ERROR(ops->Upload(qkv.ptr().data, values.get(), num_bytes));
    ops->RopeKvWrite({.qkv = qkv.ptr(),
                      .positions = positions.data(),
                      .slots = slots.data(),
                      .cos = cos.data(),
                      .sin = sin.data(),
                      .kv = Kv(),
                      .num_tokens = tokens,
                      .num_heads = heads_.kv,
                      .num_kv_heads = heads_.kv,
                      .head_dim = heads_.dim,
                      .rotary_dim = heads_.dim,
                      .v_head_dim = heads_.value_dim()});
  }
  return device_->on_gpu() ? device_->device()->Synchronize() : Status();
}

KvLayer AttentionCase::Kv() const { return kv_.layers()[0]; }

void AttentionCase::Launch(int copy) {
  device_->ops()->Attention({.qkv = qkv_.ptr(),
                             .out = out_.ptr(),
                             .kv = Kv(),
                             .page_table = page_table_.data(),
                             .page_table_stride = size_.row_pages(),
                             .table_row = table_row_.data() + int64_t{copy} * size_.num_rows,
                             .row_begin = row_begin_.data(),
                             .kv_len = kv_len_.data(),
                             .num_rows = size_.num_rows,
                             .num_decode_rows = size_.extend_len == 1 ? size_.num_rows : 0,
                             .num_tokens = size_.num_tokens(),
                             .num_heads = heads_.query,
                             .num_kv_heads = heads_.kv,
                             .head_dim = heads_.dim,
                             .scale = static_cast<float>(1 / std::sqrt(double{1} * heads_.dim)),
                             .sliding_window = 0,
                             .logit_softcap = 0,
                             .sinks = nullptr,
                             .v_head_dim = heads_.value_dim(),
                             .qkv_stride = heads_.token_width(heads_.query)});
}

Status AttentionCase::CheckFinite() {
  const size_t count = Count(size_.num_tokens()) * Count(heads_.query) * Count(heads_.value_dim());
  MINISGL_ASSIGN_OR_RETURN(const std::vector<float> values, device_->Download(out_.ptr(), count));
  // Averages of values around 1 are never all 0, so that an operation that did nothing is detected.
  const bool any = std::any_of(values.begin(), values.end(), [](float v) { return v != 0; });
  const bool all =
      std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  if (any && all) return Status();
  return MakeStatus(StatusCode::kInternal,
                    "attention of {} rows and {} keys in pages of {} gave {}", size_.num_rows,
                    size_.kv_len, size_.page_size, all ? "nothing" : "a value that is not finite");
}

}  // namespace minisgl::bench
