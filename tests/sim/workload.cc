#include "sim/workload.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/window_math.h"
#include "sim/dice.h"
#include "sim/draw_extras.h"

namespace minisgl::sim {
namespace {

std::vector<TokenId> DrawTokens(Dice* dice, int64_t count, int64_t vocab) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(1 + dice->Below(vocab - 1)));
  }
  return tokens;
}

void DrawSystem(Dice* dice, Workload* workload) {
  EngineLimits& limits = workload->limits;
  limits.vocab_size = dice->Pick(4, 60, 1000);
  limits.page_size = static_cast<int32_t>(dice->Pick(1, 2, 4, 8, 16, 64));
  limits.max_seq_len = static_cast<int32_t>(dice->Pick(20, 70, 130));
  limits.max_running_requests = static_cast<int32_t>(dice->Pick(1, 2, 3, 8, 50));
  // Room for one of the longest requests, up to fifty.
  const int64_t longest = CeilDiv<int64_t>(limits.max_seq_len, limits.page_size);
  limits.num_pages = static_cast<int32_t>(longest * dice->Pick(1, 1, 2, 3, 10, 50));
  if (dice->OneIn(3)) limits.num_pages += static_cast<int32_t>(dice->Below(longest + 1));
  if (dice->OneIn(10)) limits.num_pages = static_cast<int32_t>(1 + dice->Below(longest));
  workload->depth = static_cast<int>(dice->Pick(0, 1, 1, 2));
  limits.max_in_flight = workload->depth + 1;
  workload->end_rate = dice->Pick(0, 3, 20, 100);
  SchedulerOptions& options = workload->options;
  options.max_prefill_tokens = static_cast<int32_t>(dice->Pick(1, 3, 16, 64, 200));
  options.long_prefill_threshold = static_cast<int32_t>(dice->Pick(0, 0, 1, 10));
  options.cache = dice->OneIn(5) ? CacheKind::kNaive : CacheKind::kRadix;
  options.step = dice->OneIn(2) ? StepPolicy::kMixed : StepPolicy::kPrefillFirst;
  options.admission = dice->OneIn(3) ? AdmissionPolicy::kReserve : AdmissionPolicy::kOptimistic;
  options.queue = dice->OneIn(2) ? QueuePolicy::kPriority : QueuePolicy::kFcfs;
  options.check_invariants = true;
  limits.max_step_tokens = options.max_prefill_tokens + limits.max_running_requests;
  // By separate dice, so that the rest of a seed's workload does not depend on it.
  Dice step_dice(workload->seed ^ 0x5BE0CD19137E2179ull);
  if (step_dice.OneIn(3)) {
    options.max_step_tokens =
        limits.max_running_requests + static_cast<int32_t>(step_dice.Pick(0, 1, 5, 40));
  }
  if (dice->OneIn(3)) {
    options.max_drafts = static_cast<int32_t>(dice->Pick(1, 3, 8));
    limits.max_step_drafts =
        std::min(static_cast<int32_t>(dice->Pick(1, 5, 100)), options.max_prefill_tokens);
    workload->drafter = {dice->Pick(0, 50, 90, 100), dice->Pick(0, 20, 80)};
    Dice draft_dice(workload->seed ^ 0x1F83D9ABFB41BD6Bull);
    limits.makes_drafts = draft_dice.OneIn(3);
    if (limits.makes_drafts) {
      options.max_draft_rows = static_cast<int32_t>(draft_dice.Pick(1, 2, 4, 32));
    }
  }
  if (dice->OneIn(3)) {
    workload->source = {true, dice->Pick(20, 70, 100), dice->Pick(0, 30, 80),
                        dice->Pick(0, 3, 20, 60), dice->Pick(0, 20, 100)};
    options.kv_failure = dice->OneIn(3) ? KvFailurePolicy::kFail : KvFailurePolicy::kRecompute;
  }
}

