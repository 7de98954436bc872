"""The measure of the simulation itself: known bugs are put back into a copy of the scheduler and the cache, one at a time,
and the simulation must find each within 1,000 seeds.

    python3 tests/sim/mutants.py SOURCE_ROOT SCRATCH_FOLDER [NAME ...]
    python3 tests/sim/mutants.py --write-hash SOURCE_ROOT SCRATCH_FOLDER

tests/sim/mutants.hash is the hash of the sources with which all were last found. If they are the same, all is skipped, unless
names are given or MINISGL_LONG is set. --write-hash looks at all and writes it if all are found.

Each bug is a change of text in one file, named after where it was met (reliability notes of the field: A-E are the five
faults of the reference scheduler; `project#n` are threads of others). If the text of a change is no longer in its file, the mutant fails, so the
list cannot rot. Production code carries no switches for it. Prints TAP; the last line counts.
"""
import concurrent.futures
import hashlib
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

SEEDS = 2000
HASH_FILE = "tests/sim/mutants.hash"

# name, file, text, what it becomes
MUTANTS = [
    ("A: a remapped page is freed and still mapped (mini-sglang#142)", "sched/page_ledger.cc", "    mine = held;\n", ""),
    ("A: the device's page table keeps a remapped page", "sched/page_ledger.cc",
     "state->clean_pages = std::min(state->clean_pages, page);", ""),
    ("B: an abort frees what a step in flight uses", "sched/page_ledger.cc", "if (state->in_flight > 0) {", "if (false) {"),
    ("B: a result for an aborted request is processed (vllm#33377)", "sched/scheduler.cc",
     "if (state->phase == Phase::kEnded) {  // computed ahead: the token is dropped", "if (false) {"),
    ("C: reservation rounds pages down", "sched/request_state.h", "CeilDiv<int64_t>(max_kv_len(), page_size)",
     "max_kv_len() / page_size"),
    ("D: a prompt too long is dropped without an answer", "sched/scheduler.cc",
     "if (length > context.limits.max_seq_len || num_pages > context.limits.num_pages) {",
     "if (length > context.limits.max_seq_len || num_pages > context.limits.num_pages) {\n    ++context.stats.failed; requests.erase(id); return;"),
    ("E: the end is announced one token early", "sched/scheduler.cc", "state->answer_len() == state->request.max_tokens",
     "state->answer_len() + 1 >= state->request.max_tokens"),
    ("the whole prompt cached leaves nothing to run (nano-vllm#144)", "sched/prefill_manager.cc",
     "known.first(static_cast<size_t>(state->shareable_len()))", "known"),
    ("admission does not lock what it matched (mini-sglang#52)", "sched/page_ledger.cc",
     "  cache_.cache().Lock(match.node);\n", ""),
    ("evicted tokens counted as pages (mini-sglang#80)", "kv/radix_cache.cc", "num_evictable_ -= static_cast<int32_t>(taken);",
     "num_evictable_ -= static_cast<int32_t>(taken * page_size_);"),
    ("a chunk that is not the last samples (mini-sglang ef4367f)", "sched/scheduler_steps.cc",
     "builder.AddRow(row.state, row.count, is_last && row.state->request.max_tokens > 0);",
     "builder.AddRow(row.state, row.count, row.state->request.max_tokens > 0);"),
    ("the budget is never charged (mini-sglang#47)", "sched/prefill_manager.cc", "draft_->budget -= count;", ""),
    ("lengths of before the preemption (nano-vllm#211)", "sched/page_ledger.cc",
     "  state->computed_len = state->launched_len = state->cached_len;",
     "  if (state->preemptions == 0) state->computed_len = state->launched_len = state->cached_len;"),
    ("attention reads past what is written (nano-vllm#212)", "sched/plan_builder.cc",
     "plan.kv_len.push_back(static_cast<int32_t>(state->launched_len));",
     "plan.kv_len.push_back(static_cast<int32_t>(state->launched_len) + (wants_token ? 0 : 1));"),
    ("pages enter the tree before they are written (nano-vllm#208)", "sched/scheduler.cc",
     "std::max(state->computed_len, computed_len)", "std::max(state->computed_len, state->launched_len)"),
    ("a token is lost after preemption (nano-vllm#217)", "sched/prefill_manager.cc",
     "state->prefill_len = static_cast<int64_t>(known.size());",
     "state->prefill_len = static_cast<int64_t>(known.size()) - (state->preemptions > 0 && known.size() > 1 ? 1 : 0);"),
    ("a request larger than the pool is accepted (vllm#39734)", "sched/scheduler.cc",
     " || num_pages > context.limits.num_pages) {", ") {"),
    ("pages owed to the half-admitted are not counted (vllm#45388)", "sched/prefill_manager.cc",
     " + pages_->OwedPages();", ";"),
    ("the match counts as evictable room (sglang#35270)", "sched/page_ledger.cc",
     "if (wanted <= num_attainable()) return true;", "return true;"),
    ("deferred pages do not count as pending (vllm-ascend#16315)", "sched/page_ledger.cc",
     "count > num_available() + num_pending_free()", "count > num_available()"),
    ("preemption without bound (inference-sim#963)", "sched/prefill_manager.cc", "state->preemptions >= kPreemptionsMax",
     "false"),
    ("a victim stays in the step that preempted it", "sched/preemptor.cc", "  draft_->Withdraw(state);\n", ""),
    ("a page has two ways out (sglang-jax#982)", "sched/page_ledger.cc", "  state->pages.clear();\n", ""),
    ("overlap counts one token too many as computed (sglang#24590)", "sched/scheduler.cc",
     "std::max(state->computed_len, computed_len)", "std::max(state->computed_len, computed_len + 1)"),
    ("evictable pages counted twice (sglang#6888)", "kv/radix_cache.cc",
     "      num_evictable_ += static_cast<int32_t>(node->pages.size());",
     "      num_evictable_ += 2 * static_cast<int32_t>(node->pages.size());"),
    ("pages come back one step early (sglang#18803)", "kv/cache_manager.cc", "deferred_.front().fence <= step",
     "deferred_.front().fence <= step + 1"),
    ("abort twice (vllm#25067)", "sched/scheduler.cc",
     "if (found == requests.end() || found->second->phase == Phase::kEnded) return;",
     "if (found == requests.end()) return;"),
    ("a preempted request comes back before its token landed (sglang#14972)", "sched/prefill_manager.cc",
     "if (state->in_flight > 0 || state->is_loading) continue;", "if (state->is_loading) continue;"),
    ("a request waits for a prefix of one that was released (sglang#38355)", "sched/preemptor.cc",
     "  queues_->StopComputing(*state, state->tree_pages, state->registered_pages);\n", ""),
    ("a split loses its locks (mini-sglang#46)", "kv/radix_cache.cc", "  upper->refs = lower->refs;\n", ""),
    ("only the used node is touched, not its path", "kv/radix_cache.cc",
     "    if (lru_.Contains(node)) lru_.Remove(node);\n    lru_.PushFreshest(node);",
     "    if (lru_.Contains(node)) lru_.Remove(node);\n    lru_.PushFreshest(node);\n    break;"),
    ("eviction drops the head of a prefix and keeps its tail", "kv/radix_cache.cc",
     "leaf->pages.rbegin(),\n                  leaf->pages.rbegin() + static_cast<std::ptrdiff_t>(taken));",
     "leaf->pages.begin(), leaf->pages.begin() + static_cast<std::ptrdiff_t>(taken));"),
    ("the cache says it took pages it had already (vllm GHSA-rm76)", "kv/radix_cache.cc",
     "result.pages.insert(result.pages.end(), child->pages.begin(), child->pages.end());",
     "result.pages.insert(result.pages.end(), pages.begin() + static_cast<std::ptrdiff_t>(index), pages.begin() + static_cast<std::ptrdiff_t>(index + child->pages.size()));"),
    ("a leaf that others lock grows under them", "kv/radix_cache.cc", "node->refs <= (node == from ? 1 : 0)", "true"),
    ("prefixes are compared by one block, not the chain (nano-vllm)", "kv/radix_cache.cc",
     "return CommonLength(node->key(), key) / page_size_;",
     "return node->pages.size() <= key.size() / page_size_ ? node->pages.size() : CommonLength(node->key(), key) / page_size_;"),
    ("a stop token at the length limit is reported as length", "sched/scheduler.cc",
     "if (std::binary_search(stops.begin(), stops.end(), row.token)) {",
     "if (state->answer_len() < state->request.max_tokens && std::binary_search(stops.begin(), stops.end(), row.token)) {"),
    ("rejected drafts stay counted (vllm#21345)", "sched/scheduler.cc", "RollBack(state, known_len + accepted)",
     "RollBack(state, known_len + num_drafts)"),
    ("keys of rejected drafts count as computed", "sched/scheduler.cc", "std::min<int64_t>(known_len, state_len), row);",
     "kv_len, row);"),
    ("pages of rejected drafts are lost (sglang#24590)", "sched/page_ledger.cc",
     "  cache_.Give(std::span<const PageId>(state->pages).subspan(kept));\n", ""),
    ("the device keeps the pages of rejected drafts", "sched/page_ledger.cc",
     "  state->clean_pages = std::min(state->clean_pages, static_cast<int32_t>(kept));\n", ""),
    ("drafts past the last token (vllm#16258)", "sched/decode_manager.cc", "state.max_device_len() - state.device_len - 1});",
     "state.max_device_len() - state.device_len});"),
    ("prompts leave no room for decoding rows", "sched/scheduler_steps.cc",
     "context.options.max_step_tokens - std::ssize(draft.decode)", "context.options.max_step_tokens"),
    ("drafts beyond the budget of the step", "sched/decode_manager.cc",
     "std::min<int64_t>(draft.budget, context_->limits.max_step_drafts)", "context_->limits.max_step_drafts"),
    ("a step is planned beside drafts in flight", "sched/scheduler.cc",
     "if (!in_flight.empty() && (in_flight.back().has_drafts || decode.WantsDrafts())) return nullptr;", ""),
    ("tokens past the end inside a draft are reported", "sched/scheduler.cc",
     "i < accepted && goes_on; ++i", "i < accepted; ++i"),
    ("drafts are written one place late", "sched/plan_builder.cc", "state->launched_len + count - num_drafts)",
     "state->launched_len + count - num_drafts + 1)"),
    ("a step beside a chat takes any number of other rows", "sched/step_draft.cc", "if (!is_bounded || ", "if (true || "),
    ("rows beside a chat use no room up", "sched/decode_manager.cc", "  draft_->room -= room;\n", ""),
    ("prompts beside a chat use no room up", "sched/prefill_manager.cc", "  draft_->room -= room;\n", ""),
    ("room that was used comes back in the next step", "sched/chat_room.cc", "std::min(saved_, refused_)", "std::max(saved_, refused_)"),
    ("a row that finds no room blocks a step without a chat", "sched/scheduler_steps.cc", "  draft.lets_one_run = true;\n", ""),
    ("an admitted prompt without room has an empty chunk", "sched/prefill_manager.cc",
     "  if (count < least) {\n    return encoders_->Advance(state, least) || encoders_->WaitsForBudget(*state, least);\n  }\n", ""),
    ("a turn does not wait for the one before it", "sched/scheduler.cc",
     "if (session != 0 && !queues.sessions().AddTurn(state)) state->holds |= sched::kHeldByTurn;",
     "if (session != 0) queues.sessions().AddTurn(state);"),
    ("a closed session keeps its lock", "sched/session_table.cc", "  Unlock(&found->second);\n  sessions_.erase", "  sessions_.erase"),
    ("every row is kept for sessions", "sched/session_table.cc", "std::max((rows - 1) / 2, 1), rows - 1);", "std::max((rows - 1) / 2, 1), rows);"),
    ("the end of a turn does not release the next", "sched/scheduler.cc",
     "if (next != nullptr) queues.waiting().Unhold(next, sched::kHeldByTurn);", ""),
    ("an open gate stays shut", "sched/scheduler.cc", "queues.waiting().Unhold(state, sched::kHeldByGate);", ""),
    ("a gated request is admitted", "sched/scheduler.cc", "if (state->request.is_gated) state->holds |= sched::kHeldByGate;", ""),
    ("pages are freed while a load writes them (vllm#45388)", "sched/page_ledger.cc", "if (state->is_loading) {  // no step", "if (false) {  //"),
    ("a failed load counts as whole", "sched/scheduler.cc", "std::clamp<int64_t>(result.num_tokens, 0, state->load_len)",
     "state->load_len"),
    ("a load leaves nothing to compute", "sched/kv_loader.cc", "state.shareable_len() - cached_len",
     "state.shareable_len() + 1 - cached_len"),
    ("a request loads again before its old load ended", "sched/prefill_manager.cc",
     "if (state->in_flight > 0 || state->is_loading) continue;", "if (state->in_flight > 0) continue;"),
    ("a failure of all leaves one without an answer", "runtime/serve_loop.cc",
     "  while (!live_.empty()) {\n    live_.begin()->second.answer.Fail(", "  while (live_.size() > 1) {\n    live_.begin()->second.answer.Fail("),
    ("a deadline outlives its request (and expires twice)", "runtime/serve_loop.cc",
     "    const RequestId id = deadlines_.begin()->second;\n    deadlines_.erase(deadlines_.begin());\n",
     "    const RequestId id = deadlines_.begin()->second;\n"),
    ("what is in flight is not collected while nothing can be planned", "runtime/serve_loop.cc",
     "in_flight_.size() > depth_ || (plan == nullptr && !in_flight_.empty())", "in_flight_.size() > depth_"),
    ("a request that waits for a prefix is never unheld", "sched/request_queues.cc",
     "  for (RequestState* waiter : waiters) waiting_.Unhold(waiter, kHeldByPrefix);\n", ""),
    ("a request that waited for a prefix stays listed after an abort", "sched/request_queues.cc",
     "if ((state->holds & kHeldByPrefix) != 0) computing_", "if (false) computing_"),
    ("a step that preempts and stays empty is the last (chat at one row)", "sched/scheduler.cc",
     "while (draft.empty() && draft.preempted && !encoders.has_draft());", "while (false);"),
    ("scores: a cached page hides a token to score", "sched/prefill_manager.cc",
     "known.first(static_cast<size_t>(state->shareable_len()))", "known.first(known.size() - 1)"),
    ("scores: told again after a preemption", "sched/request_state.h", "std::max(launched_len, scored_len - 1)",
     "std::max(launched_len, scored_begin() - 1)"),
    ("scores: a chunk forgets the token after it", "sched/plan_builder.cc",
     "state->launched_len + count + (wants_token ? 0 : 1)", "state->launched_len + count"),
    ("scores: a prompt that is only scored is answered", "sched/scheduler_steps.cc",
     "is_last && row.state->request.max_tokens > 0", "is_last"),
    ("scores: a request ends before its last score", "sched/scheduler.cc",
     "state->pools() ? !row.vector.empty() : state->scored_len == state->prompt_len();", "state->pools() ? !row.vector.empty() : true;"),
    ("windows: a page is given up one token early", "sched/window_ledger.cc",
     "std::max(limits.sliding_window, 1)", "std::max(limits.sliding_window - 1, 1)"),
    ("windows: the window is counted by launched tokens", "sched/window_ledger.cc",
     "int32_t begin = math_.FirstPage(state->computed_len);", "int32_t begin = math_.FirstPage(state->launched_len);"),
    ("windows: a match reaches back over a hole", "sched/window_ledger.cc",
     "if (!pool_->Has(matched[first])) usable = first;", ""),
    ("windows: a match looks back one page less", "sched/window_ledger.cc", "static_cast<size_t>(math_.PagesBefore())",
     "static_cast<size_t>(std::max<int64_t>(math_.PagesBefore() - 1, 0))"),
    ("windows: a freed page keeps its window page", "kv/cache_manager.cc",
     "    if (windows_ != nullptr) windows_->Release(page);\n", ""),
    ("windows: one page less than a request needs is promised", "sched/window_ledger.cc",
     "math_.PagesOf(limits_.max_in_flight - 1 + state.longest_whole()));",
     "math_.PagesOf(limits_.max_in_flight - 1 + state.longest_whole()) - 1);"),
    ("windows: pages promised to others are lent to a chunk", "sched/window_ledger.cc",
     "beyond <= limits_.num_window_pages - Pledged()", "beyond <= limits_.num_window_pages"),
    ("windows: admission counts what is held, not what is promised", "sched/window_ledger.cc",
     "std::max(Promised(*state), claimed + grows)", "claimed + grows"),
    ("windows: a match is not claimed", "sched/window_ledger.cc",
     "  Claim(state, static_cast<size_t>(state->window_begin));\n", ""),
    ("windows: a deferred page gives its window page away", "kv/cache_manager.cc",
     "    if (!HasWindow(page)) continue;\n    windows_->Claim(page);\n    ++num_deferred_windows_;\n", ""),
    ("windows: a claim does not follow a remapped page", "sched/window_ledger.cc",
     "  if (is_claimed) pool_->Claim(to);\n", ""),
    ("windows: pages computed again do not fill the hole", "sched/window_ledger.cc",
     "  if (!pool_->Has(to)) pool_->Move(from, to);\n", ""),
    ("windows: a reclaimed window page is still its old page's", "kv/window_pool.cc",
     "    window_of_[static_cast<size_t>(page_of_[static_cast<size_t>(window_page)])] = kNone;\n", ""),
    ("windows: rejected drafts keep their claims", "sched/page_ledger.cc",
     "  windows_.Unclaim(state, kept, state->pages.size());\n", ""),
    ("windows: a request is preempted for pages that a chunk in flight will return", "sched/window_ledger.cc",
     "  return beyond <= 0 || beyond <= limits_.num_window_pages - Pledged();", "  return true;"),
    ("windows: a token goes to another slot of its window page", "sched/plan_builder.cc",
     "plan.window_slots.push_back(WindowSlot(page, position));", "plan.window_slots.push_back(WindowSlot(page, 0));"),
    ("constraints: a step is launched before the masks of the last are made", "sched/scheduler.cc",
     "if (!in_flight.empty() && in_flight.back().needs_masks) return nullptr;", ""),
    ("constraints: masks are made while the token before is in flight (vllm#48516)", "sched/scheduler_masks.cc",
     "if (in_flight.size() != 1 || !in_flight.back().needs_masks)", "if (in_flight.empty() || !in_flight.back().needs_masks)"),
    ("constraints: drafts are not taken back after their masks (vllm#14702)", "sched/constrained_rows.cc",
     "  constraint.RollBack(std::min(place, num_drafts));\n", ""),
    ("constraints: all places of a row have the mask of the first (vllm#44297)", "sched/constrained_rows.cc",
     "    if (constraint.FillMask(mask, work_left) == MaskOutcome::kLater) break;\n",
     "    if (place > 0) std::copy(mask.data() - mask.size(), mask.data(), mask.data()); else if (constraint.FillMask(mask, work_left) == MaskOutcome::kLater) break;\n"),
    ("constraints: drafts are not cut", "sched/decode_manager.cc",
     "if (state->request.constraint != nullptr && !row->is_made) CutDrafts(*state, &row->drafts);", ""),
    ("constraints: forced tokens are not cut", "sched/decode_manager.cc", "  CutDrafts(*row->state, &forced);\n", ""),
    ("constraints: what was tried of drafts is not taken back", "sched/constrained_rows.cc",
     "  constraint.RollBack(static_cast<int64_t>(accepted));\n", ""),
    ("constraints: an answer goes on where nothing but the end may follow", "sched/scheduler.cc",
     "if (constraint->MustEnd()) {", "if (false) {"),
    ("constraints: tokens are not taken", "sched/scheduler.cc",
     "if (constraint != nullptr && !constraint->Accept(row.token)) {", "if (false) {"),
    ("constraints: no token to choose counts as a fault of the model", "sched/scheduler.cc", "if (IsStuck(*state)) {", "if (false) {"),
    ("constraints: a cut answer is not said to be cut", "sched/scheduler.cc",
     "event.cut_in_constraint = state->request.constraint != nullptr && !state->may_end;", ""),
    ("constraints: the stop token counts as text", "sched/scheduler.cc", "    state->may_end = constraint->MayEnd();\n", ""),
    ("constraints: rows that sample without a mask", "sched/plan_builder.cc",
     "if (is_masked) {", "if (is_masked && state->preemptions == 0) {"),
    ("constraints: a token sampled without the mask that it needed is kept", "sched/scheduler.cc",
     "  if (goes_on) DropIfUnmasked(state);\n", ""),
    ("constraints: a row goes on past one that may be dropped", "sched/request_state.h",
     "(request.constraint == nullptr || in_flight < 2)", "true"),
    ("constraints: the places after drafts are not asked for masks", "sched/constrained_rows.cc",
     "    needs = constraint.NeedsMask(0);\n", ""),
    ("constraints: the gate opens without its constraint", "sched/scheduler.cc",
     "if (constraint != nullptr) SetConstraint(state, std::move(constraint));", ""),
    ("constraints: a failed gate leaves its request waiting", "sched/scheduler.cc",
     "  End(requests.at(id).get(), EndReason::kFailed, std::move(error_code), std::move(error_message));\n", ""),
    ("constraints: a failed gate ends a request that runs", "sched/scheduler.cc",
     "  if (!IsGated(id)) return;\n  End(", "  if (requests.find(id) == requests.end()) return;\n  End("),
    ("constraints: the loop forgets masks after a collected step", "runtime/serve_loop.cc",
     "  SupplyMasks();  // the step in flight waits for them\n", ""),
    ("late masks: the token sampled without one is kept", "sched/scheduler.cc",
     "std::min(static_cast<int32_t>(row.more.size()), places_made - 1)", "static_cast<int32_t>(row.more.size())"),
    ("late masks: drafts after the first place without one are kept", "sched/scheduler_masks.cc",
     "step.places_made[at] = num_made;", "step.places_made[at] = num_made == 0 ? 0 : num_places;"),
    ("late masks: a row goes on while its mask is made", "sched/scheduler_masks.cc",
     "    state->awaited_mask = static_cast<int64_t>(state->tokens.size()) + num_made;\n", ""),
    ("late masks: a row goes on before its step without one is collected", "sched/request_state.h",
     "return awaited_mask >= 0 || drops_tokens;", "return awaited_mask >= 0;"),
    ("late masks: a row never goes on", "sched/scheduler_masks.cc",
     "if (found != requests.end()) found->second->awaited_mask = -1;", ""),
    ("late masks: the last token's keys count as computed", "sched/scheduler_masks.cc", "std::min(known_len - 1, state_len)", "known_len"),
    ("late masks: lengths are not taken back", "sched/scheduler.cc", "if ((num_drafts > 0 || accepted < 0) &&", "if (num_drafts > 0 &&"),
    ("late masks: a request that waits for one alone is thought to run", "sched/scheduler.cc",
     "state->phase != Phase::kLoading && state->LacksMask();", "false;"),
    ("late masks: requests that wait beside one are thought to run", "sched/scheduler.cc",
     "return any_mask || pages.loader()", "return pages.loader()"),
    ("late masks: the loop does not hear that they are made", "runtime/serve_loop.cc",
     "  for (const RequestId id : ready) scheduler_.MaskReady(id);\n", ""),
    ("late masks: the log-probabilities of a row without one are lost", "sched/scheduler.cc",
     "if (!row.scored.empty() && !CollectScored(state, known_len, row)) return;",
     "if (!row.scored.empty() && accepted >= 0 && !CollectScored(state, known_len, row)) return;"),
    ("constraints: a grammar is not waited for", "runtime/serve_loop.cc", "    request.is_gated = true;\n", ""),
    ("constraints: a grammar that fails opens the gate", "runtime/serve_loop.cc", "if (outcome.status.ok()) {", "if (true) {"),
    ("states: a row writes the state that it reads", "sched/state_ledger.cc", "entry.len == begin || ", ""),
    ("states: a match goes on from no state", "kv/radix_cache.cc", "while (match->node != root_ && !HasSnapshot(match->node)) {", "while (false) {"),
    ("states: a match begins where the cached path ends", "sched/state_ledger.cc", "int64_t{page_size_} * std::ssize(match.pages);",
     "int64_t{page_size_} * static_cast<int64_t>(match.cached_pages);"),
    ("states: a snapshot is read without a pin", "sched/state_ledger.cc", "  pool_->Pin(match.state);\n  state->pinned_state = match.state;", "  state->pinned_state = match.state;"),
    ("states: a pin is given up by the row that reads", "sched/state_ledger.cc", "if (begin > state->pinned_len) Unpin(state);", "Unpin(state);"),
    ("states: a pinned snapshot may be evicted", "kv/state_pool.cc", "  if (IsListed(slot)) Unlist(slot);\n  ++At(slot).pins;", "  ++At(slot).pins;"),
    ("states: a node grows past its snapshot", "kv/radix_cache.cc", " && !HasSnapshot(node);", ";"),
    ("states: a node that loses its end keeps its snapshot", "kv/radix_cache.cc", "      if (states_ != nullptr) states_->Detach(leaf);\n      leaf->pages.resize(kept);", "      leaf->pages.resize(kept);"),
    ("states: a node that is deleted keeps its snapshot", "kv/radix_cache.cc", "  if (states_ != nullptr) states_->Detach(leaf);\n  nodes_.erase(leaf);", "  nodes_.erase(leaf);"),
    ("states: those of rejected drafts are kept", "sched/state_ledger.cc", "if (entry.len > len) pool_->Give(entry.slot);\n    return entry.len > len;", "return false;"),
    ("states: rejected drafts are not computed again", "sched/scheduler.cc", "if (goes_on && state_len < known_len + accepted) ComputeAgain(state);", ""),
    ("states: tokens that lack a state count as computed", "sched/scheduler.cc", "std::min(known_len + 1 + i, state_len),", "known_len + 1 + i,"),
    ("states: a prompt without a mask is not computed again", "sched/scheduler_masks.cc", "if (state_len < known_len - 1) ComputeAgain(state);", ""),
    ("states: admission does not ask for slots", "sched/state_ledger.cc", "NumSpare() >= entitled_;", "true;"),
    ("states: marks take slots that are promised", "sched/state_ledger.cc", "at_hand > 0 && NumSpare() > 0", "at_hand > 0"),
    ("states: a mark does not go on from the one before", "sched/state_ledger.cc", "    read = slot;\n", ""),
    ("states: a snapshot that the next row reads is given up", "sched/state_ledger.cc", "if (!is_last) return false;", "return false;"),
    ("states: those of a request that ends are lost", "sched/state_ledger.cc", "    if (!stays) pool_->Give(entry.slot);\n", ""),
    ("states: a snapshot is left for another length", "sched/state_ledger.cc", "first(static_cast<size_t>(entry.len))", "first(static_cast<size_t>(entry.len - (entry.len > page_size_ ? page_size_ : 0)))"),
    ("states: an evicted snapshot is still its node's", "kv/state_pool.cc", "  slot_of_.erase(entry.node);\n", ""),
    # Prefixes that are saved, and loaded from where they were saved.
    ("saves: the pages are not held", "sched/kv_saver.cc", "  if (!offer.is_taken) {\n    cache_->Unlock(node);\n    return;\n  }\n",
     "  cache_->Unlock(node);\n  if (!offer.is_taken) return;\n"),
    ("saves: the pages are held for ever", "sched/kv_saver.cc", "  cache_->Unlock(found->second.node);\n", ""),
    ("saves: a request waits for pages that wait to be saved", "sched/page_ledger.cc",
     "while (count > num_available() && saver_.DropOne()) {", "while (false) {"),
    ("saves: pages that are needed are given up while they are read", "sched/kv_saver.cc",
     "if (const auto result = source_->DropSave(latest->first)) End(*result);",
     "source_->DropSave(latest->first);\n  End({.id = latest->first});"),
    ("saves: the source forgets what it reads when the save is dropped", "runtime/prefix_source.cc",
     "  if (!save.jobs.empty()) return std::nullopt;\n", ""),
    ("saves: nothing waits for a save that was dropped while it is read", "sched/scheduler.cc",
     "pages.loader().num_abandoned_pages() > 0 || pages.saver().num_dropping() > 0", "pages.loader().num_abandoned_pages() > 0"),
    ("saves: pages that are not whole are offered", "sched/kv_saver.cc", "int64_t{save.locked_pages} * page_size_ / block * block",
     "std::ssize(state.tokens) / block * block"),
    ("saves: what was saved is not collected", "sched/scheduler.cc", "  pages.saver().CollectSaved();\n", ""),
    ("saves: a block is read from the pages of the one before", "runtime/prefix_source.cc",
     "pages[static_cast<size_t>((at - begin) / page_size)]",
     "pages[static_cast<size_t>((std::max<int64_t>(at - begin - block_tokens_, at % block_tokens_)) / page_size)]"),
    ("saves: a block is under the key of the one after", "runtime/prefix_source.cc",
     "PathTo(save->keys, block);",
     "PathTo(save->keys, std::min<int64_t>(block + 1, std::ssize(*save->keys) - 1));"),
    ("loads: a damaged block is believed", "runtime/prefix_source.cc", "if (load->is_stopped || !job.is_good) {",
     "if (load->is_stopped) {"),
    ("loads: blocks after a damaged one count", "runtime/prefix_source.cc",
     "    load->is_stopped = true;\n    for (const auto& later", "    for (const auto& later"),
    ("loads: blocks count in the order in which they are read", "runtime/prefix_source.cc",
     "load->jobs.front()->is_done) EndRead(load);",
     "std::any_of(load->jobs.begin(), load->jobs.end(), [](auto& job) { return job->is_done.load(); })) {\n"
     "    std::iter_swap(load->jobs.begin(), std::find_if(load->jobs.begin(), load->jobs.end(),\n"
     "                                                    [](auto& job) { return job->is_done.load(); }));\n"
     "    EndRead(load);\n  }"),
    ("loads: a load ends while its later blocks are under way", "runtime/prefix_source.cc",
     "return load->jobs.empty() && (load->is_stopped", "return (load->is_stopped"),
    ("loads: a block that is read does not reach its pages", "runtime/prefix_source.cc",
     "engine_->WritePages(std::move(job.copy));", "job.copy.reset();"),
    ("loads: the cached pages of a block are written again", "runtime/prefix_source.cc",
     "const bool is_in = at >= begin && at < begin + count;", "const bool is_in = at < begin + count;"),
    # States that are saved and loaded beside them.
    ("kept states: snapshots that are saved are not held", "sched/kv_saver.cc", "  save.states = offer.states;\n", ""),
    ("kept states: a held snapshot counts as room", "sched/state_ledger.cc", "pool_->num_available() + pool_->num_pinned() - Owed();",
     "pool_->num_available() + pool_->num_pinned() + pool_->num_held() - Owed();"),
    ("kept states: a held snapshot may be evicted", "kv/state_pool.cc",
     "  if (IsListed(slot)) Unlist(slot);\n  num_held_ +=", "  num_held_ +="),
    ("kept states: a request waits for slots that wait to be saved", "sched/page_ledger.cc",
     "if (!states_.CouldAdmit() || !saver_.DropOne()) return false;", "return false;"),
    ("kept states: one within a block is saved at its beginning", "sched/kv_saver.cc", "if (len % block == 0)", "if (len >= block)"),
    ("kept states: one is under the key of the block before", "runtime/prefix_source.cc",
     "{state.len / block_tokens_ - 1, state.slot}", "{std::max<int64_t>(state.len / block_tokens_ - 2, 0), state.slot}"),
    ("kept states: one is found after the last token", "runtime/prefix_source.cc",
     "(keeps_states() ? num_tokens - 1 : num_tokens)", "num_tokens"),
    ("kept states: that of another block is loaded", "runtime/prefix_source.cc",
     "is_state ? load->end_block - 1 :", "is_state ? std::max<int64_t>(load->end_block - 2, 0) :"),
    ("kept states: a state that is read does not reach its slot", "runtime/prefix_source.cc",
     "engine_->WriteState(std::move(job.copy));", "job.copy.reset();"),
    ("kept states: blocks are loaded without their state", "runtime/prefix_source.cc",
     "  load.waiting_state = state;\n", ""),
    ("kept states: tokens without their state count as loaded", "sched/scheduler.cc",
     "if (has_states && loaded < state->load_len) {", "if (false) {"),
    ("kept states: the slot of an abandoned load is lost", "sched/scheduler.cc",
     "      pages.states().EndLoad(state, false);\n      ForgetIfDone", "      ForgetIfDone"),
    ("kept states: the slot of a failed load is lost", "sched/scheduler.cc",
     "    loaded = 0;\n    pages.states().EndLoad(state, false);\n", "    loaded = 0;\n"),
    ("kept states: a request does not go on from what it loaded", "sched/state_ledger.cc",
     "  if (Leave(*state, entry)) {\n    GoOnFrom(state, entry);\n", "  if (Leave(*state, entry)) {\n"),
    ("kept states: a loaded state is given up if another left it first", "sched/state_ledger.cc",
     "  } else {  // another request left it first\n    state->states.push_back(entry);\n", "  } else {\n    pool_->Give(slot);\n"),
    ("kept states: the end of an answer's last block takes a promised slot", "sched/state_ledger.cc",
     "(!kept->is_spare && NumSpare() <= 0)", "false"),
    ("kept states: the end of an answer's block before the last is lost", "sched/state_ledger.cc",
     "    if (is_before) pool_->Give(entry.slot);\n", ""),
    ("kept states: the slot of a load is promised twice", "sched/state_ledger.cc",
     "  return loading + std::count_if(", "  return 0 * loading + std::count_if("),
    # Marks: what divides prefixes of the same token ids.
    ("marks: the tree compares a node by its tokens alone", "kv/radix_cache.cc", "CommonLength(node->key(), key)",
     "CommonLength(PrefixKey(node->tokens), PrefixKey(key.tokens()))"),
    ("marks: siblings are told apart by their tokens alone", "kv/radix_cache.cc", "if (order != 0) return order < 0;",
     "return order < 0;"),
    ("marks: the tree keeps none of what is inserted", "kv/radix_cache.cc",
     "  node->marks.insert(node->marks.end(), key.marks().begin(), key.marks().end());\n", ""),
    ("marks: the upper half of a split has none", "kv/radix_cache.cc",
     "  upper->marks.assign(upper_marks.begin(), upper_marks.end());\n", ""),
    ("marks: the lower half of a split has none", "kv/radix_cache.cc",
     "lower->marks.erase(lower->marks.begin(), lower->marks.begin() + std::ssize(upper_marks));", "lower->marks.clear();"),
    ("marks: the lower half of a split keeps those of the upper one", "kv/radix_cache.cc",
     "  lower->marks.erase(lower->marks.begin(), lower->marks.begin() + std::ssize(upper_marks));\n", ""),
    ("marks: the lower half of a split is listed without them", "kv/radix_cache.cc",
     "upper->children.emplace(FirstPage(lower->key()), lower);", "upper->children.emplace(FirstPage(lower->tokens), lower);"),
    ("marks: a new node is listed without them", "kv/radix_cache.cc", "node->children.emplace(FirstPage(rest), leaf);",
     "node->children.emplace(FirstPage(rest.tokens()), leaf);"),
    ("marks: a node that loses its end keeps those in it", "kv/radix_cache.cc",
     "  node->marks.resize(node->key().first(num_pages * page_size_).marks().size());\n", ""),
    ("marks: a prompt is matched by its tokens alone", "sched/prefill_manager.cc", "const PrefixKey known = state->key();",
     "const PrefixKey known = state->tokens;"),
    ("marks: pages enter the tree without them", "sched/page_ledger.cc", "state->key().first(num_tokens)",
     "PrefixKey(state->tokens).first(num_tokens)"),
    ("marks: a prefix that another computes is waited for by its tokens alone", "sched/prefill_manager.cc",
     "ChainHashes(state->key(), page_size)", "ChainHashes(state->tokens, page_size)"),
    ("marks: the hash of a page leaves those in it out", "sched/computing_index.cc",
     "    hash = AddWord(hash, kMarkFollows);\n    for (const uint64_t word : mark.hash) hash = AddWord(hash, word);\n", ""),
    ("marks: the hash of a page has half of a mark", "sched/computing_index.cc",
     "for (const uint64_t word : mark.hash) hash", "for (const uint64_t word : {mark.hash[0]}) hash"),
    ("marks: a request that was preempted comes back without them", "sched/preemptor.cc",
     "  state->in_token_pool = false;\n", "  state->in_token_pool = false;\n  state->request.marks.clear();\n"),
    ("marks: a turn forgets those of the turns before", "sched/scheduler.cc",
     "  const SessionId session = state->request.session;\n",
     "  const SessionId session = state->request.session;\n  if (session != 0 && state->request.marks.size() > 1) {\n    state->request.marks = {state->request.marks.back()};\n  }\n"),
    ("marks: an answer's pages lose those of the prompt", "sched/request_state.h", "return {tokens, request.marks};",
     "return {tokens, answer_len() > 0 ? std::span<const KeyMark>() : request.marks};"),
    ("marks: a snapshot is left for the tokens alone", "sched/state_ledger.cc", "state.key().first(static_cast<size_t>(entry.len))",
     "PrefixKey(state.tokens).first(static_cast<size_t>(entry.len))"),
    ("marks: a source is asked for the tokens alone", "sched/kv_loader.cc", "PrefixKey key = state.key();",
     "PrefixKey key = state.tokens;"),
    ("marks: a load is of the tokens alone", "sched/kv_loader.cc", "source_->Load(state->request.id, state->key(),",
     "source_->Load(state->request.id, state->tokens,"),
    ("marks: a save is of the tokens alone", "sched/kv_saver.cc", ".key = state.key().first(num_tokens)",
     ".key = PrefixKey(state.tokens).first(num_tokens)"),
    ("marks: the keys of blocks are of the tokens alone", "runtime/prefix_source.cc", "store_->Keys(key.first(",
     "store_->Keys(PrefixKey(key.tokens()).first("),
    ("marks: a block on its way loses its own", "runtime/prefix_source.h", "const PrefixKey key(part.tokens, part.marks, part.begin);",
     "const PrefixKey key(part.tokens, {}, part.begin);"),
    ("marks: a block that is saved has those of another place", "runtime/prefix_source.cc",
     "PrefixPart(prefix.key.subspan(static_cast<size_t>(first)));",
     "PrefixPart(PrefixKey(prefix.key.tokens().subspan(static_cast<size_t>(first)), {}, first));"),
    ("marks: those of a prompt do not reach its request", "runtime/serve_loop.cc",
     "  request.marks = std::move(prompt.marks);\n", ""),
    # Extras: what rows bring beside token ids and want beside tokens.
    ("extras: a run of embeddings is not cut to its chunk", "sched/plan_builder.cc",
     "run.first + static_cast<int32_t>(from - run.token), source});", "run.first, source});"),
    ("extras: embeddings stand at their place, not at their token of the plan", "sched/plan_builder.cc",
     "{token + (from - begin), static_cast<int32_t>(to - from),", "{from, static_cast<int32_t>(to - from),"),
    ("extras: tokens of an answer have their places as positions", "sched/plan_builder.cc",
     "static_cast<int32_t>(place) + given.shift;", "static_cast<int32_t>(place);"),
    ("extras: a request that was preempted comes back without them", "sched/preemptor.cc",
     "  state->in_token_pool = false;\n", "  state->in_token_pool = false;\n  state->request.extras = nullptr;\n"),
    ("extras: drafts have no adapter", "sched/plan_builder.cc",
     "extras.adapters.push_back({token, static_cast<int32_t>(count), row.adapter});",
     "if (begin < state.prompt_len()) extras.adapters.push_back({token, static_cast<int32_t>(count), row.adapter});"),
    ("extras: hidden states begin with the chunk", "sched/plan_builder.cc", "std::max(begin, row.hidden->from);", "begin;"),
    ("extras: a pooled prompt goes on from cached pages", "sched/request_state.h",
     "if (is_whole || (pools() && !NeedsLastTokenOnly(*request.extras->pooling))) return 0;", ""),
    ("extras: each chunk of a pooled prompt begins anew", "sched/plan_builder.cc", "span.begins = begin == 0;", "span.begins = true;"),
    ("extras: a pooled prompt ends one token early", "sched/prefill_manager.cc",
     "if (state->request.max_tokens == 0 && !state->pools())", "if (state->request.max_tokens == 0)"),
    ("extras: a pooled prompt ends with its first chunk", "sched/scheduler.cc", "state->pools() ? !row.vector.empty() : ", ""),
    ("extras: those of a prompt do not reach its request", "runtime/serve_loop.cc",
     "  request.extras = std::move(prompt.extras);\n", ""),
    ("extras: a vector is not told", "runtime/answer.cc", "    done.vector = std::move(vector_);\n", ""),
    # Drafts that the engine makes.
    ("made drafts: a row that was left out once drafts again", "sched/scheduler_steps.cc", "row.state->is_fed &= feeds;",
     "row.state->is_fed = feeds;"),
    ("made drafts: rows that the drafter has not read have some", "sched/decode_manager.cc",
     "if (context_->engine_drafts() && !state.is_fed) return false;", ""),
    ("made drafts: those of constrained rows are verified without masks", "sched/plan_builder.cc",
     "is_made ? state->request.constraint != nullptr", "is_made ? false"),
    ("made drafts: masks come after drafts that the constraint refuses", "sched/scheduler_masks.cc",
     "    if (is_made) sched::CutDrafts(*state, &drafts);\n", ""),
    ("made drafts: places behind a refused draft have no mask", "sched/scheduler_masks.cc",
     "    sched::AppendFullMasks(num_places - num_used, context.limits.vocab_size, &masks);\n", ""),
    ("made drafts: what the guide accepts is not taken back", "sched/scheduler_masks.cc",
     "  constraint.RollBack(static_cast<int64_t>(accepted));\n  return is_filled;", "  return is_filled;"),
    ("made drafts: a row has the drafts of the one before it", "sched/scheduler_masks.cc",
     "std::move(*next_made++)", "*next_made"),
    ("made drafts: the drafter reads no prompts", "sched/scheduler_steps.cc",
     "is_last && row.state->request.max_tokens > 0);\n    FeedDrafter(row, feeds, &builder);",
     "is_last && row.state->request.max_tokens > 0);"),
    ("made drafts: rows after one that has them are not listed", "sched/plan_builder.cc",
     "  if (!plan.makes_drafts.empty()) plan.makes_drafts.push_back(0);\n", ""),
    ("made drafts: those of rows with other extras", "sched/prefill_manager.cc",
     "(extras == nullptr || (extras->parts() & ~context_->limits.draft_extras) == 0)", "true"),
    # Adapters of which few are loaded at once.
    ("adapters: a request is tried before its adapter is loaded", "sched/adapter_ledger.cc",
     "  if (entry->status != Status::kOpen) queue->Hold(state, kHeldByAdapter);\n", ""),
    ("adapters: one more than there is room for", "sched/adapter_ledger.cc", "num_held_ >= source_->max_loaded()",
     "num_held_ > source_->max_loaded()"),
    ("adapters: one is dropped while its requests run", "sched/adapter_ledger.cc",
     "if (!is_idle || entry.num_running > 0) continue;", "if (!is_idle) continue;"),
    ("adapters: requests behind a gate keep theirs loaded", "sched/adapter_ledger.cc",
     "FirstReady(entry) == nullptr;", "entry.waiting.empty();"),
    ("adapters: a preempted request counts twice", "sched/preemptor.cc", "  queues_->adapters().Leave(state);\n", ""),
    ("adapters: one that was dropped is not wanted again", "sched/adapter_ledger.cc",
     "  if (!entry.waiting.empty()) wanted_.insert(adapter);\n  --num_held_;\n  source_->Drop(adapter);",
     "  --num_held_;\n  source_->Drop(adapter);"),
    # Pictures: inputs that a step encodes, and the cache of their embeddings.
    ("pictures: a step encodes more than its budget", "sched/encoder_ledger.cc", "(may_begin && (work <= budget || goes_alone));", "may_begin;"),
    ("pictures: each of a chunk has the whole budget", "sched/encoder_ledger.cc", "    budget -= work;\n", ""),
    ("pictures: the cache grows past its size", "sched/encoder_ledger.cc", "is_referred || input.num_embeddings <= capacity_ - referred || referred == 0;", "true;"),
    ("pictures: one that is larger than the cache waits for ever", "sched/encoder_ledger.cc",
     "input.num_embeddings <= capacity_ - referred || referred == 0;", "input.num_embeddings <= capacity_ - referred;"),
    ("pictures: one that is larger than the budget waits for ever", "sched/encoder_ledger.cc",
     "work <= budget || goes_alone", "work <= budget"),
    ("pictures: known ones of a chunk take no room beside new ones", "sched/encoder_ledger.cc",
     "if (is_referred && work == 0) continue;", "if (entry != nullptr && work == 0) continue;"),
    ("pictures: one that is larger than the cache stays there", "sched/encoder_ledger.cc",
     "    MakeRoom(0);  // it may be larger than the cache\n", ""),
    ("pictures: a chunk runs into one that waits", "sched/prefill_manager.cc", "  count = encoders_->Reach(*state, count);\n", ""),
    ("pictures: a chunk cuts one that is computed whole", "sched/prefill_manager.cc",
     "  count = state->BeforeInput(state->launched_len + count) - state->launched_len;\n", ""),
    ("pictures: a cached prefix ends in one", "sched/prefill_manager.cc", "if (whole == matched) return match;", "return match;"),
    ("pictures: a load ends in one", "sched/scheduler.cc", "  loaded = pages.WholeLength(*state, state->launched_len + loaded) - state->launched_len;\n", ""),
    ("pictures: embeddings are given up while a step in flight reads them", "sched/encoder_ledger.cc",
     "its.end() > state->computed_len) continue;", "its.end() > state->launched_len) continue;"),
    ("pictures: a request that is preempted keeps embeddings", "sched/preemptor.cc", "  encoders_->Release(state);\n", ""),
    ("pictures: a request that ended wants its own", "sched/scheduler.cc", "  encoders.Remove(state);\n", ""),
    ("pictures: embeddings of a failed step are found", "sched/scheduler.cc",
     "  if (!result.status.ok()) encoders.Invalidate(step.plan->extras.encoded);\n", ""),
    ("pictures: readers of a failed step's embeddings go on", "sched/scheduler.cc",
     "  if (!result.status.ok()) {\n    EndReadersOf", "  if (false) {\n    EndReadersOf"),
    ("pictures: one of a withdrawn row counts as encoded", "sched/encoder_ledger.cc",
     "if (entry.drafted > 0) {  // the row", "if (false) {  // the row"),
    ("pictures: the engine is not told what to drop", "sched/encoder_ledger.cc",
     "extras->dropped = std::exchange(dropped_, {});", "dropped_.clear();"),
    ("pictures: all runs read the first one", "sched/plan_builder.cc",
     "state.inputs[static_cast<size_t>(run.source)].source;", "state.inputs[0].source;"),
    ("pictures: one that no step can compute whole is admitted", "sched/scheduler_inputs.cc", "if (longest > 1 && longest > most) {",
     "if (false) {"),
    ("pictures: who waits for one that awaits its mask counts as stuck", "sched/scheduler.cc", "!awaits_mask && !awaits_picture &&",
     "!awaits_mask &&"),
    ("pictures: window pages of one that is computed whole are not promised", "sched/window_ledger.cc",
     "math_.PagesOf(limits_.max_in_flight - 1 + state.longest_whole()));", "math_.PagesOf(limits_.max_in_flight));"),
    # Pictures that are encoded in pieces.
    ("pieces: one is read before the last", "sched/encoder_ledger.cc", "entry != nullptr ? entry->left() : ", "entry != nullptr ? 0 : "),
    ("pieces: one whose place is taken is not given up", "sched/encoder_ledger.cc",
     "if (in_pieces_ != 0 && entries_.at(in_pieces_).left() > 0) GiveUpPieces();", ""),
    ("pieces: each begins anew", "sched/encoder_ledger.cc", "const int64_t begin = entry.done;", "const int64_t begin = 0;"),
    ("pieces: each has the whole budget", "sched/encoder_ledger.cc", "std::min(budget, entries_.at(in_pieces_).left())",
     "std::min(budget_, entries_.at(in_pieces_).left())"),
    ("pieces: those of a request that is preempted stay", "sched/encoder_ledger.cc",
     "if (entry.done == entry.size && entry.is_valid) {", "if (entry.is_valid) {"),
    ("pieces: a step without a row is not launched", "sched/scheduler.cc", "if (draft.empty() && !encoders.has_draft()) return nullptr;",
     "if (draft.empty()) return nullptr;"),
    ("pieces: the place of the last one is not free", "sched/encoder_ledger.cc",
     "    entry.content = nullptr;\n    if (source == in_pieces_) in_pieces_ = 0;\n", "    entry.content = nullptr;\n"),
    # Prompts of a model whose tokens attend to later ones.
    ("whole texts: they are computed in chunks", "sched/scheduler.cc", "  state->is_whole = context.limits.attends_both_ways;\n", ""),
    ("whole texts: one begins in what is left of a step", "sched/request_state.h",
     "    if (is_whole) return prompt_len() - launched_len;\n", ""),
    ("whole texts: the cache keeps their pages", "sched/page_ledger.cc", " || state->is_whole) return inserted;", ") return inserted;"),
    ("whole texts: one that no step has room for is admitted", "sched/request_state.h",
     "int64_t longest = is_whole ? prompt_len() : 1;", "int64_t longest = 1;"),
    ("pieces: the engine is not told of one that is given up", "sched/encoder_ledger.cc",
     "if (at->second.done > 0) dropped_.push_back(source);", "if (at->second.done == at->second.size) dropped_.push_back(source);"),
]


