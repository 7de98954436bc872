// Helpers of the attention tests: a step of rows over a paged cache, run by the kernels and by the
// oracle.
//
// Pages and table rows are in random order. Slots that no token sees hold NaN, as do the parts of
// qkv that attention does not read, so that a stray read shows in the result.
#pragma once

#include <fmt/core.h>

#include <bit>
#include <optional>
#include <span>

#include "kernel_check.h"
#include "minisgl/tensor/e4m3_scale.h"
#include "paged_attention.h"

namespace minisgl::cuda {

struct PagedAttentionCase {
  DType dtype = DType::kBF16;
  int32_t head_dim = 64;
  int32_t num_heads = 4, num_kv_heads = 2;
  int32_t page_size = 16;
  std::vector<PagedAttentionRow> rows;
  int32_t num_decode_rows = 0;
  // Unless exactly: the launches have bounds, and two more rows, which are empty.
  RowsKnown rows_known = RowsKnown::kExactly;
  int32_t window = 0;
  std::optional<int32_t> plan_window;  // another layer's; null: `window`
  float softcap = 0;
  bool sinks = false;
  bool same_pages = false;  // all pages hold the same
  bool distances = false;   // numbers of distances are added to scores
  int workspace_multiprocessors = 132;
  uint64_t seed = 1;
  int32_t value_dim = 0;  // 0: head_dim
  bool values_in_keys = false;
  // Runs of tokens of the step, each within a row, that see each other; empty: attention is causal.
  struct Picture {
    int32_t token, count;
  };
  std::vector<Picture> pictures;
  int32_t first_key = 0;  // AttentionParams::first_key
  // Keys and values are codes of 8 bits (KvLayer), for the kernels. The oracle has their numbers.
  bool has_codes = false;

  std::string Name() const {
    std::string name =
        fmt::format("{} E {} V {}{} H {}/{} P {} window {} cap {} sinks {} rows", DTypeName(dtype),
                    head_dim, ValueDim(*this), values_in_keys ? " in keys" : "", num_heads,
                    num_kv_heads, page_size, window, softcap, sinks);
    for (const PagedAttentionRow& row : rows) {
      name += fmt::format(" {}/{}", row.num_tokens, row.kv_len);
    }
    for (const Picture& picture : pictures) {
      name += fmt::format(" picture {}+{}", picture.token, picture.count);
    }
    if (first_key > 0) name += fmt::format(" from key {}", first_key);
    if (has_codes) name += " codes";
    return name;
  }
};

class PagedAttentionScene {
 public:
  explicit PagedAttentionScene(const PagedAttentionCase& c)
      : case_(c), random_(c.seed), tables_(c.rows, c.page_size, &random_) {
    row_begin_.push_back(0);
    for (const PagedAttentionRow& row : c.rows) {
      row_begin_.push_back(row_begin_.back() + row.num_tokens);
      kv_len_.push_back(row.kv_len);
    }
    FillKeys();
    FillQueries();
    FillKeyEnds();
    if (c.distances) {
      distances_ = RandomFloats(c.num_heads * DistanceStride(), c.seed + 9, 3.0);
    }
    if (c.sinks) {
      sinks_ = RandomFloats(c.num_heads, c.seed + 7, 2.0);
    }
  }

  int32_t num_tokens() const { return row_begin_.back(); }
  int64_t out_width() const { return int64_t{case_.num_heads} * ValueDim(case_); }
  const std::vector<int32_t>& row_begin() const { return row_begin_; }
  DeviceLimits Limits() const {
    return {.max_rows = static_cast<int32_t>(kv_len_.size()) + 2,
            .max_tokens = num_tokens() + 5,
            .max_seq_len = tables_.stride * case_.page_size,
            .num_heads = case_.num_heads,
            .num_kv_heads = case_.num_kv_heads,
            .head_dim = case_.head_dim,
            .v_head_dim = ValueDim(case_),
            .values_in_keys = case_.values_in_keys,
            .has_codes = case_.has_codes};
  }

