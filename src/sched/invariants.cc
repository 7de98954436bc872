// The invariants of the scheduler, recounted from scratch. Checked after every call in debug builds
// and in tests. A failure is a bug and aborts with a message.
//
//   I1  every page is in exactly one place: free, cached, owned by one request, deferred
//   I2  the free lists have no duplicates; table rows likewise
//   I3  the tree's structure; I5 its locks and counters (checked by the cache)
//   I4  every page a request maps below computed_len is its own, or cached under the node it locks
//   I6  no page of a launched, uncollected step is free
//   I7  cached <= computed <= launched <= device <= max lengths;
//       pages == ceil((launched + load) / page_size)
//   I8  pages promised to admitted requests <= free + evictable + deferred
//   I9  phases agree with queues and resources; who waits for a prefix shares it with one that runs
//   I10 submitted == waiting + running + ended
//   I13 rows and tokens of every plan within limits, no row empty or twice, write slots distinct
//       beside a chat's turn the tokens of other requests on average within the room for them
//   I14 idle: only sessions and saves hold locks, nothing is deferred or taken
//
// The same for window pages, if the engine has them:
//   I1, I2  each is free or belongs to one page
//   I4  each page that a running request's window reaches has one
//   I5  claims are those of deferred pages and of running requests, the latter from the first page
//       that the window after computed_len reaches
//   I8  each request whose whole length was promised can have the window pages that it takes
//   I14 idle: nothing is claimed
// And for state slots:
//   I1, I2  each is free, of one running request, written by one load, or a snapshot in the cache
//   I3  a snapshot is the state at the end of a node
//   I5  pins are those of running requests, holds are those of saves
//   I7  a running request has the state after launched_len tokens
//   I8  each running request can have the slots that it was promised
//   I13 no slot is written twice in a step, or read by one row and written by another
// And for pictures (EncoderLedger):
//   I1  embeddings are kept once for each content
//   I4  tokens are computed with the embeddings of their picture
//   I5  references and wishes are those of live requests
//   I8  the cache is within its size, unless it has one picture that is larger
//   I13 a step encodes within its budget, or one picture; none that attends both ways is cut
//   I14 idle: none is referred to
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "minisgl/base/check.h"
#include "sched/scheduler_impl.h"

