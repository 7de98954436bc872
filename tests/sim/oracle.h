// The right answers of a simulation, and the report of a violation.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/sched/request.h"
#include "sim/workload.h"

namespace minisgl::sim {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void Require(bool condition, const std::string& what) {
  if (!condition) throw Violation(what);
}

// A failed check of the program throws a Violation while this lives.
class ChecksThrow {
 public:
  ChecksThrow();
  ~ChecksThrow();
};

// The outcome of one request, as reported by its events.
struct Told {
  std::vector<TokenId> tokens;
  std::vector<std::pair<TokenId, float>> scored;
  std::vector<float> vector;
  bool ended = false;
  bool was_aborted = false;  // an abort was sent while it had not ended
  bool was_timed_out = false;
  bool gate_is_open = true;
  bool gate_failed = false;
  bool cut_in_constraint = false;
  bool all_failed = false;  // memory ran out: every request ends as internal
  EndReason reason = EndReason::kStopToken;
  std::string error_code;
};

// No cache has pages of texts that are computed whole.
void CheckStats(const Workload& workload, const SchedulerStats& stats);

// Checks that it ended, that the reason is a possible one, and that its tokens are a prefix of the
// right ones.
void CheckAnswer(const Workload& workload, const Arrival& arrival, const Told& told);

// Upper bound on the steps in which all requests end if no faults and no requests come any more.
int64_t StepsToIdle(const Workload& workload, const std::map<RequestId, Told>& told);

// Like Simulate, but with the runtime's loop between requests and scheduler.
Outcome SimulateServeLoop(const Workload& workload, std::string* trace_text);

}  // namespace minisgl::sim
