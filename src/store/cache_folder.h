// The folder of a prefix cache, and what is in it:
//
//   DIR/CACHEDIR.TAG              tells programs that make backups to leave DIR out
//   DIR/minisgl-HEX.sha256        the hash of a model's weights (weights/weights_key.h)
//   DIR/kv-ROOT/                  blocks of one model, by the key of its root
//   DIR/kv-ROOT/KEY.kv            a block (block_file.h)
//   DIR/kv-ROOT/KEY.state         the state of the model after that block
//   DIR/kv-ROOT/.KEY.PID.N.tmp    one of them that is being written
//
// Keys are 64 hexadecimal digits. There is no index, so none can disagree with the files. A block's
// time of modification is that of its last use, in whole minutes; within a minute the blocks of a
// prefix are ordered by its nanoseconds, the last block the oldest, so that the oldest file is
// always one without which the others can be used: of a state and its block that is the state.
//
// DIR must belong to this user and give no access to others, because it holds what prompts said.
// Everything in it is opened relative to its descriptor and never through a symbolic link.
#pragma once

#include <sys/stat.h>
#include <time.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/base/trusted_folder.h"
#include "minisgl/store/kv_block_store.h"
#include "store/block_file.h"

namespace minisgl::store {

// `DIR/kv-...`: the name of a model's folder, and the root in such a name.
std::string ModelFolderName(const KvBlockKey& root);
std::optional<KvBlockKey> RootOfName(std::string_view name);

// A file in the folder of a model.
struct FileId {
  KvBlockKey key;
  FileKind kind = FileKind::kBlock;

  bool operator==(const FileId&) const = default;
};
// Its name, and what is in such a name.
std::string FileName(const FileId& file);
std::optional<FileId> FileOfName(std::string_view name);

// A name for a file that is being written, and whether `name` is one.
std::string TemporaryName(const KvBlockKey& key);
bool IsTemporaryName(std::string_view name);

// True for `minisgl-HEX.sha256`, and while it is written.
bool IsWeightsHashName(std::string_view name);

// The minute of now, from 1970 on.
int64_t MinuteNow();
// The time of modification of block `index` of a prefix, used in `minute`.
timespec UseTime(int64_t minute, int64_t index);

// Opens DIR. A missing folder is made, with access for this user only, if `creates`.
// kNoInput: it is not there. kBadInput: it is no folder, belongs to another user, or others have
// access to it. kCannotCreate, kIoError.
Result<FileHandle> OpenCacheFolder(const std::string& path, bool creates);

// Writes DIR/CACHEDIR.TAG unless something of that name is there. Errors are ignored.
void WriteCacheTag(int folder);
inline constexpr char kCacheTagName[] = "CACHEDIR.TAG";
// True if DIR/CACHEDIR.TAG is this program's.
bool HasCacheTag(int folder);

// Opens the folder of a model; makes it if `creates`, also in place of a file of its name. Closed,
// with errno set, if it is not there, is no folder, or is another user's.
FileHandle OpenModelFolder(int folder, const KvBlockKey& root, bool creates);

// Opens a file of a model and examines it. Closed, with errno set, if it is not there or is no
// regular file of this user (EINVAL).
FileHandle OpenFile(int model_folder, const FileId& file, struct stat* info);

// The roots of the models that have a folder in DIR.
std::vector<KvBlockKey> ModelsIn(int folder);

struct FileEntry {
  FileId file;
  int64_t file_bytes = 0;
  timespec used = {};
};
// The regular files in a model's folder that have the name of a block or a state.
std::vector<FileEntry> FilesIn(int model_folder);

// Removes temporary files of dead processes from a model's folder.
void RemoveAbandoned(int model_folder);

struct Eviction {
  int64_t bytes_left = 0;
  std::vector<FileId> removed;
};
// Adds up the files of all models. If they have more than `bytes_max`, removes the least recently
// used ones until the rest has at most `target`. Other processes may do the same at the same time.
Eviction EvictAbove(int folder, int64_t bytes_max, int64_t target);

}  // namespace minisgl::store
