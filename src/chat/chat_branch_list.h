// The branches of a chat: conversations that the user switches between.
//
// One of them is current: its turns are in the chat's session, and those stored here are out of
// date until another branch is entered. Each branch has a session of the runtime, so that its
// prefix stays cached while another one is used. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_tree.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl::chat {

struct ChatBranch {
  std::string name;
  ChatTurns turns;             // out of date while the branch is current
  uint64_t regenerations = 0;  // number of further answers to the last message
  SessionId session = 0;
};

class ChatBranchList {
 public:
  // Bounded, because each branch holds a copy of its conversation.
  static constexpr size_t kBranchesMax = 64;

  // Starts with the branch "main". `runtime` must outlive this, or CloseSessions.
  explicit ChatBranchList(Runtime* runtime);
  ~ChatBranchList() { CloseSessions(); }
  ChatBranchList(const ChatBranchList&) = delete;
  ChatBranchList& operator=(const ChatBranchList&) = delete;

  // Closes the sessions, after which only names and turns may be used; opens others.
  void CloseSessions();
  void OpenSessions(Runtime* runtime);
  void ForEach(const std::function<void(ChatBranch*)>& body);

  size_t size() const { return branches_.size(); }
  bool full() const { return branches_.size() >= kBranchesMax; }
  std::vector<std::string> Names() const;
  std::optional<size_t> Find(std::string_view name) const;
  // A name for a new branch.
  std::string UnusedName() const;

  ChatBranch& current() { return branches_[current_]; }
  const ChatBranch& current() const { return branches_[current_]; }
  bool IsCurrent(size_t index) const { return index == current_; }

  // Adds a branch and returns its index. REQUIRES !full() and an unused name.
  size_t Add(std::string name, ChatTurns turns, uint64_t regenerations);
  // REQUIRES !IsCurrent(index).
  void Remove(size_t index);
  // Stores `turns`, those of the current branch, and makes `index` the current one. Returns the
  // turns of the branch entered.
  ChatTurns Enter(size_t index, ChatTurns turns);

  // Draws all branches as a tree. `turns`: those of the current branch.
  std::string Draw(const ChatTurns& turns) const;

 private:
  Runtime* runtime_;  // null: no session is open
  std::vector<ChatBranch> branches_;
  size_t current_ = 0;
};

}  // namespace minisgl::chat
