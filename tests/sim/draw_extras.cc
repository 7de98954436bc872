#include "sim/draw_extras.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace minisgl::sim {

int64_t DrawLength(Dice* dice, const EngineLimits& limits) {
  const int64_t pages = dice->Below(1 + limits.max_seq_len / limits.page_size);
  const int64_t near = pages * limits.page_size + dice->Pick(-1, 0, 1);
  return std::max<int64_t>(dice->OneIn(3) ? 1 + dice->Below(limits.max_seq_len) : near, 0);
}

void DrawMarks(Workload* workload) {
  Dice dice(workload->seed ^ 0xBB67AE8584CAA73Bull);
  std::vector<int64_t> places;
  const int64_t more = workload->kind == WorkloadKind::kPictures ? 2 : 0;
  for (int64_t i = more + dice.Pick(0, 1, 1, 2, 4); i > 0; --i) {
    places.push_back(DrawLength(&dice, workload->limits));
  }
  std::sort(places.begin(), places.end());
  const auto num_contents = static_cast<uint64_t>(dice.Pick(1, 2, 3) * (more > 0 ? 2 : 1));
  auto num_adapters = static_cast<uint64_t>(places.empty() ? 2 : dice.Pick(0, 0, 1, 2));
  if (workload->kind == WorkloadKind::kPictures) num_adapters = 0;
  const auto draw_hash = [&dice](uint64_t num) {
    const auto content = static_cast<uint64_t>(dice.Below(static_cast<int64_t>(num)));
    return ContentHash{content % 2, content / 2};
  };
  for (Arrival& arrival : workload->arrivals) {
    Request& request = arrival.request;
    request.sampling.seed = request.id;
    if (num_adapters > 0 && !dice.OneIn(3)) request.marks.push_back({0, draw_hash(num_adapters)});
    for (const int64_t place : places) {
      if (place >= std::ssize(request.prompt) || dice.OneIn(3)) continue;
      request.marks.push_back({place, draw_hash(num_contents)});
    }
  }
}

void DrawKeptMarks(Workload* workload) {
  Dice dice(workload->seed ^ 0x7137449123EF65CDull);
  for (StorePlan::Prefix& prefix : workload->store.filled) {
    const int64_t from = dice.Below(std::ssize(workload->arrivals));
    prefix.marks = workload->arrivals[static_cast<size_t>(from)].request.marks;
    std::erase_if(prefix.marks,
                  [&](const KeyMark& mark) { return mark.place >= std::ssize(prefix.tokens); });
  }
}

void ContinueMarks(const Request& before, int64_t last, Request* turn) {
  const std::vector<KeyMark> own = std::exchange(turn->marks, before.marks);
  if (own.empty()) return;
  if (own.size() % 3 == 2 && !turn->marks.empty()) {
    turn->marks.back().hash = own.back().hash;
  } else {
    turn->marks.push_back({last, own.back().hash});
  }
}

void DrawExtras(Workload* workload) {
  Dice dice(workload->seed ^ 0x59F111F1B605D019ull);
  workload->limits.extras =
      kReplacesEmbeddings | kGivesPositions | kHasAdapter | kWantsHidden | kWantsPooling;
  const int64_t rate = dice.Pick(0, 1, 1, 2);
  for (Arrival& arrival : workload->arrivals) {
    Request& request = arrival.request;
    if (rate == 0 || !dice.OneIn(rate)) continue;
    RowExtras extras;
    const int64_t length = std::ssize(request.prompt);
    for (size_t i = 0; i < request.marks.size() && dice.OneIn(2); ++i) {
      const int64_t begin = request.marks[i].place;
      const int64_t end = i + 1 < request.marks.size() ? request.marks[i + 1].place : length;
      if (begin == end) continue;
      extras.embeddings.push_back({begin, static_cast<int32_t>(1 + dice.Below(end - begin)),
                                   static_cast<int32_t>(dice.Below(4)),
                                   request.marks[i].hash[1] * 2 + request.marks[i].hash[0]});
    }
    if (!request.marks.empty() && dice.OneIn(3)) {
      for (int32_t place = 0; place < length; ++place) {
        const bool is_own = place >= request.marks.front().place;
        extras.positions.of_prompt.push_back(is_own ? RopePosition{place / 2, place % 7, place % 5}
                                                    : RopePosition{place, place, place});
      }
      extras.positions.shift = static_cast<int32_t>(dice.Pick(-3, 0, 5));
    }
    const bool may_adapt = !request.marks.empty() && request.marks.front().place == 0;
    if (may_adapt && dice.OneIn(2)) extras.adapter = static_cast<AdapterSlot>(dice.Below(3));
    const bool wants_hidden = dice.OneIn(4);
    const int64_t hidden_from = wants_hidden ? dice.Below(length + 4) : 0;
    // The engine's own drafter is the one that takes them.
    if (wants_hidden && !workload->limits.makes_drafts) extras.hidden = HiddenWanted{hidden_from};
    if (request.session == 0 && !arrival.grammar && dice.OneIn(5)) {
      extras.pooling = static_cast<Pooling>(dice.Below(4));
      request.max_tokens = 0;
      request.sampling.num_prompt_logprobs = -1;
    }
    request.extras = std::make_shared<const RowExtras>(std::move(extras));
  }
}

