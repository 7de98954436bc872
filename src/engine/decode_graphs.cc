// See decode_graphs.h.
#include "engine/decode_graphs.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::engine {

std::vector<int32_t> GraphBatchSizes(int32_t max_rows) {
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size < max_rows; size = size < 8 ? size * 2 : size + 8) {
    sizes.push_back(size);
  }
  if (max_rows > 0) sizes.push_back(max_rows);
  return sizes;
}

Status DecodeGraphs::Capture(int32_t num_rows, InFlightStep* padding) {
  MINISGL_CHECK(num_rows > max_rows(), "a graph of {} rows after one of {}", num_rows, max_rows());
  MINISGL_RETURN_IF_ERROR(step_->Upload(padding, {.rows = num_rows, .adapters = adapters_}));
  step_->Run(*padding);
  MINISGL_RETURN_IF_ERROR(ops_->Synchronize());
  MINISGL_RETURN_IF_ERROR(ops_->BeginCapture());
  step_->Run(*padding);
  MINISGL_ASSIGN_OR_RETURN(auto graph, ops_->EndCapture());
  graphs_.push_back({num_rows, std::move(graph)});
  return Status();
}

void DecodeGraphs::Clear() { graphs_.clear(); }

int32_t DecodeGraphs::PaddedRows(int32_t num_rows) const {
  const auto found =
      std::lower_bound(graphs_.begin(), graphs_.end(), num_rows,
                       [](const Graph& graph, int32_t rows) { return graph.num_rows < rows; });
  return found == graphs_.end() ? 0 : found->num_rows;
}

void DecodeGraphs::Replay(int32_t padded_rows) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& graph) {
    return graph.num_rows == padded_rows;
  });
  MINISGL_CHECK(found != graphs_.end(), "no graph of {} rows", padded_rows);
  ops_->Replay(found->graph.get());
}

}  // namespace minisgl::engine
