// Ops of a device with its own memory, on which operations are queued and run later. Adds to the
// transformer's operations what an engine needs to keep such a device busy.
//
// - Compute stream: operations and graph replays run in the order of the calls.
// - Copy streams: copies to the device run concurrently with earlier operations, copies to the host
//   with later ones.
// - A call waits for the device only if its comment says so.
// - Errors do not stop the caller: status() returns the first one, and calls after it do nothing.
//
// Called from one thread at a time, not necessarily the thread that made the object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/kernel_profile.h"
#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/ops.h"
#include "minisgl/row_result.h"

namespace minisgl {

// A point in the compute stream to wait for.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Operations recorded once, to be queued many times with the same arguments.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

struct DeviceMemoryInfo {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

// Table writes of a plan (batch_plan.h), applied in the order of the arrays, and a copy of the part
// of a step that graphs read, whose address is always the same. All pointers are to device memory.
struct PlanWritesParams {
  const PageTableWrite* page_table_writes;  // [num_page_table_writes]
  const int32_t* pages;
  const TokenPoolWrite* token_pool_writes;  // [num_token_pool_writes]
  const int32_t* tokens;
  int32_t num_page_table_writes;
  int32_t num_token_pool_writes;
  int32_t* page_table;
  int64_t page_table_stride;
  int32_t* token_pool;
  int64_t token_pool_stride;
  const void* front = nullptr;  // [front_bytes], 16-byte aligned
  void* front_copy = nullptr;   // the same
  int64_t front_bytes = 0;      // a multiple of 16; 0: none
};

// Ids, positions and slots of the tokens of a step. Token i of row r (row_begin) has
//   position = kv_len[r] - extend_len[r] + i
//   id       = token_pool[table_row[r]][position]
//   slot     = page_table[table_row[r]][position / P] * P + position % P
struct PrepareTokensParams {
  const int32_t* table_row;  // [R]
  const int32_t* row_begin;  // [R + 1]
  const int32_t* kv_len;     // [R]
  int32_t num_rows;
  int32_t num_tokens;
  const int32_t* page_table;
  int64_t page_table_stride;
  int32_t page_size;
  const int32_t* token_pool;
  int64_t token_pool_stride;
  int32_t* token_ids;  // [T]
  int32_t* positions;  // [T]
  int64_t* slots;      // [T]
};

// How one place (a token whose logits are wanted) is sampled: SamplingParams as plain data. Biased
// and banned tokens are ranges of the step's arrays.
struct DeviceSampling {
  uint64_t seed;
  float temperature;
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  int32_t top_k;
  int32_t table_row;    // row of the token pool that holds the history
  int32_t prompt_len;   // the answer begins here
  int32_t history_len;  // the index of the draw is history_len - prompt_len
  int32_t bias_begin, bias_end;
  int32_t banned_begin, banned_end;
  int32_t num_logprobs;  // -1: none
};

struct DeviceToken {
  int32_t token;      // -1 if the outcome is kNonFinite
  int32_t outcome;    // RowResult::Outcome
  float logprob;      // set if num_logprobs >= 0
  int32_t num_ranks;  // entries of top_logprobs that are set
};

// The same choice as SampleParams (ops_params.h), for places whose parameters are in device memory.
//
// Sums over the vocabulary are in fixed point: weights are rounded to multiples of 2^-40 of the
// largest of their tile, and the sums of tiles likewise to the largest of the row. Such additions
// are exact, so their order does not change a result.
struct DeviceSampleParams {
  float* logits;  // [N, V]; overwritten
  int32_t num_places;
  int64_t vocab_size;
  const DeviceSampling* places;  // [N]
  const int32_t* token_pool;
  int64_t token_pool_stride;
  const int32_t* bias_ids;
  const float* bias_values;
  const int32_t* banned_ids;
  uint32_t* counts;            // [N, V] zero before and after
  float* raw_logits;           // [N, V] workspace, for places that want log-probabilities
  int32_t max_logprobs;        // K: upper bound on num_logprobs of any place
  DeviceToken* sampled;        // [N]
  TokenLogprob* top_logprobs;  // [N, K]
  // [N] which of `masks` holds the tokens that the place chooses among (SampleParams::masks), or
  // -1: all. Null: no place has a mask.
  const int32_t* mask_of = nullptr;
  const uint32_t* masks = nullptr;  // [masks, ceil(V / 32)]
};

// Places of a step's results in memory of AllocateHost, which the device can write.
struct HostResults {
  DeviceToken* sampled;   // [N]
  int32_t* num_accepted;  // [R]
};

// Compares drafts with the sampled tokens and puts the new token into the token pool (the rule of
// BatchPlan::num_drafts). Row r's places are [place_begin[r], place_begin[r + 1]); a row without
// places wanted no token. Stores the results on the host, too, to be read after an event.
struct AcceptTokensParams {
  const int32_t* table_row;    // [R]
  const int32_t* kv_len;       // [R]
  const int32_t* place_begin;  // [R + 1]
  int32_t num_rows;
  const DeviceToken* sampled;  // [N]
  int32_t* token_pool;
  int64_t token_pool_stride;          // max_seq_len: no token is put at or after it
  int32_t* num_accepted;              // [R]
  const HostResults* host = nullptr;  // [1] null: none
};

// A state that a drafter keeps for later steps, if between `least` and `most` drafts of a row of
// the step were accepted.
struct KeptState {
  int32_t from, to;  // rows of KeepStatesParams::states
  int32_t row;       // of num_accepted; -1: it is kept whatever was accepted
  int32_t least, most;
};

// states[to] = states[from] for the items that are kept. No two of those have the same `to`, and no
// `from` of one is the `to` of another.
struct KeepStatesParams {
  ActivationPtr states;  // [*, width]
  int64_t width;
  const KeptState* items;  // [num_items]
  int32_t num_items;
  const int32_t* num_accepted;  // [R]
};

// tokens[i].token = ids[tokens[i].token], where the outcome is a token.
struct MapTokensParams {
  DeviceToken* tokens;  // [num_tokens]
  int32_t num_tokens;
  const int32_t* ids;
};

// A decode row's keys are split at multiples of AttentionSplitKeys from position 0, or of more: the
// plan of a step may choose longer splits, so results depend on the step's other rows, unless the
// device is deterministic (which does not use these splits). They do not depend on the grid.
// - 256 keys of 128 elements are 128 KB, 4 us of a multiprocessor's share of 4.3 TB/s, and little
//   enough that few rows keep all multiprocessors busy.
// - 32 splits keep merging below the time of reading 1/32 of a row: one KV head of 32k keys is then
//   32 splits, and 8 heads nearly fill 2 * 132 blocks.
inline constexpr int32_t kSplitKeysMin = 256;
inline constexpr int32_t kSplitsMax = 32;

MINISGL_HOST_DEVICE inline int32_t AttentionSplitKeys(int64_t kv_len) {
  int64_t keys = kSplitKeysMin;
  while (keys * kSplitsMax < kv_len) keys *= 2;
  return static_cast<int32_t>(keys);
}

// Groups of decode rows that share their first keys (the same pages in the page table), so that
// attention reads these keys once for as many rows of the group as a block holds. Results are bit
// for bit those without groups.
//
// A group has at least two rows, with the same AttentionSplitKeys(kv_len). All of its rows have the
// same shared_splits: at least one, and fewer than the row's splits. Layers with a sliding window
// do not use the groups.
struct SharedPrefixes {
  const int32_t* num_groups = nullptr;     // [1]; null: no groups, and no arrays below
  const int32_t* group_begin = nullptr;    // [groups + 1]
  const int32_t* rows = nullptr;           // decode rows, each in at most one group
  const int32_t* shared_splits = nullptr;  // [num_decode_rows] of the row's group; 0: in no group
};

// True if `num_tokens` tokens in `num_rows` rows that extend, with `group` query heads for each KV
// head, suit large tiles of attention. Rows of up to two small tiles (of 16 query heads of tokens)
// on average use small ones: a large tile would be three quarters empty, and there would be few.
inline constexpr int64_t kShortRow = 32;
inline bool HasLongRows(int32_t group, int64_t num_tokens, int64_t num_rows) {
  return num_tokens * group > kShortRow * num_rows;
}
// Upper bound on the rows of a step with HasLongRows, and one row of padding.
inline int64_t LongRowsMax(int32_t group, int64_t num_tokens) {
  return num_tokens * group / kShortRow + 1;
}

// The sizes of a layer's attention.
struct AttentionHeads {
  int32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int32_t v_head_dim = 0;  // 0: head_dim
  bool values_in_keys = false;
  bool has_codes = false;  // KvLayer::has_codes

