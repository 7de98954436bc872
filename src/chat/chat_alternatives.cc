#include "chat/chat_alternatives.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {

void ChatAlternatives::Set(Answers answers) {
  answers_ = std::move(answers);
  const auto first = std::find_if(answers_.begin() + 1, answers_.end(),
                                  [](const auto& answer) { return answer.has_value(); });
  MINISGL_CHECK(first != answers_.end(), "alternatives without a new answer");
  picked_ = static_cast<size_t>(first - answers_.begin());
}

const SessionMessage* ChatAlternatives::Pick(size_t index) {
  if (index >= answers_.size() || !answers_[index]) return nullptr;
  picked_ = index;
  return &*answers_[index];
}

void ChatAlternatives::ForEach(const std::function<void(SessionMessage*)>& body) {
  for (auto& answer : answers_) {
    if (answer) body(&*answer);
  }
}

std::string ChatAlternatives::List() const {
  std::string text;
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (!answers_[i]) continue;
    text += fmt::format("{}  {}{:>2}  {}", text.empty() ? "" : "\n", i == picked_ ? '*' : ' ', i,
                        Visible(answers_[i]->content, 80));
  }
  return text;
}

}  // namespace minisgl::chat
