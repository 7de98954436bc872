// Open parses every header, so that a bad model fails at load and not during a run. Shards are
// opened in the order of their names. The index says which files are shards, and of a tensor in two
// of them which one counts; the shards say what they hold. What the index names and no shard holds
// matters if it is asked for.
#include "minisgl/weights/checkpoint.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/file_kind.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "weights/gguf_model.h"
#include "weights/gguf_projector.h"
#include "weights/model_dir.h"
#include "weights/shard_index.h"

namespace minisgl {
namespace {

constexpr uint64_t kIndexBytesMax = 256 << 20;
constexpr const char* kSingleFileName = "model.safetensors";

struct NamedDType {
  std::string_view name;  // as safetensors spells it
  DType dtype;
};
constexpr NamedDType kStoredTypes[] = {
    {"BF16", DType::kBF16},    {"F16", DType::kF16},      {"F32", DType::kF32},
    {"F8_E4M3", DType::kE4M3}, {"F8_E8M0", DType::kE8M0}, {"U8", DType::kU8},
    {"I8", DType::kI8},        {"I32", DType::kI32},      {"I64", DType::kI64},
};

std::optional<DType> DTypeOf(std::string_view name) {
  for (const NamedDType& known : kStoredTypes) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

const char* NameOf(DType dtype) {
  for (const NamedDType& known : kStoredTypes) {
    if (known.dtype == dtype) return known.name.data();
  }
  return "";
}

std::string Shown(const std::string& path) { return Visible(path, 400); }

// The one safetensors file of a directory without an index.
Result<std::string> SingleFile(const std::string& model_dir) {
  if (weights::IsListed(model_dir, kSingleFileName)) return std::string(kSingleFileName);
  const std::vector<std::string> names = weights::FilesEndingWith(model_dir, ".safetensors");
  if (names.size() == 1) return names[0];
  if (names.empty()) return weights::MissingFile(model_dir, kSingleFileName);
  return BadInput("{}: has {} safetensors files but no {} (found {}, {}{}); download it again",
                  Shown(model_dir), names.size(), weights::kShardIndexName, Visible(names[0]),
                  Visible(names[1]), names.size() > 2 ? ", ..." : "");
}

// The first number among the dotted parts of a tensor's name; -1 if there is none.
int32_t LayerIn(std::string_view tensor) {
  while (!tensor.empty()) {
    const std::string_view part = tensor.substr(0, tensor.find('.'));
    if (const auto number = ParseNumber<int32_t>(part)) return *number;
    tensor.remove_prefix(std::min(tensor.size(), part.size() + 1));
  }
  return -1;
}

// The tensors of a text model, or of a projector's tower.
Result<std::vector<weights::GgufModelTensor>> TensorsOf(const GgufHeader& header,
                                                        const std::string& path) {
  if (weights::IsProjector(header)) {
    const auto projector = weights::ReadProjector(header);
    if (!projector.ok()) return projector.status().WithPrefix(Shown(path));
    auto found = weights::FindProjectorTensors(header, projector->tower);
    return found.ok() ? std::move(found) : found.status().WithPrefix(Shown(path));
  }
  MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, weights::ReadGgufConfig(header, path));
  auto found = weights::FindGgufTensors(header, config);
  return found.ok() ? std::move(found) : found.status().WithPrefix(Shown(path));
}

}  // namespace

struct Checkpoint::Impl {
  struct Tensor {
    const MappedFile* file = nullptr;  // null for memory
    std::string dtype_name;
    std::vector<int64_t> shape;
    const std::byte* data = nullptr;
    std::shared_ptr<const void> memory;          // of data that is in no file
    std::shared_ptr<const WeightTensor> matrix;  // in place of data
  };
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::shared_ptr<const Impl> base;  // has the files in place of this; null: this has
  std::shared_ptr<const void> memory;
  std::map<std::string, Tensor, std::less<>> tensors;
  std::map<int32_t, std::vector<std::span<const std::byte>>>
      bytes_of_layer;  // empty if base is set
  // Tensors that the index names and no shard holds: the shard that is to hold each.
  std::map<std::string, std::string, std::less<>> absent;
  uint64_t total_bytes = 0;
  std::string looked_in;  // the file, or the index, for messages