  int32_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
};
inline bool operator==(const AttentionHeads& a, const AttentionHeads& b) {
  return a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads &&
         a.head_dim == b.head_dim && a.value_dim() == b.value_dim() &&
         a.values_in_keys == b.values_in_keys && a.has_codes == b.has_codes;
}
inline AttentionHeads HeadsOf(const AttentionParams& params) {
  return {params.num_heads,  params.num_kv_heads,      params.head_dim,
          params.v_head_dim, params.kv.values_in_keys, params.kv.has_codes()};
}

// The attention of a step, planned once and used by every layer with these heads. Rows 0 ..
// num_decode_rows - 1 have one token each. Every AttentionParams of the step has the same arrays.
struct AttentionPlanParams {
  const int32_t* row_begin;  // [R + 1]
  const int32_t* kv_len;     // [R]
  int32_t num_rows;
  int32_t num_decode_rows;
  int32_t num_tokens;
  int32_t num_heads, num_kv_heads, head_dim;
  int32_t sliding_window = 0;  // the largest of the layers with these heads; 0: none has one
  SharedPrefixes shared = {};
  RowsKnown rows_known = RowsKnown::kExactly;
  // [1] the number of decode rows, at most num_decode_rows, unless rows are known exactly.
  const int32_t* decode_rows = nullptr;
  int32_t v_head_dim = 0;  // 0: head_dim
  bool values_in_keys = false;
  bool has_codes = false;
};
inline AttentionHeads HeadsOf(const AttentionPlanParams& params) {
  return {params.num_heads,  params.num_kv_heads,   params.head_dim,
          params.v_head_dim, params.values_in_keys, params.has_codes};
}

// The shape of a model, which decides whether there are kernels for it.
struct ModelShape {
  int64_t hidden_size = 0, vocab_size = 0;
  int64_t qk_norm_width = 0;          // of queries normalised as one vector; 0: no such norm
  std::vector<AttentionHeads> heads;  // of its layers
  bool adds_distances = false;        // AttentionParams::distance_bias
  int32_t num_experts = 0;
  int32_t num_expert_groups = 0;  // that experts are chosen by; 0 or 1: none
  int32_t state_key_dim = 0;      // of recurrent layers; 0: none
  int64_t state_norm_width = 0;   // of the output of such layers, in groups
  int32_t tower_head_dim = 0;     // of a tower; 0: the model is none
  int64_t tower_norm_width = 0;   // likewise: of the widest vector that is normalised
};

// The largest step. Workspace is reserved for it once, because graphs hold its addresses.
struct DeviceLimits {
  int32_t max_rows = 0;
  int32_t max_tokens = 0;
  int64_t max_seq_len = 0;
  int32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int32_t num_experts = 0, num_chosen = 0;  // experts of the model, and of a token
  int32_t v_head_dim = 0;                   // 0: head_dim
  bool values_in_keys = false;
  bool has_codes = false;
  std::vector<AttentionHeads> other_heads = {};  // of the other layers
  // The width of a token that goes through experts on the host (host_experts.h); 0: none are there.
  int64_t host_expert_width = 0;