# The runtime's loop without its thread, and what that needs beside the rooms sched and kv.
OTHERS = ["runtime/answer", "runtime/cache_event_writer", "runtime/event_queue", "runtime/prefix_source",
          "runtime/serve_loop", "runtime/stop_filter", "runtime/thought_budget", "runtime/thought_tracker", "runtime/token_limits",
          "runtime/trace_writer", "base/check", "base/histogram", "base/json", "base/kernel_profile", "base/sha256", "base/status",
          "base/utf8", "base/prefix_key", "plan/row_extras", "text/answer_parts", "text/channel_scanner", "text/encode_after",
          "text/stream_decoder", "text/thought_reader"]


def compile_one(command, source, target):
    done = subprocess.run([*command, "-c", str(source), "-o", str(target)], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr[:2000]


class Builder:
    def __init__(self, root, scratch):
        self.root, self.scratch = root, scratch
        self.flags = ["c++", "-std=c++20", "-O1", "-w", f"-I{root}/include", f"-I{root}/tests"]
        libs = subprocess.run(["pkg-config", "--cflags", "--libs", "fmt"], capture_output=True, text=True, check=True)
        self.libs = shlex.split(libs.stdout)
        self.rooms = {p.relative_to(root / "src").as_posix(): p for room in ("kv", "sched")
                      for p in sorted((root / "src" / room).glob("*.cc"))}
        self.rooms.update({f"{name}.cc": root / f"src/{name}.cc" for name in OTHERS if name.startswith("runtime/")})
        others = [*(root / f"src/{name}.cc" for name in OTHERS if not name.startswith("runtime/")),
                  *(path for path in sorted((root / "tests/sim").glob("*.cc")) if path.name != "sim_test.cc")]
        scratch.mkdir(parents=True, exist_ok=True)
        self.objects = {}
        jobs = [(name, path) for name, path in self.rooms.items()] + [(path.name, path) for path in others]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, error in zip((name for name, _ in jobs), pool.map(lambda job: compile_one(
                    [*self.flags, f"-I{root}/src"], job[1], self.object_of(job[0])), jobs)):
                if error:
                    raise SystemExit(f"{name} does not compile: {error}")
                self.objects[name] = self.object_of(name)

    def object_of(self, name):
        return self.scratch / (name.replace("/", "_") + ".o")

    def build(self, number, file, old, new):
        """The simulation with one change, or why there is none."""
        text = (self.root / "src" / file).read_text()
        if text.count(old) == 0:
            return None, f"{file} has no such text any more"
        folder = self.scratch / f"mutant{number}"
        changed = folder / file
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(text.replace(old, new, 1))
        objects = dict(self.objects)
        # A header is seen by all of its room; the copy stands before the original in the search path.
        affected = [file] if file.endswith(".cc") else [name for name in self.rooms if not name.startswith("kv/")]
        for name in affected:
            source = changed if name == file else self.rooms[name]
            target = folder / (name.replace("/", "_") + ".o")
            # One seed or few of a mutant are run: compiling is what takes the time, and the last -O counts.
            error = compile_one([*self.flags, "-O0", f"-I{folder}", f"-I{self.root}/src"], source, target)
            if error:
                return None, f"does not compile: {error}"
            objects[name] = target
        binary = folder / "sim"
        done = subprocess.run(["c++", "-o", str(binary), *map(str, objects.values()), *self.libs, "-lpthread"],
                              capture_output=True, text=True)
        return (binary, "") if done.returncode == 0 else (None, done.stderr[:2000])


def hunt(binary):
    try:
        done = subprocess.run([str(binary), "--hunt", str(SEEDS)], capture_output=True, text=True, timeout=1200,
                              errors="replace", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 61)))
    except subprocess.TimeoutExpired:
        return "found: it never ends"
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "found: it never ends"
    lines = [line for line in done.stdout.splitlines() if re.match(r"found|crash", line)]
    return lines[0] if lines else ""