Request DrawRequest(Dice* dice, const Workload& workload,
                    const std::vector<std::vector<TokenId>>& stems) {
  const EngineLimits& limits = workload.limits;
  Request request;
  if (!dice->OneIn(5)) {
    const auto& stem = stems[static_cast<size_t>(dice->Below(static_cast<int64_t>(stems.size())))];
    const auto kept =
        std::min<int64_t>(static_cast<int64_t>(stem.size()), DrawLength(dice, limits));
    request.prompt.assign(stem.begin(), stem.begin() + kept);
  }
  const auto tail =
      DrawTokens(dice, dice->Pick(0, 1, 1, 2, limits.page_size, 20), limits.vocab_size);
  request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
  if (request.prompt.empty()) request.prompt = DrawTokens(dice, 1, limits.vocab_size);
  const auto room = limits.max_seq_len - static_cast<int64_t>(request.prompt.size());
  request.max_tokens = dice->Pick(1, 2, 3, limits.page_size, 30);
  // Mostly requests that fit; sometimes one that cannot.
  if (room >= 1 && !dice->OneIn(15)) request.max_tokens = std::min(request.max_tokens, room);
  if (!dice->OneIn(4)) request.stop_ids = {0};
  request.priority = static_cast<int32_t>(dice->Pick(0, 0, 0, 1, -1, kChatPriority));
  return request;
}

// The turns of sessions: most continue the right answer of the previous turn.
void DrawTurns(Dice* dice, Workload* workload) {
  for (int64_t i = dice->OneIn(3) ? dice->Pick(1, 1, 3) : 0; i > 0; --i) {
    workload->sessions.push_back(
        {static_cast<SessionId>(i), dice->OneIn(4) ? dice->Below(60) : -1});
  }
  if (workload->sessions.empty()) return;
  const EngineLimits& limits = workload->limits;
  std::map<SessionId, const Request*> last;
  for (Arrival& arrival : workload->arrivals) {
    if (dice->OneIn(2)) continue;
    Request& turn = arrival.request;
    turn.session = workload
                       ->sessions[static_cast<size_t>(
                           dice->Below(static_cast<int64_t>(workload->sessions.size())))]
                       .id;
    turn.priority = kChatPriority;
    const Request* before = last[turn.session];
    if (before != nullptr && !dice->OneIn(5)) {
      auto prompt = before->prompt;
      const auto answer =
          RightAnswer({before->prompt, before->marks}, before->max_tokens,
                      !before->stop_ids.empty(), limits.vocab_size, workload->end_rate);
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      prompt.push_back(turn.prompt.front());
      if (static_cast<int64_t>(prompt.size()) + turn.max_tokens <= limits.max_seq_len) {
        ContinueMarks(*before, std::ssize(prompt) - 1, &turn);
        turn.prompt = std::move(prompt);
      }
    }
    last[turn.session] = &turn;
  }
}

// Many long answers in a pool for about one of them: running requests are preempted again and
// again.
void MakeThrash(Workload* workload) {
  EngineLimits& limits = workload->limits;
  workload->options.admission = AdmissionPolicy::kOptimistic;
  workload->end_rate = 0;
  if (workload->seed / 8 % 2 == 0 && !workload->through_runtime) {
    // Some are admitted again while a step from before their preemption is in flight.
    workload->depth = 2;
    limits.max_in_flight = workload->depth + 1;
  }
  limits.max_running_requests = std::max(limits.max_running_requests, 8);
  if (int32_t& most = workload->options.max_step_tokens; most > 0) {
    most = std::max(most, limits.max_running_requests);
  }
  limits.max_step_tokens = workload->options.max_prefill_tokens + limits.max_running_requests;
  const auto longest = CeilDiv<int32_t>(limits.max_seq_len, limits.page_size);
  limits.num_pages = std::min(limits.num_pages, longest + 1 + longest / 4);
  for (Arrival& arrival : workload->arrivals) {
    const auto room = limits.max_seq_len - static_cast<int64_t>(arrival.request.prompt.size());
    if (room > arrival.request.max_tokens) arrival.request.max_tokens = room;
    arrival.step /= 4;
  }
}

// A disk that keeps prefixes, with what earlier processes left there. Drawn by separate dice.
void DrawStore(const std::vector<std::vector<TokenId>>& stems, Workload* workload) {
  Dice dice(workload->seed ^ 0x1F83D9ABFB41BD6Bull);
  if (workload->source.exists || !dice.OneIn(3)) return;
  StorePlan& store = workload->store;
  store.exists = true;
  store.block_tokens = workload->limits.page_size * static_cast<int32_t>(dice.Pick(1, 1, 2, 4));
  store.delay_max = dice.Pick(0, 0, 2, 10);
  store.torn_percent = dice.Pick(0, 0, 10, 60);
  store.lost_percent = dice.Pick(0, 0, 5, 40);
  store.refused_percent = dice.Pick(0, 0, 30);
  store.full_after = dice.Pick(-1, -1, -1, 1, 5);
  store.drops_at_end = dice.OneIn(3);
  if (dice.OneIn(3)) workload->options.kv_failure = KvFailurePolicy::kFail;
  for (const std::vector<TokenId>& stem : stems) {
    if (dice.OneIn(2)) continue;
    const auto num_blocks = static_cast<int64_t>(stem.size()) / store.block_tokens;
    store.filled.push_back({.tokens = stem, .num_blocks = dice.Below(num_blocks + 1)});
  }
}

