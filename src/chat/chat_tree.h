// The branches of a chat: conversations that begin alike, and how they are drawn as one tree.
//
// A branch is its whole conversation; what branches share is found by comparing them. The prefix
// cache does the same with their tokens, so going from one branch to another computes nothing
// again. No state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/runtime/session.h"

namespace minisgl::chat {

// What was said: the messages that the model is given, and the older turns that no longer fit.
struct ChatTurns {
  std::vector<SessionMessage> messages, dropped;
};

// All of it in order: the messages before the first turn, the dropped turns, the others.
std::vector<SessionMessage> WholeConversation(const ChatTurns& turns);

// Messages of the user.
int64_t CountTurns(const std::vector<SessionMessage>& messages);

// The first `num_turns` turns and what stands before them.
std::vector<SessionMessage> FirstTurns(const std::vector<SessionMessage>& messages,
                                       int64_t num_turns);

// Letters, digits, "-", "_", ".", and what lies past ASCII; not a number alone (a turn is one), and
// no more than 40 bytes.
bool IsBranchName(std::string_view name);

struct NamedConversation {
  std::string name;
  std::vector<SessionMessage> messages;
};

// One line for each turn, what branches share once; a fork indents what follows it.
// `current` is the branch that is marked as the one talked in. REQUIRES at least one branch.
std::string DrawTree(const std::vector<NamedConversation>& branches, size_t current);

}  // namespace minisgl::chat