  // All parameters except arrays.
  AttentionParams Params() const {
    AttentionParams params = PagedAttentionParams(case_, tables_.stride);
    params.num_rows = static_cast<int32_t>(kv_len_.size());
    params.num_decode_rows = case_.num_decode_rows;
    params.num_tokens = num_tokens();
    params.first_key = case_.first_key;
    return params;
  }

  // Returns the kernels' output as stored, [T, H * E] of the case's type. A given workspace keeps
  // the state that the kernels leave it in.
  std::vector<unsigned char> Run(bool deterministic = false, KernelDevice* device = nullptr,
                                 DeviceArray<unsigned char>* workspace = nullptr,
                                 int repeats = 1) const {
    KernelDevice own_device;
    if (device == nullptr) device = &own_device;
    std::unique_ptr<DeviceArray<unsigned char>> own_workspace;
    if (workspace == nullptr) {
      own_workspace = MakeWorkspace();
      workspace = own_workspace.get();
    }
    const DeviceInput qkv(case_.dtype, qkv_), keys(case_.dtype, keys_);
    const DeviceArray<uint8_t> codes(codes_);
    const DeviceArray<int32_t> page_table(tables_.entries),
        table_row(Spared(tables_.table_row, -1)), row_begin(Spared(row_begin_, num_tokens())),
        kv_len(Spared(kv_len_, -1)), decode_rows(std::vector<int32_t>{case_.num_decode_rows});
    const DeviceArray<float> sinks(sinks_);
    const DeviceArray<int32_t> key_end(key_end_);
    DeviceOutput out(case_.dtype, num_tokens() * out_width());
    AttentionParams params = Params();
    params.qkv = qkv.ptr();
    params.out = out.ptr();
    params.kv.base = ActivationPtr(const_cast<void*>(keys.data()), case_.dtype);
    if (case_.has_codes) {
      params.kv = CodedLayer();
      params.kv.base = ActivationPtr(const_cast<uint8_t*>(codes.data()), DType::kE4M3);
    }
    params.page_table = page_table.data();
    params.table_row = table_row.data();
    params.row_begin = row_begin.data();
    params.kv_len = kv_len.data();
    params.sinks = case_.sinks ? sinks.data() : nullptr;
    params.key_end = key_end_.empty() ? nullptr : key_end.data();
    const DeviceArray<float> distances(distances_);
    SetDistances(distances.data(), &params);
    if (case_.rows_known != RowsKnown::kExactly) {
      params.rows_known = case_.rows_known;
      params.num_rows = static_cast<int32_t>(kv_len.size());
      params.num_decode_rows = std::min(params.num_rows, num_tokens());
    }
    const DeviceArray<int32_t> num_groups(num_groups_), group_begin(group_begin_),
        group_rows(group_rows_), shared_splits(shared_splits_);
    AttentionPlanParams plan = {.row_begin = row_begin.data(),
                                .kv_len = kv_len.data(),
                                .num_rows = params.num_rows,
                                .num_decode_rows = params.num_decode_rows,
                                .num_tokens = num_tokens(),
                                .num_heads = params.num_heads,
                                .num_kv_heads = params.num_kv_heads,
                                .head_dim = params.head_dim,
                                .sliding_window = case_.plan_window.value_or(case_.window),
                                .rows_known = params.rows_known,
                                .v_head_dim = params.v_head_dim,
                                .values_in_keys = params.kv.values_in_keys,
                                .has_codes = case_.has_codes};
    if (plan.rows_known != RowsKnown::kExactly) plan.decode_rows = decode_rows.data();
    if (!num_groups_.empty()) {
      plan.shared = {num_groups.data(), group_begin.data(), group_rows.data(),
                     shared_splits.data()};
    }
    const AttentionWorkspace space = Workspace(workspace);
    EXPECT_EQ(LaunchPlanAttention(device->context, plan, space, deterministic), kCudaSuccess);
    for (int i = 0; i < repeats; ++i) {
      out.Set(std::vector<float>(static_cast<size_t>(out.size()),
                                 std::numeric_limits<float>::quiet_NaN()));
      EXPECT_EQ(LaunchAttention(device->context, params, space, deterministic), kCudaSuccess);
    }
    EXPECT_TRUE(out.GuardsIntact()) << case_.Name();
    const auto* const bytes = static_cast<const unsigned char*>(out.data());
    return std::vector<unsigned char>(bytes, bytes + out.num_bytes());
  }

