// See layer_graphs.h.
#include "engine/layer_graphs.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::engine {
namespace {

// Steps of at most so many tokens use attention's small tiles, which make more blocks: 64 tokens
// with 2 query heads for each of 8 KV heads are 64 small tiles and 8 large ones.
constexpr int32_t kFewTokens = 64;

int32_t StepAfter(int32_t size) {
  if (size < 64) return 8;
  if (size < 128) return 16;
  return size < 256 ? 32 : 64;
}

}  // namespace

int32_t LayerGraphTokensMax(int32_t wanted, const EngineLimits& limits) {
  return std::min({wanted, limits.max_step_tokens, limits.max_seq_len});
}

std::vector<int32_t> LayerGraphSizes(int32_t max_tokens) {
  std::vector<int32_t> sizes;
  for (int32_t size = 8; size < max_tokens; size += StepAfter(size)) sizes.push_back(size);
  if (max_tokens > 0) sizes.push_back(max_tokens);
  return sizes;
}

std::vector<StepShape> LayerGraphShapes(int32_t max_tokens, int32_t max_rows) {
  std::vector<StepShape> shapes;
  for (const int32_t num_tokens : LayerGraphSizes(max_tokens)) {
    StepShape shape = {.num_rows = std::min(num_tokens, max_rows),
                       .num_decode_rows = std::min(num_tokens, max_rows - 1),
                       .num_tokens = num_tokens,
                       .rows_known = RowsKnown::kBoundsShort};
    shapes.push_back(shape);
    if (num_tokens <= kFewTokens) {
      shape.num_decode_rows = 0;
    } else {
      shape.rows_known = RowsKnown::kBoundsLong;
    }
    shapes.push_back(shape);
  }
  return shapes;
}

Status LayerGraphs::Capture(const StepShape& wanted, InFlightStep* padding) {
  StepShape shape = wanted;
  shape.has_adapters = adapters_;
  MINISGL_CHECK(shape.num_tokens >= max_tokens(), "a graph of {} tokens after one of {}",
                shape.num_tokens, max_tokens());
  MINISGL_RETURN_IF_ERROR(
      step_->Upload(padding, {.tokens = shape.num_tokens, .adapters = adapters_}));
  step_->RunLayers(shape);
  MINISGL_RETURN_IF_ERROR(ops_->Synchronize());
  MINISGL_RETURN_IF_ERROR(ops_->BeginCapture());
  step_->RunLayers(shape);
  MINISGL_ASSIGN_OR_RETURN(auto graph, ops_->EndCapture());
  graphs_.push_back({shape, std::move(graph)});
  return Status();
}

const StepShape* LayerGraphs::Find(const StepShape& shape) const {
  const int32_t num_rows = shape.num_rows - shape.num_decode_rows;
  const int32_t num_tokens = shape.num_tokens - shape.num_decode_rows;
  const bool are_long = HasLongRows(step_->group(), num_tokens, num_rows);
  for (const Graph& graph : graphs_) {
    const StepShape& has = graph.shape;
    if (has.num_tokens < shape.num_tokens) continue;
    const bool serves = has.num_tokens <= kFewTokens
                            ? (has.num_decode_rows > 0) == (shape.num_decode_rows > 0)
                            : (has.rows_known == RowsKnown::kBoundsLong) == are_long;
    if (serves) return &has;
  }
  return nullptr;
}

void LayerGraphs::Replay(const StepShape& shape) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Graph& graph) { return graph.shape == shape; });
  MINISGL_CHECK(found != graphs_.end(), "no graph of {} tokens", shape.num_tokens);
  ops_->Replay(found->graph.get());
}

}  // namespace minisgl::engine