  // `shard_of`: the path of the file that is to hold a tensor; "" if the index names none.
  using ShardOf = std::function<std::string(std::string_view tensor)>;
  void AddBytes(std::string_view tensor, std::span<const std::byte> bytes);
  Status AddFile(const std::string& path, const ShardOf& shard_of = nullptr);
  Status OpenSharded(const std::string& model_dir);
  Status OpenGguf(const std::string& path);
  Status ErrorOfAbsent(std::string_view name) const;
};

void Checkpoint::Impl::AddBytes(std::string_view tensor, std::span<const std::byte> bytes) {
  if (!bytes.empty()) bytes_of_layer[LayerIn(tensor)].push_back(bytes);
}

// Maps one file and adds its tensors.
Status Checkpoint::Impl::AddFile(const std::string& path, const ShardOf& shard_of) {
  MINISGL_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  files.push_back(std::make_shared<const MappedFile>(std::move(mapped)));
  const MappedFile& file = *files.back();
  uint64_t data_begin = 0;
  MINISGL_ASSIGN_OR_RETURN(auto entries,
                           SafetensorsFile::ParseHeader(file.bytes(), path, &data_begin));
  while (!entries.empty()) {  // frees each entry at once: a header may have a million
    auto node = entries.extract(entries.begin());
    SafetensorsFile::Entry& entry = node.mapped();
    const auto [place, is_new] = tensors.try_emplace(std::move(node.key()));
    if (!is_new) {
      const std::string shard = shard_of ? shard_of(place->first) : "";
      if (shard == place->second.file->path()) continue;
      if (shard != path) {
        return BadInput("tensor \"{}\" is in two files (found {} and {}); remove one",
                        Visible(place->first), Shown(place->second.file->path()), Shown(path));
      }
    }
    place->second = {&file,
                     std::move(entry.dtype_name),
                     std::move(entry.shape),
                     file.bytes().data() + data_begin + entry.begin,
                     {},
                     {}};
    if (!is_new) continue;  // counted
    AddBytes(place->first, file.bytes().subspan(data_begin + entry.begin, entry.end - entry.begin));
    const std::optional<uint64_t> sum = CheckedAdd(total_bytes, entry.end - entry.begin);
    if (!sum) return BadInput("{}: has more bytes than can be counted", Shown(path));
    total_bytes = *sum;
  }
  return Status();
}

Status Checkpoint::Impl::OpenSharded(const std::string& model_dir) {
  const std::string path = weights::JoinPath(model_dir, weights::kShardIndexName);
  looked_in = path;
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kIndexBytesMax));
  Result<weights::ShardIndex> parsed = weights::ParseShardIndex(text, path);
  if (!parsed.ok()) return OrFileKind(parsed.status(), text, path);
  const weights::ShardIndex index = std::move(parsed).value();
  const auto shard_of = [&](std::string_view tensor) {
    const auto found = index.shard_of.find(tensor);
    return found == index.shard_of.end() ? "" : weights::JoinPath(model_dir, found->second);
  };
  const bool is_whole = weights::IncompleteDownload(model_dir).empty();
  for (const std::string& shard : index.shards) {
    // A shard may be left out if the model needs nothing of it.
    const bool is_last_hope = files.empty() && shard == *index.shards.rbegin();
    if (is_whole && !is_last_hope && !weights::IsListed(model_dir, shard)) continue;
    const Status added = AddFile(weights::JoinPath(model_dir, shard), shard_of);
    // The user gave the model directory, so a missing file in it is a fault of the input.
    if (added.code() == StatusCode::kNoInput) {
      return BadInput("{}, but {} names it; download it again", added.message(),
                      weights::kShardIndexName);
    }
    MINISGL_RETURN_IF_ERROR(added);
  }
  for (const auto& [name, shard] : index.shard_of) {
    if (!tensors.contains(name)) absent.emplace(name, weights::JoinPath(model_dir, shard));
  }
  return Status();
}