void DrawAdapters(Workload* workload) {
  Dice dice(workload->seed ^ 0x428A2F98D728AE22ull);
  const auto is_memory = [](const Fault& fault) { return fault.kind == Fault::Kind::kNoMemory; };
  const auto& faults = workload->faults;
  // A source that runs out of memory in the middle of a call is no source.
  if (!dice.OneIn(2) || std::any_of(faults.begin(), faults.end(), is_memory)) return;
  workload->adapters = {.exists = true,
                        .max_loaded = static_cast<int32_t>(dice.Pick(1, 1, 2)),
                        .delay_max = dice.Pick(0, 3, 12)};
}

void DrawPictures(Workload* workload) {
  Dice dice(workload->seed ^ 0x923F82A4AF194F9Bull);
  workload->limits.extras = kReplacesEmbeddings | kHasInputs;
  workload->options.encoder_budget = dice.Pick(1, 5, 16, 60);
  workload->options.encoder_cache = dice.Pick(1, 10, 30, 200);
  workload->limits.encodes_in_pieces = !dice.OneIn(3);
  for (int64_t i = dice.Pick(0, 0, 1, 4); i > 0; --i) {
    const int64_t last_step = workload->arrivals.back().step;
    workload->faults.push_back({Fault::Kind::kStepFails, dice.Below(last_step + 20), 0});
  }
  std::stable_sort(workload->faults.begin(), workload->faults.end(),
                   [](const Fault& a, const Fault& b) { return a.step < b.step; });
  const int64_t longest = dice.Pick(2, 10, 30, 60);
  const int64_t both_ways = dice.Pick(0, 0, 1, 2);  // pictures of 2 that attend so
  std::map<ContentHash, std::pair<int64_t, bool>> shapes;
  for (Arrival& arrival : workload->arrivals) {
    Request& request = arrival.request;
    RowExtras extras;
    const int64_t length = std::ssize(request.prompt);
    for (size_t i = 0; i < request.marks.size(); ++i) {
      const KeyMark& mark = request.marks[i];
      if (!shapes.contains(mark.hash)) {
        shapes[mark.hash] = {1 + dice.Below(longest), dice.Below(2) < both_ways};
      }
      const auto [size, attends_both_ways] = shapes[mark.hash];
      int64_t end = i + 1 < request.marks.size() ? request.marks[i + 1].place : length;
      end = std::min({end, length - 1, mark.place + size});
      if (end <= mark.place) continue;
      const auto source = static_cast<EmbeddingSource>(extras.inputs.size());
      extras.inputs.push_back({mark.place, end - mark.place, size, mark.hash, attends_both_ways});
      const auto count = static_cast<int32_t>(end - mark.place);
      const int32_t text_at = size % 3 == 0 && count > 2 ? count / 2 : count;
      extras.embeddings.push_back({mark.place, text_at, 0, source});
      if (text_at + 1 < count) {
        extras.embeddings.push_back(
            {mark.place + text_at + 1, count - text_at - 1, text_at, source});
      }
    }
    if (!extras.inputs.empty()) {
      request.extras = std::make_shared<const RowExtras>(std::move(extras));
    }
  }
}

void DrawWhole(Workload* workload) {
  Dice dice(workload->seed ^ 0xD807AA98A3030242ull);
  workload->limits.extras = kWantsPooling;
  workload->limits.attends_both_ways = workload->limits.lacks_head = true;
  workload->limits.makes_drafts = false;
  workload->sessions.clear();
  EngineLimits& limits = workload->limits;
  SchedulerOptions& options = workload->options;
  if (!dice.OneIn(4)) {  // else many texts are longer than a step
    options.max_prefill_tokens = std::max(
        options.max_prefill_tokens, limits.max_seq_len / static_cast<int32_t>(dice.Pick(1, 1, 2)));
    const auto step = options.max_prefill_tokens + limits.max_running_requests;
    limits.max_step_tokens = std::max(limits.max_step_tokens, step);
    if (options.max_step_tokens > 0) {
      options.max_step_tokens = std::max(options.max_step_tokens, step);
    }
  }
  for (Arrival& arrival : workload->arrivals) {
    Request& request = arrival.request;
    arrival.grammar.reset();
    if (workload->through_runtime) request.is_gated = false;
    RowExtras extras;
    extras.pooling = static_cast<Pooling>(dice.Below(4));
    request.session = 0;
    request.max_tokens = 0;
    request.sampling.seed = request.id;
    request.sampling.num_prompt_logprobs = -1;
    request.extras = std::make_shared<const RowExtras>(std::move(extras));
  }
}

}  // namespace minisgl::sim
