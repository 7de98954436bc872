#include "sched/session_table.h"

#include <algorithm>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::sched {
namespace {

// Tokens for which pages are kept free for the next turn of a session: a question and the beginning
// of an answer.
constexpr int64_t kTurnTokens = 512;

}  // namespace

void SessionTable::Open(SessionId id) {
  MINISGL_CHECK(id != 0 && sessions_.try_emplace(id).second, "session {} is opened twice", id);
}

void SessionTable::Close(SessionId id) {
  const auto found = sessions_.find(id);
  MINISGL_CHECK(found != sessions_.end() && found->second.turns.empty(),
                "session {} is not open or has turns left", id);
  Unlock(&found->second);
  sessions_.erase(found);
}

bool SessionTable::AddTurn(RequestState* turn) {
  Session& session = sessions_.at(turn->request.session);
  session.turns.push_back(turn);
  return session.turns.size() == 1;
}

RequestState* SessionTable::EndTurn(RequestState* turn) {
  Session& session = sessions_.at(turn->request.session);
  const auto place = std::find(session.turns.begin(), session.turns.end(), turn);
  if (place == session.turns.end()) return nullptr;  // it was never added
  const bool was_first = place == session.turns.begin();
  session.turns.erase(place);
  return was_first && !session.turns.empty() ? session.turns.front() : nullptr;
}

std::vector<RequestState*> SessionTable::Turns(SessionId id) const {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return {};
  return {found->second.turns.begin(), found->second.turns.end()};
}

void SessionTable::Keep(SessionId id, PrefixNode* node, int32_t num_pages) {
  Session& session = sessions_.at(id);
  cache_->Lock(node);
  Unlock(&session);
  session.node = node;
  session.num_pages = num_pages;
  session.kept_at = ++num_kept_;
  num_pages_ += num_pages;
}

void SessionTable::DropPrefix(SessionId id) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) Unlock(&found->second);
}

int64_t SessionTable::PagesBeside(SessionId id) const {
  const auto found = sessions_.find(id);
  return num_pages_ - (found == sessions_.end() ? 0 : found->second.num_pages);
}

bool SessionTable::DropOldestPrefix(SessionId spared) {
  Session* oldest = nullptr;
  for (auto& [id, session] : sessions_) {
    if (session.node == nullptr || id == spared) continue;
    if (oldest == nullptr || session.kept_at < oldest->kept_at) oldest = &session;
  }
  if (oldest == nullptr) return false;
  Unlock(oldest);
  return true;
}

int32_t SessionTable::num_without_place() const {
  int32_t count = 0;
  for (const auto& [id, session] : sessions_) {
    count += session.turns.empty() || session.turns.front()->table_row < 0 ? 1 : 0;
  }
  return count;
}

int32_t SessionTable::num_kept_rows() const {
  if (sessions_.empty()) return 0;
  // At least one, even if rows are few; and never so many that the rows kept for some sessions and
  // the turns of the others take all.
  const int32_t rows = limits_.max_running_requests;
  const int32_t most = std::min(std::max((rows - 1) / 2, 1), rows - 1);
  return std::min(num_without_place(), most);
}

int64_t SessionTable::num_kept_pages() const {
  if (sessions_.empty()) return 0;
  const int64_t pages_per_turn = CeilDiv<int64_t>(kTurnTokens, limits_.page_size);
  return std::min<int64_t>(num_without_place() * pages_per_turn, limits_.num_pages / 4);
}

std::vector<PrefixNode*> SessionTable::Locks() const {
  std::vector<PrefixNode*> locks;
  for (const auto& [id, session] : sessions_) {
    if (session.node != nullptr) locks.push_back(session.node);
  }
  return locks;
}

void SessionTable::Unlock(Session* session) {
  if (session->node == nullptr) return;
  cache_->Unlock(session->node);
  num_pages_ -= session->num_pages;
  session->node = nullptr;
  session->num_pages = 0;
}

}  // namespace minisgl::sched
