// The hub cache: the folder in which the hub's tools and `minisgl pull` keep models.
//
//   models--OWNER--NAME/blobs/HASH               contents, each once; HASH.incomplete: a part
//   models--OWNER--NAME/snapshots/COMMIT/FILE    links to blobs; a model directory
//   models--OWNER--NAME/refs/NAME                the commit of a branch or tag
//
// HubCacheDir() of minisgl/weights/find_model_dir.h is its path. Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::hub {

// A model directory of the cache, or a model of which there is none yet.
struct CachedSnapshot {
  std::string model;              // "OWNER/NAME", or "NAME" of a model without an owner
  std::string commit;             // "" if the model has no snapshot
  std::vector<std::string> refs;  // branches and tags of that commit, sorted
  std::string folder;             // of the snapshot; of the model if it has none
  // Bytes of the files. Snapshots of one model may share files, which count for each.
  uint64_t num_bytes = 0;
  // Bytes of files of the model, of any snapshot, that a download has begun.
  uint64_t part_bytes = 0;
  bool is_downloading = false;  // there are such files
  bool is_default = false;      // OWNER/NAME alone means this one
};

// The snapshots in the hub cache, sorted by model and commit; empty if it does not exist. Reads no
// file of a model.
std::vector<CachedSnapshot> ListSnapshots();

// "OWNER/NAME" of a folder "models--OWNER--NAME"; "" for other names.
std::string ModelOfFolder(std::string_view folder_name);

}  // namespace minisgl::hub