// A window of one key up to all keys, and window pages from the need of one request up to one for
// each page. Drawn last, by separate dice, so that the rest of a seed's workload does not depend on
// them.
void DrawWindows(Workload* workload) {
  Dice dice(workload->seed ^ 0x3C6EF372FE94F82Bull);
  // A source is not asked beside windows.
  if (workload->source.exists || workload->store.exists || !dice.OneIn(3)) return;
  EngineLimits& limits = workload->limits;
  const int32_t page_size = limits.page_size;
  const auto window =
      dice.Pick(1, 2, page_size - 1, page_size, page_size + 1, 2 * page_size + 1, 3 * page_size,
                limits.max_seq_len / 2, limits.max_seq_len, 1 + dice.Below(limits.max_seq_len));
  limits.sliding_window = static_cast<int32_t>(std::max<int64_t>(window, 1));
  const int64_t longest = CeilDiv<int64_t>(limits.max_seq_len - 1, page_size);
  const int64_t least =
      std::min<int64_t>({WindowMath{page_size, limits.sliding_window}.PagesOf(limits.max_in_flight),
                         longest, limits.num_pages});
  const int64_t wanted = dice.Pick(least, least, least + 1, 2 * least, 4 * least,
                                   least + dice.Below(limits.num_pages), limits.num_pages);
  limits.num_window_pages = static_cast<int32_t>(std::min<int64_t>(wanted, limits.num_pages));
}

// From the need of one request up to more than all can use.
int32_t DrawStateSlots(Dice* dice, const EngineLimits& limits) {
  const int32_t of_request = StateSlotsPerRequest(limits.max_in_flight);
  const int64_t requests = dice->Pick(1, 1, 2, 3, limits.max_running_requests);
  return static_cast<int32_t>(requests * of_request + dice->Pick(0, 1, 3, 30));
}

// Slots for states, drawn by separate dice, as windows are, and not beside those.
void DrawStates(Workload* workload) {
  Dice dice(workload->seed ^ 0xA54FF53A5F1D36F1ull);
  EngineLimits& limits = workload->limits;
  const bool has_source = workload->source.exists || workload->store.exists;
  if (has_source || limits.num_window_pages > 0 || !dice.OneIn(2)) return;
  limits.num_state_slots = DrawStateSlots(&dice, limits);
}

// The same beside a disk, which keeps states, too: some are there already. Drawn by separate dice.
void DrawKeptStates(Workload* workload) {
  Dice dice(workload->seed ^ 0x428A2F98D728AE22ull);
  EngineLimits& limits = workload->limits;
  StorePlan& store = workload->store;
  if (!store.exists || limits.num_window_pages > 0 || !dice.OneIn(2)) return;
  limits.num_state_slots = DrawStateSlots(&dice, limits);
  for (StorePlan::Prefix& prefix : store.filled) {
    for (int64_t block = 1; block <= prefix.num_blocks; ++block) {
      if (dice.OneIn(2)) prefix.states.push_back(block);
    }
  }
}

// Scored prompts: of all tokens, of those from some position on, or of the last; a third of them
// without an answer. Drawn by separate dice, as windows are.
void DrawScored(Workload* workload) {
  Dice dice(workload->seed ^ 0x510E527FADE682D1ull);
  const int64_t rate = dice.Pick(0, 0, 1, 3);
  for (Arrival& arrival : workload->arrivals) {
    Request& request = arrival.request;
    const auto length = static_cast<int64_t>(request.prompt.size());
    if (rate == 0 || !dice.OneIn(rate) || request.session != 0) continue;
    request.sampling.num_prompt_logprobs = 0;
    request.sampling.prompt_logprobs_begin =
        static_cast<int32_t>(dice.Pick(1, 1, 1 + dice.Below(length), length - 1, length));
    request.sampling.prompt_logprobs_begin = std::max(request.sampling.prompt_logprobs_begin, 1);
    const bool has_any = request.sampling.prompt_logprobs_begin < length;
    if (has_any && dice.OneIn(3)) request.max_tokens = 0;
  }
}