  AttentionHeads heads() const {
    return {num_heads, num_kv_heads, head_dim, v_head_dim, values_in_keys, has_codes};
  }
};

// When matrices that checkpoints have as codes are kept as codes.
enum class CodesKept : uint8_t {
  kNever,        // the device expands them as they are loaded, and quantizes none
  kWhereNeeded,  // where the expanded matrices do not fit
  kAlways,
  kIfQuantized,  // only those that are quantized as they are loaded
};

class DeviceOps : public Ops {
 public:
  // Several ranks (Ops::AllReduce): the operations of a rank wait for operations of the other
  // ranks. So each rank is called from a thread of its own, or all ranks queue the same operations
  // before any function that waits for the device is called.
  //
  // Ends the waits of all ranks for each other, now and later, because this rank has failed;
  // status() of all ranks is then an error once they are waited for. Thread-safe.
  virtual void FailRanks() {}
  // Between RunAlone(true) and RunAlone(false) operations of several ranks run without the others,
  // and compute nothing of use. This loads their kernels before any rank waits for another.
  virtual void RunAlone(bool alone) { static_cast<void>(alone); }
  // True if status() is an error only because another rank has failed.
  virtual bool FailedWithOthers() const { return false; }
  // True if a library computes sums over ranks and has to run one on all ranks at once before a
  // graph is captured.
  virtual bool WarmsUpSums() const { return false; }
  // The name, for messages, of what computes sums over ranks; "" for one rank.
  virtual std::string SumsText() const { return ""; }