  std::unique_ptr<DeviceArray<unsigned char>> MakeWorkspace() const {
    return std::make_unique<DeviceArray<unsigned char>>(std::vector<unsigned char>(
        AttentionWorkspaceBytes(Limits(), case_.workspace_multiprocessors), 0));
  }
  AttentionWorkspace Workspace(DeviceArray<unsigned char>* memory) const {
    return {memory->data(), Limits(), case_.workspace_multiprocessors};
  }

  // Compares with the oracle.
  void Check(const std::vector<unsigned char>& bytes, const std::string& what) const {
    if (expected_.empty()) {
      expected_ = Expected(false);
      magnitude_ = Expected(true);
    }
    const std::vector<float> actual =
        LoadElements(bytes.data(), case_.dtype, std::ssize(expected_));
    const int32_t longest = *std::max_element(kv_len_.begin(), kv_len_.end());
    ExpectWithin(
        actual, expected_,
        [&](size_t i) {
          return AttentionBound(case_.dtype, 16.0 * case_.head_dim, longest, expected_[i],
                                magnitude_[i]);
        },
        what + " " + case_.Name());
  }

  // Makes `rows` begin with the pages of the first of them, for `keys` keys (whole pages).
  void Share(const std::vector<int32_t>& rows, int32_t keys) {
    const auto pages_of = [&](int32_t row) {
      return tables_.entries.begin() + tables_.table_row[static_cast<size_t>(row)] * tables_.stride;
    };
    for (const int32_t row : rows) {
      std::copy_n(pages_of(rows[0]), keys / case_.page_size, pages_of(row));
    }
    expected_.clear();
  }

  // The groups passed to the plan, each with the number of splits that its rows share.
  struct Group {
    std::vector<int32_t> rows;
    int32_t splits;
  };
  void SetGroups(const std::vector<Group>& groups) {
    num_groups_ = {static_cast<int32_t>(groups.size())};
    group_begin_ = {0};
    group_rows_.clear();
    shared_splits_.assign(static_cast<size_t>(case_.num_decode_rows), 0);
    for (const Group& group : groups) {
      for (const int32_t row : group.rows) {
        group_rows_.push_back(row);
        shared_splits_[static_cast<size_t>(row)] = group.splits;
      }
      group_begin_.push_back(static_cast<int32_t>(group_rows_.size()));
    }
  }

  // Makes the value of a key of a row NaN, in every head.
  void SpoilValue(int32_t row, int32_t key) {
    const AttentionParams p = Params();
    const int64_t page = tables_.entries[static_cast<size_t>(
        tables_.table_row[static_cast<size_t>(row)] * tables_.stride + key / case_.page_size)];
    for (int32_t head = 0; head < case_.num_kv_heads; ++head) {
      const int64_t value = page * p.kv.page_stride +
                            key % case_.page_size * p.kv.value_slot_stride() +
                            head * p.kv.value_head_stride() + p.kv.v_offset;
      std::fill_n(keys_.begin() + value, ValueDim(case_), std::numeric_limits<float>::quiet_NaN());
    }
  }

  // Makes every token see all keys of its row, as those of a whole text do. For a scene that Pick
  // made, whose ends of keys are the whole scene's.
  void SeeWholeRows() {
    key_end_.clear();
    for (size_t row = 0; row < kv_len_.size(); ++row) {
      key_end_.insert(key_end_.end(), static_cast<size_t>(row_begin_[row + 1] - row_begin_[row]),
                      kv_len_[row]);
    }
  }

  // The output rows of tokens [begin, end) from the result of Run.
  std::vector<unsigned char> Tokens(const std::vector<unsigned char>& bytes, int32_t begin,
                                    int32_t end) const {
    const int64_t width = out_width() * 2;
    return std::vector<unsigned char>(bytes.begin() + begin * width, bytes.begin() + end * width);
  }