Status Checkpoint::Impl::OpenGguf(const std::string& path) {
  looked_in = path;
  MINISGL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  for (const GgufTensor& tensor : file.header().tensors) {
    total_bytes += tensor.data.size();
    AddBytes(tensor.name, tensor.data);
  }
  MINISGL_ASSIGN_OR_RETURN(std::vector<weights::GgufModelTensor> found,
                           TensorsOf(file.header(), path));
  for (size_t part = 0; part < file.parts().size(); ++part) files.push_back(file.SharedPart(part));
  for (weights::GgufModelTensor& one : found) {
    Tensor& tensor = tensors[one.name];
    tensor.file = files[one.part].get();
    if (one.matrix) {
      tensor.matrix = std::make_shared<const WeightTensor>(*std::move(one.matrix));
      tensor.shape = {tensor.matrix->num_out(), tensor.matrix->num_in()};
    } else {
      tensor.dtype_name = NameOf(one.view.dtype);
      tensor.shape = std::move(one.view.shape);
      tensor.data = one.view.data;
      tensor.memory = std::move(one.memory);
    }
  }
  return Status();
}

Status Checkpoint::Impl::ErrorOfAbsent(std::string_view name) const {
  const auto found = absent.find(name);
  if (found == absent.end()) {
    return BadInput("{}: has no tensor \"{}\"; the model needs it", Shown(looked_in),
                    Visible(name, 200));
  }
  if (!minisgl::IsListed(found->second)) {
    return BadInput("{}: is missing, but {} names it for tensor \"{}\"; download it again",
                    Shown(found->second), weights::kShardIndexName, Visible(name, 200));
  }
  return BadInput("{}: tensor \"{}\" is in no file ({} is to hold it); download that again",
                  Shown(looked_in), Visible(name, 200), Shown(found->second));
}

Checkpoint::Checkpoint() : impl_(std::make_shared<Impl>()) {}
Checkpoint::~Checkpoint() = default;

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& model_dir) {
  if (IsGgufFile(model_dir)) {
    std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
    MINISGL_RETURN_IF_ERROR(checkpoint->impl_->OpenGguf(model_dir));
    return checkpoint;
  }
  MINISGL_RETURN_IF_ERROR(weights::CheckModelDir(model_dir));
  // A single file beside the shards could hold different weights.
  MINISGL_RETURN_IF_ERROR(CheckLink(weights::JoinPath(model_dir, weights::kShardIndexName)));
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  if (!weights::IsListed(model_dir, kSingleFileName) &&
      weights::IsListed(model_dir, weights::kShardIndexName)) {
    MINISGL_RETURN_IF_ERROR(checkpoint->impl_->OpenSharded(model_dir));
  } else {
    MINISGL_ASSIGN_OR_RETURN(const std::string name, SingleFile(model_dir));
    checkpoint->impl_->looked_in = weights::JoinPath(model_dir, name);
    MINISGL_RETURN_IF_ERROR(checkpoint->impl_->AddFile(checkpoint->impl_->looked_in));
  }
  return checkpoint;
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::OpenFile(const std::string& path) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->impl_->looked_in = path;
  MINISGL_RETURN_IF_ERROR(checkpoint->impl_->AddFile(path));
  return checkpoint;
}

std::unique_ptr<Checkpoint> Checkpoint::FromViews(std::map<std::string, TensorView> tensors,
                                                  std::shared_ptr<const void> memory,
                                                  std::string source) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  Impl& impl = *checkpoint->impl_;
  impl.memory = std::move(memory);
  impl.looked_in = std::move(source);
  for (auto& [name, view] : tensors) {
    impl.total_bytes += view.num_bytes();
    impl.tensors[name] = {nullptr, NameOf(view.dtype), std::move(view.shape), view.data, {}, {}};
  }
  return checkpoint;
}

