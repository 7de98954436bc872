// The files of a repository, as the hub lists them, and which of them are downloaded.
//
// The list is hostile: names become paths below the hub cache only after CheckFileName.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "weights/shard_index.h"

namespace minisgl::hub {

// The repository that a user names: "OWNER/NAME" or "OWNER/NAME@REVISION".
struct RepositoryName {
  std::string owner, name;
  std::string revision = "main";  // a branch, a tag or a commit

  std::string Path() const { return owner + "/" + name; }
  std::string Folder() const { return "models--" + owner + "--" + name; }
};
// kUsage for anything else, and for names that the hub does not allow.
Result<RepositoryName> ParseRepositoryName(const std::string& text);

struct RepositoryFile {
  std::string name;        // "config.json", "original/params.json"
  std::string hash;        // see blob_hash.h; "" if the list has none
  uint64_t num_bytes = 0;  // unknown if there is no hash
};

struct RepositoryList {
  std::string commit;  // 40 hexadecimal digits
  std::vector<RepositoryFile> files;
};
// Parses the hub's answer to /api/models/OWNER/NAME/revision/REVISION?blobs=true. kBadInput.
Result<RepositoryList> ParseRepositoryList(const std::string& text);

// kBadInput for a name that could leave its folder or change how a terminal shows it: absolute,
// with "." or ".." or an empty part, with control characters or ill-formed UTF-8, or too long.
Status CheckFileName(const std::string& name);

// The files that match one of the patterns, whose "*" and "?" match any character. Without
// patterns those that a model needs: the configuration, the tokenizer and its template, and the
// weights as safetensors, each once: model.safetensors, or the index (whose shards KeepShards
// chooses later), or all of them. Of a repository with adapter_config.json and no config.json they
// are that and adapter_model.safetensors. kNoInput if no file is chosen, or no weights without
// patterns. kBadInput if the name of a chosen one fails CheckFileName.
Result<std::vector<RepositoryFile>> ChooseFiles(const std::vector<RepositoryFile>& files,
                                                const std::vector<std::string>& patterns);

// Removes the safetensors that `index` does not name. kBadInput if it names one that is not listed.
Status KeepShards(const weights::ShardIndex& index, std::vector<RepositoryFile>* files);

}  // namespace minisgl::hub