  // The same cache and queries with only these rows, or with a row cut to its last tokens.
  PagedAttentionScene Pick(const std::vector<int32_t>& rows, int32_t num_decode_rows,
                           int32_t last_tokens = INT32_MAX) const {
    PagedAttentionScene scene = *this;
    scene.case_.num_decode_rows = num_decode_rows;
    scene.case_.rows.clear();
    scene.row_begin_ = {0};
    scene.kv_len_.clear();
    scene.tables_.table_row.clear();
    scene.qkv_.clear();
    scene.expected_.clear();
    const int64_t width = qkv_width();
    for (const int32_t row : rows) {
      const int32_t end = row_begin_[row + 1];
      const int32_t begin = std::max(row_begin_[row], end - std::min(end, last_tokens));
      scene.qkv_.insert(scene.qkv_.end(), qkv_.begin() + begin * width, qkv_.begin() + end * width);
      scene.row_begin_.push_back(scene.row_begin_.back() + end - begin);
      scene.kv_len_.push_back(kv_len_[row]);
      scene.tables_.table_row.push_back(tables_.table_row[row]);
      scene.case_.rows.push_back({end - begin, kv_len_[row]});
    }
    return scene;
  }

 private:
  int64_t DistanceOrigin() const { return tables_.stride * case_.page_size; }
  int64_t DistanceStride() const { return 2 * DistanceOrigin() + AttentionParams::kKeysPast; }
  void SetDistances(const float* distances, AttentionParams* params) const {
    if (!case_.distances) return;
    params->distance_bias = distances;
    params->distance_stride = DistanceStride();
    params->distance_origin = DistanceOrigin();
  }

  // An array over the rows, with what empty rows have in it.
  std::vector<int32_t> Spared(std::vector<int32_t> values, int32_t spare) const {
    if (case_.rows_known != RowsKnown::kExactly) values.insert(values.end(), 2, spare);
    return values;
  }

  int64_t qkv_width() const { return TokenWidth(case_); }

