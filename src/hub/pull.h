// Downloads a model from a hub into the hub cache.
//
// Every file is checked against the hash that the hub's list names it by, and appears in the cache
// only then. An interrupted download continues where it ended. Used by one thread.
//
// Source of the interface: the hub's documentation and huggingface_hub 2.4 (its cache's layout, the
// headers X-Repo-Commit, X-Linked-Etag, X-Linked-Size, X-Error-Code).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::hub {

struct PullOptions {
  std::string model;                  // "OWNER/NAME" or "OWNER/NAME@REVISION"
  std::vector<std::string> patterns;  // see ChooseFiles() of repository_files.h
  std::string endpoint;               // "" means https://huggingface.co
  std::string token;                  // "": none
  std::string cache_dir;
  std::string user_agent;
};

struct PullProgress {
  std::string file;                          // that is being downloaded
  uint64_t done_bytes = 0, total_bytes = 0;  // of all files
};

struct PullHooks {
  std::function<bool()> stops;  // called several times a second
  std::function<void(const PullProgress&)> shows;
};

struct PulledModel {
  std::string folder;  // the snapshot
  std::string commit;
  size_t num_files = 0;
  uint64_t num_bytes = 0;         // of all files
  uint64_t downloaded_bytes = 0;  // by this call
};

// kUsage for a bad name, endpoint or token; kUnavailable if the hub cannot be reached or refuses,
// or `stops` ended the download; kNoInput if it has no such model, revision or files; kBadInput for
// an answer that breaks the hub's interface; kCannotCreate if the disk has no room; kIoError.
Result<PulledModel> Pull(const PullOptions& options, const PullHooks& hooks);

}  // namespace minisgl::hub
