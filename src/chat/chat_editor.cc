#include "chat/chat_editor.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "minisgl/base/byte_order_mark.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"

extern char** environ;

namespace minisgl::chat {
namespace {

constexpr uint64_t kEditedBytesMax = uint64_t{16} << 20;
// Polling interval: the editor's exit does not wake this thread.
constexpr int kEditorWait_ms = 20;

// A temporary file, readable only by its owner.
class TextFile {
 public:
  static Result<std::unique_ptr<TextFile>> Create(const std::string& text) {
    std::error_code error;
    std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    if (error) folder = "/tmp";
    std::string path = (folder / "minisgl-XXXXXX.md").string();
    const int fd = mkstemps(path.data(), 3);
    if (fd < 0) {
      return MakeStatus(StatusCode::kCannotCreate, "{}: cannot be created ({})", path,
                        std::strerror(errno));
    }
    std::unique_ptr<TextFile> file(new TextFile(path));
    const bool written = WriteAll(fd, text.empty() ? "" : text + '\n');
    const int write_errno = errno;
    if (close(fd) == 0 && written) return file;
    return MakeStatus(StatusCode::kIoError, "{}: cannot be written ({})", path,
                      std::strerror(written ? errno : write_errno));
  }
  ~TextFile() { unlink(path_.c_str()); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TextFile(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

std::string Editor() {
  for (const char* name : {"VISUAL", "EDITOR"}) {
    const char* editor = std::getenv(name);
    if (editor != nullptr && *editor != '\0') return editor;
  }
  return "vi";
}

// Returns the exit status from waitpid, or -1 if the editor could not be started.
int RunEditor(const std::string& editor, const std::string& path, term::SignalWatch* signals) {
  std::string shell = "sh", option = "-c", command = editor + " \"$1\"", file = path;
  char* const argv[] = {shell.data(), option.data(), command.data(),
                        shell.data(), file.data(),   nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // The editor draws on the terminal even if answers go to a file.
  if (!term::IsTerminal(STDOUT_FILENO)) {
    posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO);
  }
  pid_t pid = -1;
  const int failure = posix_spawn(&pid, "/bin/sh", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return -1;
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) return -1;
    if (signals->Terminated() != 0) kill(pid, SIGTERM);
    poll(nullptr, 0, kEditorWait_ms);
  }
  signals->Drain();
  signals->TakeInterrupt();  // discard a Ctrl-C meant for the editor
  return status;
}

}  // namespace

Result<std::string> EditText(const std::string& text, term::SignalWatch* signals) {
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<TextFile> file, TextFile::Create(text));
  const std::string editor = Editor();
  const int status = RunEditor(editor, file->path(), signals);
  if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the editor \"{}\" failed; set EDITOR to one that works here",
                      Visible(editor));
  }
  MINISGL_ASSIGN_OR_RETURN(std::string edited, ReadFile(file->path(), kEditedBytesMax));
  DropByteOrderMark(&edited);
  while (edited.ends_with('\n') || edited.ends_with('\r')) edited.pop_back();
  return ReplaceInvalidUtf8(edited);
}

}  // namespace minisgl::chat
