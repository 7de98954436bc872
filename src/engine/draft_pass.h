// The passes of a drafter over a step of a device, their shapes and their graphs.
//
// All arrays that a pass reads are adjacent in memory, in a layout that follows from the shape of
// the pass (DraftLayout). A pass without a graph reads them in the memory of its step. A pass with
// one is padded to the shape of the graph, which reads a copy whose address is always the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "minisgl/device_array.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/plan/given_positions.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

enum class DraftPart : uint8_t {
  kPropose,  // makes drafts: one of each row, or the blocks of all rows
  kFeed,     // reads the tokens of the step
};

// Numbers of rows, tokens, and places whose logits are wanted. A pass that makes one draft of each
// row has a token and a place in each row, and num_places 0.
struct DraftShape {
  int32_t num_rows = 0, num_tokens = 0, num_places = 0;
  bool operator==(const DraftShape&) const = default;
};

// Offsets of the arrays of a pass, in bytes from its begin.
struct DraftLayout {
  explicit DraftLayout(const DraftShape& shape);
  size_t table_row;   // i32 [R]
  size_t row_begin;   // i32 [R + 1]
  size_t kv_len;      // i32 [R]
  size_t num_seen;    // i32 [R] of an assistant: keys that its rows see
  size_t positions;   // i32 [T] of a pass that turns by others than places
  size_t key_end;     // i32 [T] of a pass with a first key, and of blocks
  size_t states;      // i32 [T] rows of the states that tokens read, if they do
  size_t rope;        // RopePosition [T] of a layer that turns by positions of three parts
  size_t masks;       // i32 [N] of blocks: the tokens that are drafted
  size_t places_row;  // i32 [N] table row of each of them
  size_t places_len;  // i32 [N] its place
  size_t bytes;       // of all
};

// The arrays of a pass as they are listed on the host. An array that the pass does not read is
// empty.
struct DraftLists {
  std::vector<int32_t> table_row, row_begin = {0}, kv_len, num_seen;
  std::vector<int32_t> positions, key_end, states;
  std::vector<RopePosition> rope;
  std::vector<int32_t> masks, places_row, places_len;
};
// Adds padding up to `shape`: of one token a row if `has_own_rows`; else one row of all further
// tokens, and rows without any. `dummy`: table row of the padding; `state`: the row of the states
// that it reads.
void PadLists(const DraftShape& shape, bool has_own_rows, int32_t dummy, int32_t state,
              DraftLists* lists);
// Writes the arrays to `memory`, of DraftLayout(shape).bytes. REQUIRES lists of `shape`.
void WriteLists(const DraftLists& lists, const DraftShape& shape, std::byte* memory);

// A graph of one part, for passes of at most its shape.
struct DraftGraphSize {
  DraftPart part = DraftPart::kPropose;
  DraftShape shape;
};
// The graphs of a drafter, in ascending order within a part. Upper bounds, as the bounds of
// DeviceEngineOptions: `max_rows` on the rows of passes that make one draft of each row,
// `max_tokens` on the tokens of all other passes. `drafter`: the whole model, not a rank's share.
std::vector<DraftGraphSize> DraftGraphSizes(const ModelConfig& drafter, const EngineLimits& limits,
                                            int32_t max_rows, int32_t max_tokens);
// Bytes of the arrays of the largest of these graphs.
size_t DraftFrontBytes(const ModelConfig& drafter, const EngineLimits& limits);
// Upper bound on the bytes of the arrays of a step's passes.
size_t DraftListBytes(const EngineLimits& limits);
// Upper bound on the bytes of the masks of one draft of each row.
uint64_t DraftMasksBytes(const ModelConfig& drafter, const EngineLimits& limits);
// Arrays in that memory begin at multiples of it.
inline constexpr size_t kDraftListAlignment = 16;

template <typename T>
const T* InDraftMemory(const std::byte* memory, size_t offset) {
  return reinterpret_cast<const T*>(memory + offset);
}

// A pass of a step.
struct DraftPass {
  DraftShape shape;              // padded; no tokens: there is no pass
  size_t begin = 0;              // of its arrays in DraftStep::device_meta
  DeviceGraph* graph = nullptr;  // null: it runs without
  float* logits = nullptr;       // that a graph without a choice leaves
};

// A row of a step that drafts.
struct DraftRow {
  int32_t row = 0;  // of the plan
  int32_t count = 0;
  bool is_masked = false;
  std::vector<TokenId> chosen = {};  // on the host, if DraftStep::is_guided
};

// Which tokens drafts may be: SampleParams::masks and mask_of, over rows of the drafter's head.
struct DraftMasks {
  std::vector<int32_t> mask_of;
  std::vector<uint32_t> words;
};

// What a step in flight has for its drafts. On both sides it belongs to the step until that is
// collected.
struct DraftStep {
  std::vector<DraftRow> rows;     // the one with the most drafts first
  std::vector<DraftPass> drafts;  // the i-th makes draft i of its rows, or one makes all blocks
  // The host says among which tokens each draft is chosen: it has a mask, or all drafts are of
  // clusters.
  bool is_guided = false;
  DraftPass feed;
  std::vector<PlacedEmbeddings> placed;  // of pictures in `feed`, which then has no graph
  // The writes that put ids of masks into the token pool, for blocks.
  int32_t num_writes = 0;
  size_t writes = 0;  // TokenPoolWrite [num_writes]
  size_t ids = 0;     // i32 [N]
  size_t kept = 0;    // KeptState [num_kept]
  int32_t num_kept = 0;
  std::shared_ptr<void> meta;
  DeviceArray<std::byte> device_meta;

  // The rows with a draft `index`, and where the drafts of that index begin among all, in the order
  // of indices and of rows.
  int32_t NumRows(int32_t index) const;
  int32_t First(int32_t index) const;
  // Drafts of the row that has most.
  int32_t NumIndices() const { return rows.empty() ? 0 : rows.front().count; }
  // Recorded after the pass that reads the step's tokens, which ends after the step is collected.
  std::unique_ptr<DeviceEvent> fed;
  bool is_read = false;  // `fed` is recorded, and not waited for
};

}  // namespace minisgl::engine
