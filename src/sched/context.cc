#include "sched/context.h"

#include "minisgl/base/check.h"

namespace minisgl::sched {

SchedulerContext::SchedulerContext(const EngineLimits& engine_limits,
                                   const SchedulerOptions& scheduler_options)
    : limits(engine_limits), options(scheduler_options) {
  MINISGL_CHECK(options.max_prefill_tokens >= 1 && limits.max_running_requests >= 1 &&
                    limits.num_pages >= 1 && limits.max_seq_len >= 2,
                "engine limits too small to run any request");
  MINISGL_CHECK(
      options.max_step_tokens == 0 || options.max_step_tokens >= limits.max_running_requests,
      "a step of {} tokens for {} rows", options.max_step_tokens, limits.max_running_requests);
  MINISGL_CHECK(options.max_drafts == 0 || options.drafter != nullptr || limits.makes_drafts,
                "max_drafts > 0 requires a drafter");
}

}  // namespace minisgl::sched