std::unique_ptr<Checkpoint> Checkpoint::WithTensors(std::map<std::string, TensorView> tensors,
                                                    std::shared_ptr<const void> memory) const {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  Impl& impl = *checkpoint->impl_;
  impl.base = impl_;
  impl.memory = std::move(memory);
  impl.tensors = impl_->tensors;
  impl.absent = impl_->absent;
  impl.total_bytes = impl_->total_bytes;
  impl.looked_in = impl_->looked_in;
  for (auto& [name, view] : tensors) {
    impl.absent.erase(name);
    impl.tensors[name] = {nullptr, NameOf(view.dtype), std::move(view.shape), view.data, {}, {}};
  }
  return checkpoint;
}

Result<TensorView> Checkpoint::GetStored(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  if (found == impl_->tensors.end()) return impl_->ErrorOfAbsent(name);
  const Impl::Tensor& tensor = found->second;
  const std::optional<DType> dtype = DTypeOf(tensor.dtype_name);
  if (!dtype) {
    return BadInput("{}: tensor \"{}\" has dtype {}; no weights of that type are known",
                    Shown(FileOf(name)), Visible(name, 200), tensor.dtype_name);
  }
  return TensorView{tensor.data, *dtype, tensor.shape};
}

Result<TensorView> Checkpoint::Get(std::string_view name) const {
  Result<TensorView> stored = GetStored(name);
  if (impl_->tensors.contains(name) && (!stored.ok() || !IsComputed(stored->dtype))) {
    return BadInput("{}: tensor \"{}\" has dtype {}; BF16, F16 and F32 are supported",
                    Shown(FileOf(name)), Visible(name, 200),
                    impl_->tensors.find(name)->second.dtype_name);
  }
  return stored;
}

const WeightTensor* Checkpoint::FindMatrix(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  return found == impl_->tensors.end() ? nullptr : found->second.matrix.get();
}

bool Checkpoint::Has(std::string_view name) const {
  return impl_->tensors.contains(name) || impl_->absent.contains(name);
}

bool Checkpoint::Holds(std::string_view name) const { return impl_->tensors.contains(name); }

std::vector<std::string> Checkpoint::Absent() const {
  std::vector<std::string> names;
  names.reserve(impl_->absent.size());
  for (const auto& [name, shard] : impl_->absent) names.push_back(name);
  return names;
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(impl_->tensors.size());
  for (const auto& [name, tensor] : impl_->tensors) names.push_back(name);
  return names;
}

uint64_t Checkpoint::total_bytes() const { return impl_->total_bytes; }

std::vector<const MappedFile*> Checkpoint::Files() const {
  std::vector<const MappedFile*> files;
  const Impl* impl = impl_.get();
  while (impl->base != nullptr) impl = impl->base.get();
  for (const auto& file : impl->files) files.push_back(file.get());
  return files;
}

std::vector<std::span<const std::byte>> Checkpoint::BytesOfLayer(int32_t layer) const {
  const Impl* impl = impl_.get();
  while (impl->base != nullptr) impl = impl->base.get();
  const auto found = impl->bytes_of_layer.find(layer);
  if (found == impl->bytes_of_layer.end()) return {};
  std::vector<std::span<const std::byte>> parts = found->second;
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return std::less<>()(a.data(), b.data()); });
  return parts;
}

void Checkpoint::DropPages() const {
  for (const MappedFile* file : Files()) file->DropPages(file->bytes());
}

std::shared_ptr<const void> Checkpoint::Keep() const { return impl_; }

std::string Checkpoint::FileOf(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  if (found == impl_->tensors.end()) return "";
  return found->second.file == nullptr ? impl_->looked_in : found->second.file->path();
}

}  // namespace minisgl
