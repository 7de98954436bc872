// Open conversations: for each the turns that have not ended, in order, and the cached prefix that
// it keeps locked between turns. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "minisgl/engine/engine.h"
#include "minisgl/kv/prefix_cache.h"
#include "sched/request_state.h"

namespace minisgl::sched {

class SessionTable {
 public:
  SessionTable(const EngineLimits& limits, PrefixCache* cache) : limits_(limits), cache_(cache) {}

  void Open(SessionId id);  // REQUIRES a new id
  bool IsOpen(SessionId id) const { return sessions_.contains(id); }
  // Unlocks its prefix and forgets it. REQUIRES that it has no turns left.
  void Close(SessionId id);

  // Returns true if it is the first turn. REQUIRES that the session is open.
  bool AddTurn(RequestState* turn);
  // Returns the turn that becomes the first by this, or null. Does nothing if `turn` was never
  // added.
  RequestState* EndTurn(RequestState* turn);
  std::vector<RequestState*> Turns(SessionId id) const;

  // Locks `node`, the end of a prefix of `num_pages` pages, and unlocks what the session kept
  // before.
  void Keep(SessionId id, PrefixNode* node, int32_t num_pages);
  // Unlocks what the session keeps, if anything.
  void DropPrefix(SessionId id);
  // Unlocks the prefix that is kept longest, except that of session `spared`. Returns false if
  // there is none.
  bool DropOldestPrefix(SessionId spared = 0);
  // Pages that sessions other than `id` keep; shared ones count for each.
  int64_t PagesBeside(SessionId id) const;

  int64_t size() const { return static_cast<int64_t>(sessions_.size()); }
  int64_t num_pages() const { return num_pages_; }
  // Table rows and pages kept free for the next turns of open sessions; other requests are not
  // admitted into them.
  int32_t num_kept_rows() const;
  int64_t num_kept_pages() const;
  // Returns every lock held, one entry each.
  std::vector<PrefixNode*> Locks() const;

 private:
  struct Session {
    std::deque<RequestState*> turns;
    PrefixNode* node = nullptr;
    int32_t num_pages = 0;
    uint64_t kept_at = 0;
  };
  void Unlock(Session* session);
  // Sessions without an admitted turn.
  int32_t num_without_place() const;

  EngineLimits limits_;
  PrefixCache* cache_;
  std::map<SessionId, Session> sessions_;
  uint64_t num_kept_ = 0;  // number of calls of Keep
  int64_t num_pages_ = 0;  // under all locks; shared ones count for each
};

}  // namespace minisgl::sched
