// What every plan must hold, checked before a step runs in debug builds: a plan that breaks one of
// these would read or write memory of another request, or of nobody.
//
// Each function gives the first fault as a sentence, or "" for none; neither assumes anything of
// the plan but that its arrays are arrays.
#pragma once

#include <cstdint>
#include <string>

#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"

namespace minisgl::engine {

// Sizes agree with each other and with `limits`; every index that the plan writes to is in range.
std::string FindPlanShapeFault(const BatchPlan& plan, const EngineLimits& limits);

// Against the engine's state once the plan's writes are applied, REQUIRES no shape fault: positions
// end at kv_len, slots are those of the page table, no slot twice (the padding row apart), token
// ids in the vocabulary.
struct EngineState {
  const int32_t* page_table;  // [max_running_requests + 1, page_table_stride]
  int64_t page_table_stride;
  const TokenId* token_pool;  // [max_running_requests + 1, max_seq_len]
  // Like page_table, where there are window pages: those that a row's window reaches are no dummy.
  const int32_t* window_table = nullptr;
};
std::string FindPlanStateFault(const BatchPlan& plan, const EngineLimits& limits,
                               const EngineState& state);

}  // namespace minisgl::engine