// Grammars of some answers; through the runtime they come after a while, or fail to. Drawn by
// separate dice. Forced tokens need room for drafts.
void DrawGrammars(Workload* workload) {
  Dice dice(workload->seed ^ 0x3C6EF372FE94F82Bull);
  const int64_t rate = dice.Pick(0, 0, 1, 3);
  if (rate == 0) return;
  const int64_t stuck_rate = dice.Pick(0, 4);
  if (workload->options.max_drafts == 0 && dice.OneIn(2)) {
    workload->limits.max_step_drafts = static_cast<int32_t>(
        std::min<int64_t>(dice.Pick(1, 3, 40), workload->options.max_prefill_tokens));
  }
  const int64_t late_rate = Dice(workload->seed ^ 0x9216D5D98979FB1Bull).Pick(0, 0, 1, 3, 10);
  for (Arrival& arrival : workload->arrivals) {
    if (!dice.OneIn(rate)) continue;
    SimGrammar& grammar = arrival.grammar.emplace();
    grammar.seed = 1 + static_cast<uint64_t>(dice.Below(1 << 30));
    grammar.gets_stuck = stuck_rate > 0 && dice.OneIn(stuck_rate);
    grammar.vocab_size = workload->limits.vocab_size;
    grammar.has_end = !arrival.request.stop_ids.empty();
    grammar.late_rate = late_rate;
    grammar.is_free = grammar.has_end && grammar.seed % 4 == 0;  // no dice of its own
    if (workload->through_runtime) arrival.gate_opens = dice.Below(20);
    arrival.gate_fails = (workload->through_runtime || arrival.request.is_gated) && dice.OneIn(8);
  }
}

void DrawFaults(Dice* dice, int64_t last_step, Workload* workload) {
  const int64_t num_faults = dice->OneIn(3) ? dice->Pick(1, 2, 5) : 0;
  for (int64_t i = 0; i < num_faults; ++i) {
    Fault fault;
    fault.kind = static_cast<Fault::Kind>(dice->Below(workload->through_runtime ? 4 : 3));
    fault.step = dice->Below(last_step + 30);
    fault.row = static_cast<int>(dice->Below(fault.kind == Fault::Kind::kNoMemory ? 80 : 8));
    workload->faults.push_back(fault);
  }
  std::sort(workload->faults.begin(), workload->faults.end(),
            [](const Fault& a, const Fault& b) { return a.step < b.step; });
}

// How much others may compute beside a chat's turn, and requests that ask for their progress. Drawn
// by separate dice, as windows are.
void DrawChatRoom(Workload* workload) {
  Dice dice(workload->seed ^ 0x6A09E667F3BCC908ull);
  SchedulerOptions& options = workload->options;
  options.room_beside_chat = dice.Pick(0, 50, 400, 1000, 2500, 8000);
  options.keys_per_token = dice.Pick(0, 1, 10, 100);
  options.long_step_tokens = dice.Pick(0, 0, 1, 5, 30);
  for (Arrival& arrival : workload->arrivals) arrival.request.wants_progress = dice.OneIn(3);
}

}  // namespace

std::shared_ptr<TokenConstraint> MakeConstraint(const Arrival& arrival, SimMaskMaker* maker) {
  if (!arrival.grammar) return nullptr;
  return std::make_shared<SimConstraint>(*arrival.grammar, arrival.request.id, maker);
}

std::span<const KeyMark> Workload::MarksOf(RequestId id) const {
  const auto arrival = std::find_if(arrivals.begin(), arrivals.end(),
                                    [id](const Arrival& one) { return one.request.id == id; });
  return arrival == arrivals.end() ? std::span<const KeyMark>() : arrival->request.marks;
}