  void FillKeys() {
    const KvLayer kv = Params().kv;
    keys_.assign(static_cast<size_t>(tables_.num_pages * kv.page_stride),
                 std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> one = RandomFloats(kv.page_stride, case_.seed + 3);
    for (size_t r = 0; r < kv_len_.size(); ++r) {
      for (int32_t key = 0; key < kv_len_[r]; ++key) {
        const int64_t page = tables_.entries[static_cast<size_t>(
            tables_.table_row[r] * tables_.stride + key / case_.page_size)];
        ForEachPart(kv, case_.num_kv_heads, case_.head_dim, ValueDim(case_), page,
                    key % case_.page_size, [&](int64_t first, int64_t count) {
                      const auto part = keys_.begin() + first;
                      if (case_.same_pages) {
                        std::copy_n(one.begin() + first % kv.page_stride, count, part);
                      } else {
                        FillNormal({part, part + count}, &random_);
                      }
                      if (case_.has_codes) Code(first, count, page, key % case_.page_size);
                    });
      }
    }
  }

  // The layer with a byte in place of each element, and the scales behind them.
  KvLayer CodedLayer() const {
    KvLayer kv = Params().kv;
    kv.k_scales = kv.page_stride;
    kv.v_scales = kv.k_scales + int64_t{case_.num_kv_heads} * case_.page_size;
    kv.page_stride = kv.v_scales + int64_t{case_.num_kv_heads} * case_.page_size;
    return kv;
  }

  // Rounds a head of a slot, whose elements begin at `first` of keys_, to codes.
  void Code(int64_t first, int64_t count, int64_t page, int32_t slot) {
    const KvLayer coded = CodedLayer(), kv = Params().kv;
    codes_.resize(static_cast<size_t>(tables_.num_pages * coded.page_stride), 0xFF);
    const int64_t in_page = first % kv.page_stride;
    const bool is_value = in_page >= kv.v_offset;
    const int64_t head =
        is_value ? (in_page - kv.v_offset) / kv.v_head_stride : in_page / kv.head_stride;
    const std::span<float> x(keys_.begin() + first, static_cast<size_t>(count));
    uint32_t most = 0;
    for (const float e : x) most = std::max(most, std::bit_cast<uint32_t>(e) & 0x7FFFFFFFu);
    const uint8_t scale = E4M3ScaleOf(most);
    const auto inverse = std::bit_cast<float>(E4M3InverseScaleBits(scale));
    uint8_t* const to = codes_.data() + page * coded.page_stride;
    to[(is_value ? coded.v_scales : coded.k_scales) + head * case_.page_size + slot] = scale;
    for (int64_t i = 0; i < count; ++i) {
      to[in_page + i] = ToE4M3(x[i] * inverse);
      x[i] = E4M3ToFloat(to[in_page + i]) * std::bit_cast<float>(E4M3ScaleBits(scale));
    }
  }

  void FillQueries() {
    qkv_ = RandomFloats(num_tokens() * qkv_width(), case_.seed + 5);
    for (int64_t t = 0; t < num_tokens(); ++t) {
      for (int64_t i = int64_t{case_.num_heads} * case_.head_dim; i < qkv_width(); ++i) {
        qkv_[static_cast<size_t>(t * qkv_width() + i)] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  void FillKeyEnds() {
    if (case_.pictures.empty() && case_.first_key == 0) return;
    for (size_t row = 0; row < kv_len_.size(); ++row) {
      for (int32_t t = row_begin_[row]; t < row_begin_[row + 1]; ++t) {
        key_end_.push_back(kv_len_[row] - (row_begin_[row + 1] - t) + 1);
      }
    }
    for (const auto& picture : case_.pictures) {
      const auto first = key_end_.begin() + picture.token;
      std::fill_n(first, picture.count, *(first + picture.count - 1));
    }
  }

  // `magnitude`: the result with each value replaced by its magnitude.
  std::vector<float> Expected(bool magnitude) const {
    const DeviceInput qkv(case_.dtype, qkv_), keys(case_.dtype, keys_);
    std::vector<float> values = keys.values();
    std::vector<float> out(static_cast<size_t>(num_tokens() * out_width()));
    AttentionParams params = Params();
    SetValuesApart(&params, &values);
    if (magnitude) TakeValueMagnitudes(params.kv, &values);
    params.qkv = ConstActivationPtr(qkv.values().data());
    params.out = ActivationPtr(out.data());
    params.kv.base = ActivationPtr(values.data());
    params.page_table = tables_.entries.data();
    params.table_row = tables_.table_row.data();
    params.row_begin = row_begin_.data();
    params.kv_len = kv_len_.data();
    params.sinks = case_.sinks ? sinks_.data() : nullptr;
    params.key_end = key_end_.empty() ? nullptr : key_end_.data();
    SetDistances(distances_.data(), &params);
    MakeNaiveOps()->Attention(params);
    return out;
  }

  PagedAttentionCase case_;
  std::mt19937_64 random_;
  PageTables tables_;
  std::vector<int32_t> row_begin_, kv_len_, key_end_;
  std::vector<int32_t> num_groups_, group_begin_, group_rows_, shared_splits_;
  std::vector<float> keys_, qkv_, sinks_, distances_;
  std::vector<uint8_t> codes_;
  mutable std::vector<float> expected_, magnitude_;
};

// Launches with bounds, as graphs have them, give the bits of one that knows the rows.
inline void ExpectBoundsGiveTheSame(PagedAttentionCase c) {
  for (const bool deterministic : {false, true}) {
    c.rows_known = RowsKnown::kExactly;
    const PagedAttentionScene scene(c);
    const auto exactly = scene.Run(deterministic);
    scene.Check(exactly, "exactly");
    for (const RowsKnown known : {RowsKnown::kBoundsShort, RowsKnown::kBoundsLong}) {
      c.rows_known = known;
      EXPECT_EQ(PagedAttentionScene(c).Run(deterministic), exactly)
          << c.Name() << (known == RowsKnown::kBoundsLong ? " long" : " short");
    }
  }
}

}  // namespace minisgl::cuda
