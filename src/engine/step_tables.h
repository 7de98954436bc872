// The tables that the steps of an engine read and write, and the step's own operations on them.
//
// A plan's table writes and the rule for accepting drafts are the same on the CPU and on a device
// (DeviceOps::ApplyPlanWrites, DeviceOps::AcceptTokens). The functions here compute them on host
// memory, for the CPU's engine; cuda/kernels/step.cu is the other implementation.
#pragma once

#include <cstdint>

#include "minisgl/batch_plan.h"
#include "minisgl/device_ops.h"

namespace minisgl::engine {

// In the memory of the engine's Ops. The last row of each table is the padding row.
struct StepTables {
  int32_t* page_table = nullptr;  // [max_running_requests + 1, page_table_stride]
  int64_t page_table_stride = 0;
  TokenId* token_pool = nullptr;  // [max_running_requests + 1, token_pool_stride]
  int64_t token_pool_stride = 0;  // max_seq_len
  // Like page_table, of window pages; null if there are none. An entry of a page that a row's
  // window still reaches is never the dummy.
  int32_t* window_table = nullptr;
};

// The arrays of a plan's table writes (batch_plan.h), in memory that the operations can read: the
// plan's own on the CPU, a copy on a device.
struct WriteArrays {
  const PageTableWrite* page_table_writes = nullptr;
  const int32_t* pages = nullptr;
  const int32_t* window_pages = nullptr;
  const TokenPoolWrite* token_pool_writes = nullptr;
  const int32_t* tokens = nullptr;
  // PlanWritesParams; none on the CPU.
  const void* front = nullptr;
  void* front_copy = nullptr;
  int64_t front_bytes = 0;
};

// Calls `apply` (PlanWritesParams) for the writes of `plan`: once for the page table and the token
// pool, with the front, and once more for the window table if there is one. No call if
// there is nothing to write.
template <typename Apply>
void ApplyTableWrites(const BatchPlan& plan, const WriteArrays& arrays, const StepTables& tables,
                      const Apply& apply) {
  PlanWritesParams params = {
      .page_table_writes = arrays.page_table_writes,
      .pages = arrays.pages,
      .token_pool_writes = arrays.token_pool_writes,
      .tokens = arrays.tokens,
      .num_page_table_writes = static_cast<int32_t>(plan.page_table_writes.size()),
      .num_token_pool_writes = static_cast<int32_t>(plan.token_pool_writes.size()),
      .page_table = tables.page_table,
      .page_table_stride = tables.page_table_stride,
      .token_pool = tables.token_pool,
      .token_pool_stride = tables.token_pool_stride,
      .front = arrays.front,
      .front_copy = arrays.front_copy,
      .front_bytes = arrays.front_bytes};
  if (params.num_page_table_writes == 0 && params.num_token_pool_writes == 0 &&
      params.front_bytes == 0) {
    return;
  }
  apply(params);
  if (tables.window_table == nullptr || params.num_page_table_writes == 0) return;
  params.pages = arrays.window_pages;
  params.num_token_pool_writes = 0;
  params.page_table = tables.window_table;
  params.front_bytes = 0;
  apply(params);
}

// What DeviceOps names so, on host memory. Neither takes memory, so neither can fail.
void ApplyPlanWrites(const PlanWritesParams& params);
void AcceptTokens(const AcceptTokensParams& params);

}  // namespace minisgl::engine
