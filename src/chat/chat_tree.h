// Branches of a chat: conversations with a common beginning, and a drawing of them as a tree.
//
// A branch is a complete conversation; common parts are found by comparing messages. The prefix
// cache does the same with tokens, so that switching between branches recomputes nothing. No state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/runtime/session.h"

namespace minisgl::chat {

// A conversation: the messages given to the model, and the older turns that no longer fit.
struct ChatTurns {
  std::vector<SessionMessage> messages, dropped;
};

// Returns all messages in order: those before the first turn, the dropped turns, the rest.
std::vector<SessionMessage> WholeConversation(const ChatTurns& turns);

// The content of a message for people: its pictures by name, then its text.
std::string ShownContent(const SessionMessage& message);

// Number of messages of the user.
int64_t CountTurns(const std::vector<SessionMessage>& messages);

// Returns the messages before the first turn and the first `num_turns` turns.
std::vector<SessionMessage> FirstTurns(const std::vector<SessionMessage>& messages,
                                       int64_t num_turns);

// True for letters, digits, "-", "_", "." and non-ASCII characters, at most 40 bytes; not for a
// number alone, which means a turn.
bool IsBranchName(std::string_view name);

struct NamedConversation {
  std::string name;
  std::vector<SessionMessage> messages;
};

// Draws one line for each turn; turns shared by several branches appear once, and turns after a
// fork are indented. `current` is marked. REQUIRES at least one branch.
std::string DrawTree(const std::vector<NamedConversation>& branches, size_t current);

}  // namespace minisgl::chat