Workload DrawWorkload(uint64_t seed, WorkloadKind kind) {
  Dice dice(seed);
  Workload workload;
  workload.seed = seed;
  workload.kind = kind;
  workload.through_runtime = dice.OneIn(4);
  DrawSystem(&dice, &workload);
  std::vector<std::vector<TokenId>> stems;
  for (int64_t i = dice.Pick(1, 2, 4); i > 0; --i) {
    stems.push_back(DrawTokens(&dice, workload.limits.max_seq_len, workload.limits.vocab_size));
  }
  const int64_t num_requests = dice.Pick(1, 5, 20, 40);
  const int64_t pace = dice.Pick(0, 0, 1, 3, 30);  // bursts, a stream, idle gaps
  const int64_t abort_rate = dice.Pick(0, 3, 10);
  const int64_t timeout_rate = dice.Pick(0, 0, 5);
  const int64_t gate_rate = workload.through_runtime ? 0 : dice.Pick(0, 0, 2, 6);
  int64_t step = 0;
  for (int64_t i = 0; i < num_requests; ++i) {
    Arrival arrival;
    arrival.step = step;
    arrival.request = DrawRequest(&dice, workload, stems);
    arrival.request.id = static_cast<RequestId>(i + 1);
    if (abort_rate > 0 && dice.OneIn(abort_rate)) {
      for (int64_t n = dice.Pick(1, 1, 2); n > 0; --n) arrival.aborts.push_back(dice.Below(25));
      std::sort(arrival.aborts.begin(), arrival.aborts.end());
    }
    if (timeout_rate > 0 && dice.OneIn(timeout_rate)) arrival.times_out = dice.Below(40);
    if (gate_rate > 0 && dice.OneIn(gate_rate)) {
      arrival.request.is_gated = true;
      arrival.gate_opens = dice.Below(40);
    }
    workload.arrivals.push_back(std::move(arrival));
    if (pace > 0 && !dice.OneIn(3)) step += dice.Below(2 * pace);
  }
  DrawFaults(&dice, step, &workload);
  const bool has_marks = kind != WorkloadKind::kPlain;
  if (has_marks) DrawMarks(&workload);
  DrawTurns(&dice, &workload);
  if (seed % 8 == 5) MakeThrash(&workload);
  DrawGrammars(&workload);
  DrawStore(stems, &workload);
  if (has_marks) DrawKeptMarks(&workload);
  DrawWindows(&workload);
  if (kind != WorkloadKind::kWhole) {
    DrawStates(&workload);
    DrawKeptStates(&workload);
  }
  DrawScored(&workload);
  if (kind == WorkloadKind::kMarked) DrawExtras(&workload);
  if (kind == WorkloadKind::kMarked) DrawAdapters(&workload);
  if (kind == WorkloadKind::kPictures) DrawPictures(&workload);
  if (kind == WorkloadKind::kWhole) DrawWhole(&workload);
  DrawChatRoom(&workload);
  if (workload.limits.makes_drafts) {
    workload.limits.extras |= kWantsHidden;
    const bool reads_extras = seed % 4 != 0;
    workload.limits.draft_extras =
        reads_extras ? kReplacesEmbeddings | kGivesPositions | kHasInputs | kHasAdapter : 0;
  }
  return workload;
}