def with_headers(root, files):
    """`files` and the project's headers that they include, at any depth."""
    found, queue = set(), list(files)
    while queue:
        path = queue.pop()
        if path in found:
            continue
        found.add(path)
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            queue += [place for place in (root / "include" / name, root / "src" / name, root / "tests" / name, path.parent / name)
                      if place.exists()]
    return found


def hash_of(root):
    """The hash of everything that decides whether a mutant is found: names and contents."""
    files = [path for folder in ("src/sched", "src/kv", "tests/sim") for path in (root / folder).iterdir()
             if path.suffix in (".h", ".cc") or path.name == "mutants.py"]
    files += [root / "src" / mutant[1] for mutant in MUTANTS]
    files += [root / f"src/{name}.cc" for name in OTHERS]
    total = hashlib.sha256()
    for path in sorted(with_headers(root, files)):
        contents = path.read_bytes()
        total.update(f"{path.relative_to(root).as_posix()} {len(contents)}\n".encode() + contents)
    return total.hexdigest()


def main():
    writes_hash = sys.argv[1] == "--write-hash"
    root, scratch, *wanted = sys.argv[2 if writes_hash else 1:]
    root, scratch = Path(root).resolve(), Path(scratch).resolve()
    digest = hash_of(root)
    is_known = (root / HASH_FILE).exists() and (root / HASH_FILE).read_text().strip() == digest
    if is_known and not wanted and not writes_hash and "MINISGL_LONG" not in os.environ:
        print(f"1..1\nok 1 - nothing changed since all {len(MUTANTS)} were found # SKIP run.sh --long looks again")
        return
    mutants = [m for m in MUTANTS if not wanted or any(word in m[0] for word in wanted)]
    builder = Builder(root, scratch)
    print(f"1..{len(mutants)}", flush=True)

    def examine(item):
        number, (_, file, old, new) = item
        binary, why = builder.build(number, file, old, new)
        return hunt(binary) if binary else "", why

    found = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number, (mutant, (outcome, why)) in enumerate(zip(mutants, pool.map(examine, enumerate(mutants, 1))), 1):
            found += bool(outcome)
            print(f"# {outcome or why or f'not found in {SEEDS} seeds'}"[:200])
            print(f"{'ok' if outcome else 'not ok'} {number} - {mutant[0].replace('#', '-')}", flush=True)
    print(f"# {found} of {len(mutants)} mutants found within {SEEDS} seeds", flush=True)
    if found == len(MUTANTS) and writes_hash:
        (root / HASH_FILE).write_text(digest + "\n")
    elif found == len(MUTANTS) and not is_known:
        print("# these sources differ from those of tests/sim/mutants.hash: renew it with --write-hash", flush=True)


main()
