#include "chat/chat_branch_list.h"

#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::chat {

ChatBranchList::ChatBranchList(Runtime* runtime) : runtime_(runtime) { Add("main", {}, 0); }

void ChatBranchList::CloseSessions() {
  if (runtime_ == nullptr) return;
  for (const ChatBranch& branch : branches_) runtime_->CloseSession(branch.session);
  runtime_ = nullptr;
}

void ChatBranchList::OpenSessions(Runtime* runtime) {
  CloseSessions();
  runtime_ = runtime;
  for (ChatBranch& branch : branches_) branch.session = runtime_->OpenSession();
}

void ChatBranchList::ForEach(const std::function<void(ChatBranch*)>& body) {
  for (ChatBranch& branch : branches_) body(&branch);
}

std::vector<std::string> ChatBranchList::Names() const {
  std::vector<std::string> names;
  for (const ChatBranch& branch : branches_) names.push_back(branch.name);
  return names;
}

std::optional<size_t> ChatBranchList::Find(std::string_view name) const {
  for (size_t i = 0; i < branches_.size(); ++i) {
    if (branches_[i].name == name) return i;
  }
  return std::nullopt;
}

std::string ChatBranchList::UnusedName() const {
  for (size_t number = branches_.size() + 1;; ++number) {
    std::string name = fmt::format("branch-{}", number);
    if (!Find(name)) return name;
  }
}

size_t ChatBranchList::Add(std::string name, ChatTurns turns, uint64_t regenerations) {
  MINISGL_CHECK(!full(), "more than {} branches", kBranchesMax);
  branches_.push_back({std::move(name), std::move(turns), regenerations, runtime_->OpenSession()});
  return branches_.size() - 1;
}

void ChatBranchList::Remove(size_t index) {
  MINISGL_CHECK(index != current_, "the current branch cannot be removed");
  runtime_->CloseSession(branches_[index].session);
  branches_.erase(branches_.begin() + static_cast<std::ptrdiff_t>(index));
  if (current_ > index) --current_;
}

ChatTurns ChatBranchList::Enter(size_t index, ChatTurns turns) {
  current().turns = std::move(turns);
  current_ = index;
  return std::move(current().turns);
}

std::string ChatBranchList::Draw(const ChatTurns& turns) const {
  std::vector<NamedConversation> conversations;
  for (size_t i = 0; i < branches_.size(); ++i) {
    conversations.push_back(
        {branches_[i].name, WholeConversation(IsCurrent(i) ? turns : branches_[i].turns)});
  }
  return DrawTree(conversations, current_);
}

}  // namespace minisgl::chat