std::string Workload::Describe() const {
  std::string text = fmt::format(
      "seed {}: page size {}, {} pages, {} running, {} long, budget {}, threshold {}, {} cache, "
      "{} in a step, {}, {}, {}, depth {}, end rate {}; {} requests, {} faults, {} sessions",
      seed, limits.page_size, limits.num_pages, limits.max_running_requests, limits.max_seq_len,
      options.max_prefill_tokens, options.long_prefill_threshold,
      options.cache == CacheKind::kRadix ? "radix" : "naive", options.max_step_tokens,
      options.step == StepPolicy::kMixed ? "mixed" : "prefill-first",
      options.admission == AdmissionPolicy::kReserve ? "reserve" : "optimistic",
      options.queue == QueuePolicy::kPriority ? "priority" : "fcfs", depth, end_rate,
      arrivals.size(), faults.size(), sessions.size());
  if (kind == WorkloadKind::kMarked) text += "; with marks";
  if (kind == WorkloadKind::kWhole) text += "; prompts are whole";
  if (adapters.exists) text += fmt::format("; at most {} adapters", adapters.max_loaded);
  if (kind == WorkloadKind::kPictures) {
    text += fmt::format("; with pictures, {} embeddings a step{}, {} kept", options.encoder_budget,
                        limits.encodes_in_pieces ? " in pieces" : "", options.encoder_cache);
  }
  if (limits.num_window_pages > 0) {
    text += fmt::format("; a window of {} keys, {} window pages", limits.sliding_window,
                        limits.num_window_pages);
  }
  if (options.room_beside_chat > 0) {
    text += fmt::format("; room {} beside a chat, {} keys a token", options.room_beside_chat,
                        options.keys_per_token);
  }
  if (through_runtime) text += "; through the runtime";
  if (options.max_drafts > 0) {
    text += fmt::format("; {}{} drafts a row, {} a step, right {} %, none {} %",
                        limits.makes_drafts ? "the engine's " : "", options.max_drafts,
                        limits.max_step_drafts, drafter.right_percent, drafter.none_percent);
  }
  if (limits.num_state_slots > 0) text += fmt::format("; {} state slots", limits.num_state_slots);
  if (source.exists) {
    text += fmt::format("; a source: has {} %, unknown {} %, delay {}, fails {} %, then {}",
                        source.has_percent, source.unknown_percent, source.delay_max,
                        source.fail_percent,
                        options.kv_failure == KvFailurePolicy::kFail ? "failed" : "recomputed");
  }
  if (store.exists) {
    text += fmt::format(
        "; a store of blocks of {}, delay {}, torn {} %, lost {} %, refused {} %, full after {}, "
        "{} "
        "prefixes, {}{}",
        store.block_tokens, store.delay_max, store.torn_percent, store.lost_percent,
        store.refused_percent, store.full_after, store.filled.size(),
        options.kv_failure == KvFailurePolicy::kFail ? "failed" : "recomputed",
        store.drops_at_end ? ", drops at the end" : "");
  }
  if (arrivals.size() > 12) return text;
  for (const Arrival& arrival : arrivals) {
    text +=
        fmt::format("\n  step {}: request {}, prompt [{}], {} tokens{}", arrival.step,
                    arrival.request.id, fmt::join(arrival.request.prompt, " "),
                    arrival.request.max_tokens, arrival.request.stop_ids.empty() ? "" : ", stops");
    if (arrival.request.sampling.num_prompt_logprobs >= 0) {
      text += fmt::format(", scored from {}", arrival.request.sampling.prompt_logprobs_begin);
    }
    for (const KeyMark& mark : arrival.request.marks) {
      text += fmt::format(", mark {}/{} at {}", mark.hash[0], mark.hash[1], mark.place);
    }
    if (arrival.request.extras != nullptr) {
      text += fmt::format(", extras {}", arrival.request.extras->parts());
      for (const EncoderInput& input : arrival.request.extras->inputs) {
        text += fmt::format(", picture of {} at {} to {}{}", input.num_embeddings, input.token,
                            input.end(), input.attends_both_ways ? ", whole" : "");
      }
    }
    if (!arrival.aborts.empty()) {
      text += fmt::format(", aborted after {}", fmt::join(arrival.aborts, ", "));
    }
    if (arrival.times_out >= 0) text += fmt::format(", times out after {}", arrival.times_out);
    if (arrival.request.is_gated) text += fmt::format(", gated for {}", arrival.gate_opens);
    if (arrival.gate_fails) text += ", fails there";
    if (arrival.grammar) {
      text += fmt::format(", grammar {}", arrival.grammar->seed);
      if (arrival.grammar->late_rate > 0) {
        text += fmt::format(", one mask in {} late", arrival.grammar->late_rate);
      }
    }
    if (arrival.request.session != 0) text += fmt::format(", session {}", arrival.request.session);
  }
  for (const Fault& fault : faults) {
    text += fmt::format("\n  step {}: fault {} of row {}", fault.step, static_cast<int>(fault.kind),
                        fault.row);
  }
  return text;
}

namespace {

// Leaves out parts of `list` as long as the workload still fails.
template <typename T>
void ShrinkList(Workload* workload, std::vector<T> Workload::*list) {
  for (size_t part = ((*workload).*list).size() / 2; part >= 1; part /= 2) {
    for (size_t begin = 0; begin + part <= ((*workload).*list).size();) {
      Workload smaller = *workload;
      auto& items = smaller.*list;
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(begin),
                  items.begin() + static_cast<std::ptrdiff_t>(begin + part));
      if (Simulate(smaller).violation.empty()) {
        begin += part;
      } else {
        *workload = std::move(smaller);
      }
    }
  }
}

}  // namespace

Workload Shrink(const Workload& failing) {
  Workload workload = failing;
  ShrinkList(&workload, &Workload::faults);
  ShrinkList(&workload, &Workload::arrivals);
  ShrinkList(&workload, &Workload::sessions);
  for (Arrival& arrival : workload.arrivals) {
    const auto aborts = std::exchange(arrival.aborts, {});
    if (!aborts.empty() && Simulate(workload).violation.empty()) arrival.aborts = aborts;
  }
  return workload;
}

}  // namespace minisgl::sim