  // The first error since the start (kOutOfMemory, kUnavailable or kInternal), or OK.
  virtual Status status() const = 0;
  virtual DeviceMemoryInfo MemoryInfo() = 0;

  // kUnavailable, with the reason, for a model that the device's kernels cannot run.
  virtual Status CheckSupported(const ModelShape&) const { return Status(); }
  // Allocates the workspace of attention, matrix products and experts. Called before the first
  // operation.
  virtual Status Reserve(const DeviceLimits& limits) = 0;
  // Bytes that Reserve allocates.
  virtual uint64_t ReservedBytes(const DeviceLimits& limits) const = 0;

  virtual CodesKept KeepsCodes() const { return CodesKept::kNever; }
  // Upper bound on what products with matrices of codes take beside them.
  virtual uint64_t CodeScratchBytes() const { return 0; }
  // True if products of many tokens round their inputs to e4m3 where the publisher does
  // (InputRounding).
  virtual bool RoundsE4M3Inputs() const { return false; }
  // Which matrices that checkpoints have as codes were expanded though codes are kept, and why: ""
  // if none was.
  virtual std::string ExpandedCodesText() const { return ""; }

  // Zeroed host memory that copies can use in the background, and that operations can write.
  virtual Result<std::shared_ptr<void>> AllocateHost(size_t num_bytes) = 0;
  // Begins at once, but after the work that Allocate and Upload queued. Later operations wait for
  // it. REQUIRES that all operations on these bytes of the device are done, and `host` from
  // AllocateHost, unchanged until an event recorded afterwards is done.
  virtual void CopyToDevice(void* device, const void* host, size_t num_bytes) = 0;
  // Runs after everything queued on the compute stream so far; later operations do not wait for it.
  virtual void CopyToHost(void* host, const void* device, size_t num_bytes) = 0;

  // Copies within device memory, on the compute stream.
  virtual void CopyOnDevice(void* dst, const void* src, size_t num_bytes) = 0;

  virtual Result<std::unique_ptr<DeviceEvent>> MakeEvent() = 0;
  // Records `event` after everything queued on the compute stream so far, and after the copies to
  // the host since the last Record.
  virtual void Record(DeviceEvent* event) = 0;
  // Waits for the last Record of `event`, then returns status().
  virtual Status Wait(DeviceEvent* event) = 0;
  // True if Wait would not wait.
  virtual bool IsReached(DeviceEvent* event) = 0;
  // Milliseconds between the last Records of two events. REQUIRES both to be waited for.
  virtual Result<double> ElapsedMs(DeviceEvent* begin, DeviceEvent* end) = 0;
  // Waits for everything queued so far.
  virtual Status Synchronize() = 0;
  Status Finish() final { return Synchronize(); }

