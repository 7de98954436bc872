// Conversations that a chat keeps by itself, so that none is lost with its terminal.
//
// One file for each, in a folder of the user's state that only the user may enter (0700); a file is
// replaced as a whole after each turn (0600), and the last kKeptMax files stay. Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/runtime/session.h"

namespace minisgl::chat {

inline constexpr size_t kKeptMax = 100;

struct KeptConversation {
  std::string path;
  int64_t changed_ns = 0;  // of the last turn; nanoseconds since 1970
};

// "2026-11-26 08:01    3 turns  the first question ... the last one", of the time zone, in one row
// of at most `columns`.
std::string DescribeKept(const KeptConversation& conversation, size_t columns = 100);

// "just now", "5 minutes ago", "2 hours ago" or "12 days ago"; times in nanoseconds since 1970.
std::string AgeText(int64_t time_ns, int64_t now_ns);

class KeptConversations {
 public:
  // The folder in the user's state. "" if there is none, or MINISGL_NO_HISTORY is set.
  static std::string DefaultFolder();

  // With "", nothing is kept.
  explicit KeptConversations(std::string folder) : folder_(std::move(folder)) {}

  // The newest first.
  std::vector<KeptConversation> List() const;

  // The file of the conversation that is kept now; "" if there is none yet.
  std::string current_path() const;
  // The conversation that is kept from now on has its file at `path`, with these messages.
  void GoOnWith(const std::string& path, const std::vector<SessionMessage>& messages);
  // From now on another conversation is kept, in a file of its own. It is not written before it
  // differs from `messages`.
  void BeginAnother(const std::vector<SessionMessage>& messages);
  // From now on the conversation of `branch` is kept: in the file that it had before, or as
  // BeginAnother.
  void SwitchTo(const std::string& branch, const std::vector<SessionMessage>& messages);
  // Writes the conversation, if it has changed and anything was said. The file is made by the first
  // call that writes. After an error nothing is kept any more.
  Status Keep(const std::vector<SessionMessage>& messages);

 private:
  Status MakeFolder();
  void DropOldest() const;

  struct Branch {
    std::string path;  // "": not made yet
    std::string text;  // of the file
  };
  Branch& current() { return branches_[current_]; }

  std::string folder_;
  std::map<std::string, Branch> branches_;
  std::string current_;
};

}  // namespace minisgl::chat
