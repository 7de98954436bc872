// What the simulation knows of the right answers, and how it says that something is wrong.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
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

// What became of one request, as it was told.
struct Told {
  std::vector<TokenId> tokens;
  bool ended = false;
  bool was_aborted = false;  // an abort was sent while it had not ended
  bool was_timed_out = false;
  bool gate_is_open = true;
  bool all_failed = false;  // memory ran out: everything ends as internal
  EndReason reason = EndReason::kStopToken;
  std::string error_code;
};

// Requires that it ended, for a reason that there was, and that its tokens are the right ones so
// far as they go.
void CheckAnswer(const Workload& workload, const Request& request, const Told& told);

// Steps within which all that is there ends when nothing fails or comes any more.
int64_t StepsToIdle(const Workload& workload, const std::map<RequestId, Told>& told);

// Simulate, with the runtime's loop between requests and scheduler.
Outcome SimulateServeLoop(const Workload& workload, std::string* trace_text);

}  // namespace minisgl::sim