  // False if graphs are off; BeginCapture is then an error.
  virtual bool RunsGraphs() const { return true; }
  // Between these two calls operations are recorded and do not run. A failed capture leaves the
  // device usable: EndCapture returns the reason, and status() does not change, unless the fault
  // breaks the device for good.
  virtual Status BeginCapture() = 0;
  virtual Result<std::unique_ptr<DeviceGraph>> EndCapture() = 0;
  virtual void Replay(DeviceGraph* graph) = 0;

  virtual void ApplyPlanWrites(const PlanWritesParams& params) = 0;
  virtual void PrepareTokens(const PrepareTokensParams& params) = 0;
  virtual void PlanAttention(const AttentionPlanParams& params) = 0;
  virtual void SamplePlaces(const DeviceSampleParams& params) = 0;
  virtual void AcceptTokens(const AcceptTokensParams& params) = 0;
  virtual void KeepStates(const KeepStatesParams& params) = 0;
  virtual void MapTokens(const MapTokensParams& params) = 0;
};

// The GPU of `--device cuda[:N]` (cuda/). ProbeCuda checks, before anything is loaded, that the
// driver and the compute capability suit the build and that the device exists, and runs one kernel.
struct CudaDevice {
  int index = 0;
  std::string name;  // "NVIDIA H200"
  int compute_major = 0, compute_minor = 0;
  int driver_version = 0, runtime_version = 0;  // 13000 for 13.0
  int num_multiprocessors = 0;
  DeviceMemoryInfo memory;
};
// kUnavailable with the reason, which includes the driver's message.
Result<CudaDevice> ProbeCuda(int index);

struct CudaOpsConfig {
  int index = 0;
  DType activation_dtype = DType::kBF16;
  bool deterministic = false;     // bits depend neither on other rows nor on how a sequence is cut
  bool library_products = false;  // all dense products by cuBLASLt: to compare the speed of both
  // If set, receives the time of every operation. Operations then run one by one, not as graphs.
  std::shared_ptr<KernelProfile> profile;
  int32_t profile_rank = 0;  // the rank that `profile` records them for
  // The folder that keeps choices timed on this device for the next start; "": none. A folder that
  // cannot be used is no error.
  std::string cache_folder;
};
// Several GPUs, or one of them several times, as the ranks of one model (minisgl/model/ranks.h).
struct CudaRanksConfig {
  CudaOpsConfig ops;         // of each rank, except the index and the profile_rank
  std::vector<int> devices;  // of the ranks, at most kCudaRanksMax
  // How long a rank waits in an operation for another rank before it fails.
  int64_t wait_ms = 300'000;
  // Sums of at most so many bytes are exchanged in one shot, with one meeting. Longer sums take two
  // meetings and move fewer bytes; with two ranks they move the same.
  int64_t one_shot_bytes = int64_t{256} << 10;
  int64_t one_shot_bytes_of_two = int64_t{1} << 60;
  // NCCL computes sums of more than nccl_bytes_min bytes, and all sums if the devices cannot use
  // each other's memory. NCCL adds in an order that depends on the length of the sum.
  bool nccl = false;
  int64_t nccl_bytes_min = int64_t{256} << 10;
};
inline constexpr int kCudaRanksMax = 8;

// Returns the number of GPUs; 0 without a driver.
int CountCudaDevices();
// Checks each device (ProbeCuda) and opens it: the operations of each rank, in the order of the
// devices. The work of one rank runs in the order of its own calls. The process loads all code of
// kernels at the start, because loading later could wait for a kernel that waits for another rank.
// kUsage if NCCL is asked for and cannot be used.
Result<std::vector<std::unique_ptr<DeviceOps>>> MakeCudaRanks(const CudaRanksConfig& config);

// kUsage if the environment's MINISGL_CUDA_DEBUG (cuda/debug_switches.h) has an unknown word.
Result<std::unique_ptr<DeviceOps>> MakeCudaOps(const CudaOpsConfig& config);

}  // namespace minisgl
