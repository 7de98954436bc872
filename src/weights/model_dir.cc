// Looks at names only and opens no file. File system errors count as "does not exist": opening the
// files later reports them.
#include "weights/model_dir.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "minisgl/base/folder.h"
#include "minisgl/base/utf8.h"

namespace minisgl::weights {
namespace {

namespace fs = std::filesystem;
constexpr size_t kPathBytesMax = 400;

// Suffixes of weights in other formats than safetensors.
constexpr const char* kForeignSuffixes[] = {".gguf", ".bin", ".pt",      ".pth",
                                            ".ckpt", ".h5",  ".msgpack", ".onnx"};

}  // namespace

Status CheckModelDir(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return MakeStatus(StatusCode::kNoInput, "{}: cannot be opened ({}); give a model directory",
                      Visible(path, kPathBytesMax), error ? error.message() : "no such directory");
  }
  if (fs::is_directory(status)) return Status();
  return BadInput("{}: is not a directory; give the directory that holds config.json",
                  Visible(path, kPathBytesMax));
}

std::vector<std::string> FilesEndingWith(const std::string& model_dir, const std::string& suffix) {
  std::vector<std::string> names = NamesIn(model_dir);
  std::erase_if(names, [&](const std::string& name) { return !name.ends_with(suffix); });
  return names;
}

std::string IncompleteDownload(const std::string& model_dir) {
  // Where the hub's client keeps incomplete downloads.
  fs::path folder = fs::path(model_dir) / ".cache" / "huggingface" / "download";
  const fs::path snapshots = fs::path(JoinPath(model_dir, "")).parent_path().parent_path();
  if (snapshots.filename() == "snapshots") folder = snapshots.parent_path() / "blobs";
  const std::vector<std::string> names = FilesEndingWith(folder.string(), ".incomplete");
  return names.empty() ? "" : (folder / names[0]).string();
}

Status MissingFile(const std::string& model_dir, const std::string& missing) {
  if (const std::string file = IncompleteDownload(model_dir); !file.empty()) {
    return BadInput("{}: has no {}, and its download is incomplete (found {}); download it again",
                    Visible(model_dir, kPathBytesMax), missing, Visible(file, kPathBytesMax));
  }
  for (const char* suffix : kForeignSuffixes) {
    const std::vector<std::string> names = FilesEndingWith(model_dir, suffix);
    if (!names.empty()) {
      return BadInput("{}: has no {} (found {}); {}", Visible(model_dir, kPathBytesMax), missing,
                      Visible(names[0]),
                      std::string_view(suffix) == ".gguf" ? "give that file itself"
                                                          : "weights as safetensors are needed");
    }
  }
  return MakeStatus(StatusCode::kNoInput,
                    "{}: has no {}; give a model directory with config.json and safetensors files",
                    Visible(model_dir, kPathBytesMax), missing);
}

bool IsListed(const std::string& model_dir, const std::string& name) {
  return minisgl::IsListed(JoinPath(model_dir, name));
}

std::string JoinPath(const std::string& model_dir, const std::string& name) {
  return model_dir.ends_with('/') ? model_dir + name : model_dir + "/" + name;
}

}  // namespace minisgl::weights
