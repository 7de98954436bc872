// Several answers to the last message of a chat, of which the conversation continues one.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/runtime/session.h"

namespace minisgl::chat {

class ChatAlternatives {
 public:
  // nullopt: no answer worth keeping.
  using Answers = std::vector<std::optional<SessionMessage>>;

  // `answers`: the answer before them, then the new ones, of which the first is picked. REQUIRES a
  // new answer that is not nullopt.
  void Set(Answers answers);
  void Clear() { answers_.clear(); }
  bool empty() const { return answers_.empty(); }
  // True if there was an answer before the new ones. REQUIRES !empty().
  bool has_previous() const { return answers_.front().has_value(); }

  // Picks the answer `index`, where 0 is the previous one. Null if there is none. Valid until Set
  // or Clear.
  const SessionMessage* Pick(size_t index);
  void ForEach(const std::function<void(SessionMessage*)>& body);
  // One line for each answer; the picked one is marked.
  std::string List() const;

 private:
  Answers answers_;
  size_t picked_ = 0;
};

}  // namespace minisgl::chat