namespace minisgl {
namespace {

// No slot is written twice, or read by one row and written by another.
void CheckSegments(const BatchPlan& plan) {
  std::unordered_map<StateSlot, int32_t> writers;
  for (const StateSegment& segment : plan.state_segments) {
    MINISGL_CHECK(writers.emplace(segment.write, segment.row).second,
                  "I13: state {} is written twice in one step", segment.write);
  }
  for (const StateSegment& segment : plan.state_segments) {
    const auto writer = writers.find(segment.read);
    MINISGL_CHECK(writer == writers.end() || writer->second == segment.row,
                  "I13: state {} is written by one row and read by another", segment.read);
  }
}

void CheckPlan(const BatchPlan& plan, const EngineLimits& limits, const SchedulerOptions& options) {
  const bool may_be_empty = limits.encodes_in_pieces && !plan.extras.encoded.empty();
  MINISGL_CHECK(
      (plan.num_rows() >= 1 || may_be_empty) && plan.num_rows() <= limits.max_running_requests,
      "I13: a plan of {} rows", plan.num_rows());
  int64_t prefill_tokens = 0, drafts = 0;
  std::unordered_set<int32_t> rows;
  for (int row = 0; row < plan.num_rows(); ++row) {
    const auto at = static_cast<size_t>(row);
    MINISGL_CHECK(plan.extend_len(row) >= 1, "I13: a row of no tokens");
    MINISGL_CHECK(rows.insert(plan.table_row[at]).second, "I13: table row {} twice in a plan",
                  plan.table_row[at]);
    // A chunk of one token counts as a decode row: its cost is the same.
    const int32_t num_drafts = plan.num_drafts[at];
    const bool is_decode = plan.extend_len(row) == 1 + num_drafts &&
                           plan.kv_len[at] - num_drafts >= plan.prompt_len[at];
    drafts += num_drafts;
    prefill_tokens += is_decode ? num_drafts : plan.extend_len(row);
    MINISGL_CHECK(
        plan.positions[static_cast<size_t>(plan.row_begin[at + 1] - 1)] + 1 == plan.kv_len[at],
        "I13: the last token of a row is not at its length");
  }
  MINISGL_CHECK(prefill_tokens <= options.max_prefill_tokens,
                "I13: {} prefill tokens in a step of {}", prefill_tokens,
                options.max_prefill_tokens);
  MINISGL_CHECK(drafts <= limits.max_step_drafts, "I13: {} drafts in a step of {}", drafts,
                limits.max_step_drafts);
  MINISGL_CHECK(options.max_step_tokens == 0 || plan.num_tokens() <= options.max_step_tokens,
                "I13: {} tokens in a step of at most {}", plan.num_tokens(),
                options.max_step_tokens);
  MINISGL_CHECK(plan.num_tokens() <= limits.max_step_tokens, "I13: {} tokens in a step of {}",
                plan.num_tokens(), limits.max_step_tokens);
  MINISGL_CHECK(
      plan.window_slots.size() == (limits.num_window_pages > 0 ? plan.slots.size() : 0) &&
          plan.window_pages.size() == (limits.num_window_pages > 0 ? plan.pages.size() : 0),
      "I13: {} window slots for {} slots, {} window pages for {} pages", plan.window_slots.size(),
      plan.slots.size(), plan.window_pages.size(), plan.pages.size());
  const std::unordered_set<int64_t> window_slots(plan.window_slots.begin(),
                                                 plan.window_slots.end());
  MINISGL_CHECK(window_slots.size() == plan.window_slots.size(),
                "I13: a window slot is written twice in one step");
  CheckSegments(plan);
  int64_t encoded = 0;
  for (const EncoderRun& run : plan.extras.encoded) encoded += run.end - run.begin;
  const bool is_alone = plan.extras.encoded.size() == 1 && !limits.encodes_in_pieces;
  MINISGL_CHECK(encoded <= options.encoder_budget || is_alone,
                "I13: {} embeddings encoded in a step of {}", encoded, options.encoder_budget);
  const std::string fault = PlanExtrasFault(plan.extras, plan.row_begin);
  MINISGL_CHECK(fault.empty(), "I13: {}", fault);
  MINISGL_CHECK((plan.extras.parts() & ~limits.extras) == 0,
                "I13: a plan with {}, which the engine lacks",
                NameOfFirst(plan.extras.parts() & ~limits.extras));
  const std::unordered_set<int64_t> slots(plan.slots.begin(), plan.slots.end());
  MINISGL_CHECK(slots.size() == plan.slots.size(), "I13: a slot is written twice in one step");
}

}  // namespace

void Scheduler::Impl::CheckRequest(const RequestState& state) const {
  const int32_t page_size = context.limits.page_size;
  const RequestId id = state.request.id;
  const bool is_running =
      std::find(pages.running().begin(), pages.running().end(), &state) != pages.running().end();
  const bool is_waiting = queues.waiting().Contains(const_cast<RequestState*>(&state));
  MINISGL_CHECK(is_waiting == (state.phase == Phase::kWaiting),
                "I9: request {} in phase {} {}waits", id, static_cast<int>(state.phase),
                is_waiting ? "" : "does not ");
  const bool should_run = state.phase == Phase::kLoading || state.phase == Phase::kPrefill ||
                          state.phase == Phase::kDecode;
  MINISGL_CHECK(is_running == should_run && is_running == state.holds_lock &&
                    is_running == (state.table_row >= 0),
                "I9: request {} in phase {} has another phase's resources", id,
                static_cast<int>(state.phase));
  if (state.phase == Phase::kEnded) {
    MINISGL_CHECK(state.in_flight > 0 || state.is_loading,
                  "I9: request {} ended and is not forgotten", id);
  }
  MINISGL_CHECK((state.phase != Phase::kLoading || state.is_loading) &&
                    (state.load_len > 0) == (state.phase == Phase::kLoading) &&
                    (state.holds == 0 || is_waiting),
                "I9: request {} in phase {} has a load or a hold of another phase", id,
                static_cast<int>(state.phase));
  if (!is_running) {
    MINISGL_CHECK(state.pages.empty(), "I9: request {} holds pages and does not run", id);
    return;
  }
  MINISGL_CHECK(
      state.cached_len <= state.computed_len && state.computed_len <= state.launched_len &&
          state.launched_len <= state.device_len && state.prefill_len <= state.device_len &&
          state.device_len <= state.max_device_len(),
      "I7: request {}: lengths {} {} {} {} {}", id, state.cached_len, state.computed_len,
      state.launched_len, state.device_len, state.max_device_len());
  MINISGL_CHECK(state.cached_len % page_size == 0 && state.cached_len < state.prefill_len,
                "I7: request {}: {} cached of {}", id, state.cached_len, state.prefill_len);
  MINISGL_CHECK(static_cast<int64_t>(state.pages.size()) ==
                    CeilDiv<int64_t>(state.launched_len + state.load_len, page_size),
                "I7: request {}: {} pages for {} + {} tokens", id, state.pages.size(),
                state.launched_len, state.load_len);
  const std::vector<PageId> cached = pages.cache().cache().PathPages(state.node);
  MINISGL_CHECK(static_cast<int32_t>(cached.size()) == state.tree_pages &&
                    std::equal(cached.begin(), cached.end(), state.pages.begin()),
                "I4: request {} maps pages that are not under the node it locks", id);
}

// Each request whose whole length was promised can have it, if all others are preempted.
void Scheduler::Impl::CheckPromises() const {
  std::unordered_set<PageId> held;
  int64_t owed = 0;
  for (const RequestState* state : pages.running()) {
    if (!state->is_guaranteed) continue;
    held.insert(state->pages.begin(), state->pages.end());
    owed += state->max_pages(context.limits.page_size) - static_cast<int64_t>(state->pages.size());
  }
  const auto room = pages.cache().pool().num_pages() - static_cast<int64_t>(held.size());
  MINISGL_CHECK(owed <= room, "I8: {} pages promised, {} available", owed, room);
  if (pages.cache().windows() != nullptr) CheckWindows();
  for (const auto& [id, state] : requests) {
    MINISGL_CHECK(state->preemptions <= kPreemptionsMax, "I12: request {} preempted {} times", id,
                  state->preemptions);
  }
}

void Scheduler::Impl::CheckWindows() const {
  int64_t pledged = 0;
  for (const RequestState* state : pages.running()) {
    MINISGL_CHECK(state->window_begin == pages.windows().math().FirstPage(state->computed_len),
                  "I5: request {} claims from page {} with {} computed", state->request.id,
                  state->window_begin, state->computed_len);
    MINISGL_CHECK(state->claimed_windows() >= 0, "I7: request {} claims {} pages",
                  state->request.id, state->claimed_windows());
    if (!state->is_guaranteed) continue;
    pledged += std::max(pages.windows().Entitled(*state), state->claimed_windows());
  }
  MINISGL_CHECK(pledged <= context.limits.num_window_pages, "I8: {} window pages promised of {}",
                pledged, context.limits.num_window_pages);
  if (!requests.empty() || !in_flight.empty()) return;
  MINISGL_CHECK(pages.cache().windows()->num_available() == context.limits.num_window_pages,
                "I14: idle, and {} of {} window pages are available",
                pages.cache().windows()->num_available(), context.limits.num_window_pages);
}

void Scheduler::Impl::CheckEncoders() const {
  std::vector<const RequestState*> live;
  for (const auto& [id, state] : requests) {
    if (state->phase != Phase::kEnded) live.push_back(state.get());
  }
  encoders.CheckInvariants(live);
  MINISGL_CHECK(!live.empty() || encoders.num_referred() == 0,
                "I14: idle, and {} embeddings are referred to", encoders.num_referred());
}

// Counted from the plan: its rows are launched.
void Scheduler::Impl::CheckRoom(const InFlight& step) {
  const SchedulerOptions& options = context.options;
  if (options.room_beside_chat == 0) return;
  const bool is_prompts = options.step == StepPolicy::kPrefillFirst && !draft.prefill.empty();
  if (!RunsChat() || is_prompts) {
    chat_steps = room_taken = 0;
    return;
  }
  const auto room_of = [&options](int64_t keys) {
    const int64_t of_keys = options.keys_per_token > 0 ? 1000 * keys / options.keys_per_token : 0;
    return 1000 + of_keys;
  };
  bool has_chat = false;
  int64_t taken = 0;
  for (int row = 0; row < step.plan->num_rows(); ++row) {
    const auto at = static_cast<size_t>(row);
    if (step.rows[at]->is_chat()) {
      has_chat = true;
    } else {
      taken += step.plan->extend_len(row) * room_of(step.plan->kv_len[at]);
    }
  }
  if (!has_chat) return;
  ++chat_steps;
  room_taken += taken;
  // What was saved for one row may be taken by another: for a token, or for a whole picture.
  const int64_t saved_for =
      (context.limits.extras & kHasInputs) != 0 ? options.max_prefill_tokens : 1;
  MINISGL_CHECK(room_taken <= chat_steps * options.room_beside_chat +
                                  saved_for * room_of(context.limits.max_seq_len),
                "I13: other requests took room {} in {} steps beside a chat, {} for each",
                room_taken, chat_steps, options.room_beside_chat);
}

// I9 of a request that is held for a prefix: a running request computes pages up to the one that it
// waits for, and both have the same key so far.
void Scheduler::Impl::CheckWaitForPrefix(const RequestState& state) const {
  if ((state.holds & sched::kHeldByPrefix) == 0) return;
  const auto& hashes = state.page_hashes;
  const auto page = std::find(hashes.begin(), hashes.end(), state.awaited_hash) - hashes.begin();
  const auto length = static_cast<size_t>((page + 1) * context.limits.page_size);
  const auto computes = [&](const RequestState* other) {
    return other->tree_pages <= page && page < other->registered_pages &&
           CommonLength(other->key(), state.key()) >= length;
  };
  MINISGL_CHECK(std::any_of(pages.running().begin(), pages.running().end(), computes),
                "I9: request {} waits for {} tokens that no request with its prefix computes",
                state.request.id, length);
}

// I4 of prefixes that are held until they are saved.
void Scheduler::Impl::CheckSaves() const {
  pages.saver().ForEach([&](KvSaveId id, const PrefixNode* node, const std::vector<PageId>& held) {
    const std::vector<PageId> cached = pages.cache().cache().PathPages(node);
    MINISGL_CHECK(
        cached.size() >= held.size() && std::equal(held.begin(), held.end(), cached.begin()),
        "I4: save {} has pages that are not under the node it locks", id);
  });
}

void Scheduler::Impl::CheckAdapters() const {
  std::vector<const RequestState*> all;
  for (const auto& [id, state] : requests) all.push_back(state.get());
  queues.adapters().CheckInvariants(all);
}

void Scheduler::Impl::CheckInvariants() const {
  std::vector<PageId> taken, window_claims;
  std::vector<StateSlot> load_states;
  std::vector<int32_t> rows;
  std::vector<PrefixNode*> locked;
  int64_t live = 0;
  size_t held_by_prefix = 0;
  for (const auto& [id, state] : requests) {
    CheckRequest(*state);
    CheckWaitForPrefix(*state);
    live += state->phase == Phase::kEnded ? 0 : 1;
    held_by_prefix += (state->holds & sched::kHeldByPrefix) != 0 ? 1 : 0;
    taken.insert(taken.end(), state->load_pages.begin(), state->load_pages.end());
    if (state->load_state != kZeroState) load_states.push_back(state->load_state);
    MINISGL_CHECK(state->load_state == kZeroState || state->is_loading,
                  "I9: request {} has the slot of a load that ended", id);
    if (state->table_row < 0) continue;
    taken.insert(taken.end(), state->pages.begin() + state->tree_pages, state->pages.end());
    if (pages.cache().windows() != nullptr) {
      window_claims.insert(window_claims.end(), state->pages.begin() + state->window_begin,
                           state->pages.end());
    }
    rows.push_back(state->table_row);
    locked.push_back(state->node);
  }
  for (PrefixNode* node : queues.sessions().Locks()) locked.push_back(node);
  for (PrefixNode* node : pages.saver().Locks()) locked.push_back(node);
  CheckSaves();
  CheckEncoders();
  CheckAdapters();
  pages.states().CheckInvariants(load_states, pages.saver().Holds());
  pages.cache().CheckInvariants(taken, window_claims);
  pages.cache().cache().CheckInvariants(locked);
  pages.table().CheckInvariants(rows);
  MINISGL_CHECK(queues.computing().num_waiters() == held_by_prefix,
                "I9: {} requests are listed as waiting for a prefix, {} are held for one",
                queues.computing().num_waiters(), held_by_prefix);
  for (const InFlight& step : in_flight) {
    for (PageId page : step.pages_in_use) {
      MINISGL_CHECK(!pages.cache().pool().IsFree(page), "I6: page {} of step {} is free", page,
                    step.plan->step);
    }
  }
  if (!in_flight.empty()) CheckPlan(*in_flight.back().plan, context.limits, context.options);
  CheckPromises();
  const SchedulerStats& stats = context.stats;
  MINISGL_CHECK(stats.submitted == live + stats.finished + stats.failed + stats.aborted,
                "I10: {} submitted, {} live, {} + {} + {} ended", stats.submitted, live,
                stats.finished, stats.failed, stats.aborted);
  if (requests.empty() && in_flight.empty()) {
    MINISGL_CHECK(pages.cache().num_deferred() == 0 && pages.table().num_deferred() == 0 &&
                      pages.cache().cache().num_locked() <=
                          queues.sessions().num_pages() + pages.saver().num_pages() &&
                      queues.computing().size() == 0 &&
                      pages.cache().num_available() + pages.cache().cache().num_locked() ==
                          pages.cache().pool().num_pages(),
                  "I14: idle, and something is still held");
  }
}

std::string Scheduler::DebugString() const {
  const SchedulerStats stats = Stats();
  return fmt::format(
      "{} waiting, {} running, {} in flight; pages: {} free, {} cached ({} locked), {} deferred",
      stats.waiting, stats.running, impl_->in_flight.size(), stats.pages_free, stats.pages_cached,
      stats.pages_locked, impl_->pages.cache().num_deferred());
}

}  // namespace minisgl
