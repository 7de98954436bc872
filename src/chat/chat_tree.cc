#include "chat/chat_tree.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

constexpr size_t kNameBytesMax = 40;
// Length of a message in a line of the tree: two of them, a number and a name fit in 100 columns.
constexpr size_t kShownBytesMax = 44;
// Upper bound on the indentation, so that lines stay readable; deeper forks are drawn at this
// depth.
constexpr size_t kIndentMax = 12;

// A turn, shared by one or more branches. Node 0 is the root, before the first turn.
struct Node {
  std::string question, answer;
  int64_t number = 0;             // of the turn, from 1
  std::vector<size_t> next;       // following nodes
  std::vector<std::string> ends;  // branches that end at this node
};

std::string FirstLine(const std::string& text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const size_t end = std::min(text.find('\n', begin), text.size());
  return Visible(std::string_view(text).substr(begin, end - begin), kShownBytesMax);
}

// Returns the turns of a conversation as unlinked nodes; messages before the first are not turns.
std::vector<Node> TurnsOf(const std::vector<SessionMessage>& messages) {
  std::vector<Node> turns;
  for (const SessionMessage& message : messages) {
    if (message.role == "user") {
      turns.push_back({ShownContent(message), "", static_cast<int64_t>(turns.size()) + 1, {}, {}});
    } else if (message.role == "assistant" && !turns.empty()) {
      turns.back().answer += message.content;
    }
  }
  return turns;
}

std::vector<Node> Merge(const std::vector<NamedConversation>& branches, size_t current) {
  std::vector<Node> nodes(1);
  for (size_t i = 0; i < branches.size(); ++i) {
    size_t at = 0;
    for (Node& turn : TurnsOf(branches[i].messages)) {
      const std::vector<size_t>& next = nodes[at].next;
      const auto same = std::find_if(next.begin(), next.end(), [&](size_t node) {
        return nodes[node].question == turn.question && nodes[node].answer == turn.answer;
      });
      if (same != next.end()) {
        at = *same;
        continue;
      }
      nodes[at].next.push_back(nodes.size());
      at = nodes.size();
      nodes.push_back(std::move(turn));
    }
    nodes[at].ends.push_back(branches[i].name + (i == current ? " (here)" : ""));
  }
  return nodes;
}

std::string DrawNode(const Node& node, size_t depth, bool begins_fork) {
  std::string line(2 + 3 * std::min(depth, kIndentMax), ' ');
  if (begins_fork) line.replace(line.size() - 3, 2, "+-");
  if (node.number == 0) {
    line += "(nothing said)";
  } else {
    line += fmt::format("{}  {}", node.number, FirstLine(node.question));
    if (!node.answer.empty()) line += " -> " + FirstLine(node.answer);
  }
  for (size_t i = 0; i < node.ends.size(); ++i) line += (i == 0 ? "   <- " : ", ") + node.ends[i];
  return line;
}

}  // namespace

std::vector<SessionMessage> WholeConversation(const ChatTurns& turns) {
  std::vector<SessionMessage> all = turns.messages;
  const auto first = std::find_if(all.begin(), all.end(),
                                  [](const SessionMessage& m) { return m.role == "user"; });
  all.insert(first, turns.dropped.begin(), turns.dropped.end());
  return all;
}

std::string ShownContent(const SessionMessage& message) {
  std::string shown;
  for (const ConversationImage& image : message.images) {
    shown += fmt::format("[{}] ", image.name.substr(image.name.rfind('/') + 1));
  }
  return shown + message.content;
}

int64_t CountTurns(const std::vector<SessionMessage>& messages) {
  return std::count_if(messages.begin(), messages.end(),
                       [](const SessionMessage& m) { return m.role == "user"; });
}

std::vector<SessionMessage> FirstTurns(const std::vector<SessionMessage>& messages,
                                       int64_t num_turns) {
  auto end = messages.begin();
  for (int64_t seen = 0; end != messages.end(); ++end) {
    if (end->role == "user" && ++seen > num_turns) break;
  }
  return {messages.begin(), end};
}

bool IsBranchName(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || !IsValidUtf8(name)) return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (std::all_of(name.begin(), name.end(), is_digit)) return false;
  if (name.front() == '-') return false;  // would look like an option
  return std::all_of(name.begin(), name.end(), [&](char c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_letter || is_digit(c) || c == '-' || c == '_' || c == '.' ||
           static_cast<unsigned char>(c) >= 0x80;
  });
}

std::string DrawTree(const std::vector<NamedConversation>& branches, size_t current) {
  const std::vector<Node> nodes = Merge(branches, current);
  struct Step {
    size_t node, depth;
    bool begins_fork;
  };
  // A stack instead of recursion, because a conversation may be long.
  std::vector<Step> steps = {{0, 0, false}};
  std::string text;
  while (!steps.empty()) {
    const Step step = steps.back();
    steps.pop_back();
    const Node& node = nodes[step.node];
    if (node.number > 0 || !node.ends.empty()) {
      if (!text.empty()) text += '\n';
      text += DrawNode(node, step.depth, step.begins_fork);
    }
    // Indent what follows a fork, or the end of another branch.
    const bool forks = node.next.size() + (node.ends.empty() ? 0 : 1) > 1 && node.number > 0;
    for (auto next = node.next.rbegin(); next != node.next.rend(); ++next) {
      steps.push_back({*next, step.depth + (forks ? 1 : 0), forks});
    }
  }
  return text;
}

}  // namespace minisgl::chat
