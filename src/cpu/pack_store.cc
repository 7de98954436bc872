// See pack_store.h.
//
// The file: a header, the matrices at multiples of 4 KiB, the table of entries. Numbers have the
// machine's byte order; a file of another byte order has another magic number.
#include "cpu/pack_store.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "cpu/block_panels.h"
#include "cpu/memory.h"
#include "cpu/pack_codes.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cpu {
namespace {

constexpr uint64_t kMagic = 0x334B434150474C53;   // "SLGPACK3"
constexpr uint64_t kDataAlignment = 4096;         // matrices begin at a page
constexpr uint64_t kEntriesMax = 1'000'000;       // as many as the tensors a checkpoint may have
constexpr size_t kHashedBytes = size_t{1} << 20;  // the part that one thread hashes at a time
constexpr size_t kWriteBytes = size_t{1} << 20;
constexpr mode_t kPrivateMode = 0600, kPublicMode = 0644;

// A hash that detects accidental changes. Not cryptographic: collisions can be constructed.
class Hasher {
 public:
  explicit Hasher(uint64_t seed = 0) : hash_(seed) {}
  void Add(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15u;
    hash_ ^= hash_ >> 32;
  }
  void Add(const void* data, size_t num_bytes) {
    const auto* bytes = static_cast<const char*>(data);
    for (size_t at = 0; at < num_bytes; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + at, std::min(sizeof(word), num_bytes - at));
      Add(word);
    }
    Add(num_bytes);
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_;
};

struct Header {
  uint64_t magic, key[2], num_entries, table_offset, table_hash, file_bytes;
  uint64_t header_hash;  // hash of the fields before it
};

uint64_t HashOf(const Header& header) {
  Hasher hasher;
  hasher.Add(&header, offsetof(Header, header_hash));
  return hasher.value();
}

uint64_t HashOf(const void* data, size_t num_bytes) {
  Hasher hasher;
  hasher.Add(data, num_bytes);
  return hasher.value();
}

// Eight independent chains of multiplications: a single chain is limited by the latency of
// multiplication, not by memory.
uint64_t HashOfPart(const char* bytes, size_t num_bytes) {
  constexpr size_t kChains = 8, kLine = kChains * sizeof(uint64_t);
  Hasher chains[kChains];
  const size_t num_lines = num_bytes / kLine;
  for (size_t line = 0; line < num_lines; ++line) {
    uint64_t words[kChains];
    std::memcpy(words, bytes + line * kLine, kLine);
    for (size_t i = 0; i < kChains; ++i) chains[i].Add(words[i]);
  }
  Hasher all(num_bytes);
  for (const Hasher& chain : chains) all.Add(chain.value());
  all.Add(bytes + num_lines * kLine, num_bytes - num_lines * kLine);
  return all.value();
}

// Hashes every byte, with the threads of `pool` (may be null). Calls `prepare(begin, bytes)` before
// each part is hashed. Returns nullopt if that fails for any part.
template <typename Prepare>
std::optional<uint64_t> ContentHash(const void* data, size_t num_bytes, ThreadPool* pool,
                                    const Prepare& prepare) {
  std::vector<uint64_t> parts(CeilDiv(num_bytes, kHashedBytes));
  std::atomic<bool> fails{false};
  const auto hash_part = [&](int64_t part, int) {
    const size_t begin = static_cast<size_t>(part) * kHashedBytes;
    const size_t length = std::min(kHashedBytes, num_bytes - begin);
    if (!prepare(begin, length)) {
      fails = true;
      return;
    }
    parts[static_cast<size_t>(part)] = HashOfPart(static_cast<const char*>(data) + begin, length);
  };
  if (pool != nullptr) {
    pool->ParallelFor(std::ssize(parts), hash_part);
  } else {
    for (int64_t part = 0; part < std::ssize(parts); ++part) hash_part(part, 0);
  }
  if (fails) return std::nullopt;
  return HashOf(parts.data(), parts.size() * sizeof(uint64_t));
}

uint64_t ContentHash(const void* data, size_t num_bytes) {
  return *ContentHash(data, num_bytes, nullptr, [](size_t, size_t) { return true; });
}

// Identity of a matrix: its format, the shapes of its parts, and some of their rows.
uint64_t IdentityOf(std::span<const WeightTensor> parts, const WeightFormat& format,
                    CodeOrders orders) {
  constexpr int64_t kSamples = 4;
  Hasher hasher;
  hasher.Add(static_cast<uint64_t>(format.dtype) << 8 | static_cast<uint64_t>(format.quantization));
  if (QuantizesToCodes(format)) {
    const CodedMatrix codes = EmptyQuantizedMatrix(format, 0, parts[0].num_in(), orders);
    hasher.Add(static_cast<uint64_t>(codes.kind) << 8 | static_cast<uint64_t>(codes.order));
  }
  std::vector<float> row;
  for (const WeightTensor& part : parts) {
    hasher.Add(static_cast<uint64_t>(part.num_out()));
    hasher.Add(static_cast<uint64_t>(part.num_in()));
    row.resize(static_cast<size_t>(part.num_in()));
    for (int64_t sample = 0; sample < kSamples && part.num_out() > 0; ++sample) {
      part.ReadRow((part.num_out() - 1) * sample / (kSamples - 1), row.data());
      hasher.Add(row.data(), row.size() * sizeof(float));
    }
  }
  return hasher.value();
}

std::shared_ptr<const void> BytesOf(const PackedMatrix& matrix) {
  return matrix.coded != nullptr ? matrix.coded->data : matrix.data;
}

// Hash of the packed form of a small matrix (two groups of panels, several blocks, two lines, an
// odd number of inputs) in the formats of a model whose matrices have `format`. Changes if the
// layout does.
uint64_t LayoutHash(const WeightFormat& format, CodeOrders orders) {
  constexpr int64_t kNumOut = 83, kNumIn = 199;
  std::vector<float> values(kNumOut * kNumIn);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 7919 % 1009) / 512.0f - 1.0f;
  }
  const WeightTensor tensor =
      TensorView{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {kNumOut, kNumIn}};
  ThreadPool pool(1);
  Hasher hasher;
  for (const WeightFormat& one : {format, TableFormat(format), WeightFormat(format.dtype)}) {
    const auto matrix = PackParts({&tensor, 1}, one, orders, &pool);
    if (matrix.ok()) hasher.Add(BytesOf(*matrix).get(), matrix->num_bytes());
  }
  return hasher.value();
}

Status SystemError(const char* what) {
  return MakeStatus(StatusCode::kIoError, "{}: {}", what, std::strerror(errno));
}

Status WriteAll(int fd, const void* data, size_t num_bytes, uint64_t offset) {
  const auto* bytes = static_cast<const char*>(data);
  for (size_t done = 0; done < num_bytes;) {
    const size_t part = std::min(kWriteBytes, num_bytes - done);
    const ssize_t written = pwrite(fd, bytes + done, part, static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError("write");
    done += static_cast<size_t>(written);
  }
  return Status();
}

void Warn(const std::string& path, const std::string& what) {
  Log(LogLevel::kWarning, fmt::format("{}: {}: {}; going on without it",
                                      SettingName(Setting::kPackCache), Visible(path, 400), what));
}

// How many of `parts`, at least one, have common blocks or codes, or are all dense.
size_t CountAlike(std::span<const WeightTensor> parts) {
  if (HaveCommonBlocks(parts.first(1))) {
    size_t count = 1;
    while (count < parts.size() && HaveCommonBlocks(parts.first(count + 1))) ++count;
    return count;
  }
  const bool is_coded = HaveCommonCodes(parts.first(1));
  size_t count = 1;
  while (count < parts.size() && !HaveCommonBlocks(parts.subspan(count, 1)) &&
         (is_coded ? HaveCommonCodes(parts.first(count + 1))
                   : !HaveCommonCodes(parts.subspan(count, 1)))) {
    ++count;
  }
  return count;
}

}  // namespace

PackStore::PackStore(std::string dir, PackSource source, CodeOrders orders)
    : source_(std::move(source)), path_(dir) {
  const uint64_t layout = LayoutHash(source_.format, orders);
  for (uint64_t half : {0, 1}) {
    Hasher hasher(half);
    hasher.Add(layout);
    hasher.Add(source_.key.data(), source_.key.size());
    key_[half] = hasher.value();
  }
  name_ = fmt::format("minisgl-{:016x}.pack", key_[0]);
  Result<TrustedFolder> folder = TrustedFolder::Open(dir);
  if (!folder.ok()) {
    Warn(path_, folder.status().message());
    return;
  }
  folder_ = std::move(folder).value();
  path_ = dir + "/" + name_;
  Read();
}

PackStore::~PackStore() {
  if (writer_.joinable()) writer_.join();
}

void PackStore::Read() {
  auto file = folder_->OpenFile(name_);
  if (!file.ok()) {
    if (file.status().code() == StatusCode::kNoInput) return;
    Log(LogLevel::kWarning,
        fmt::format("{}: {}: {}; writing it anew", SettingName(Setting::kPackCache),
                    Visible(path_, 400), file.status().message()));
    return;
  }
  auto entries = ReadEntries(file->fd(), key_);
  if (!entries.ok()) {
    Log(LogLevel::kInfo,
        fmt::format("{}: {}: {}; writing it anew", SettingName(Setting::kPackCache),
                    Visible(path_, 400), entries.status().message()));
    return;
  }
  file_ = std::move(file).value();
  entries_ = std::move(entries).value();
}

// Checks every offset: the entries returned lie within the file as it was opened.
Result<std::vector<PackStore::Entry>> PackStore::ReadEntries(int fd, const uint64_t (&key)[2]) {
  Header header;
  struct stat info {};
  if (fstat(fd, &info) != 0) return SystemError("cannot be read");
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  if (file_bytes < kDataAlignment || !ReadAt(fd, &header, sizeof(header), 0)) {
    return BadInput("is cut short (found {} bytes)", file_bytes);
  }
  if (header.magic != kMagic) return BadInput("is not a file of packed weights");
  if (header.header_hash != HashOf(header)) return BadInput("its header is damaged");
  if (header.key[0] != key[0] || header.key[1] != key[1]) return BadInput("is of another model");
  if (header.file_bytes != file_bytes) {
    return BadInput("has {} bytes (expected {})", file_bytes, header.file_bytes);
  }
  const uint64_t table_offset = header.table_offset;
  if (header.num_entries > kEntriesMax || table_offset < kDataAlignment ||
      table_offset > file_bytes ||
      file_bytes - table_offset != header.num_entries * sizeof(Entry)) {
    return BadInput("its table of {} matrices is damaged", header.num_entries);
  }
  std::vector<Entry> entries(header.num_entries);
  const size_t table_bytes = entries.size() * sizeof(Entry);
  if (!ReadAt(fd, entries.data(), table_bytes, table_offset) ||
      HashOf(entries.data(), table_bytes) != header.table_hash) {
    return BadInput("its table of matrices is damaged");
  }
  for (const Entry& entry : entries) {
    const auto end = CheckedAdd(entry.offset, entry.num_bytes);
    if (entry.offset < kDataAlignment || entry.offset % kDataAlignment != 0 || !end ||
        *end > table_offset) {
      return BadInput("a matrix lies outside of it (found {} bytes at {})", entry.num_bytes,
                      entry.offset);
    }
  }
  return entries;
}

// Reads into memory of its own: a mapped file could change after the check.
std::shared_ptr<void> PackStore::ReadMatrix(const Entry& entry, Packing packing) const {
  Result<std::shared_ptr<void>> memory = packing.pool == nullptr
                                             ? AllocateZeroed(entry.num_bytes)
                                             : AllocateToFill(entry.num_bytes, packing);
  if (!memory.ok()) return nullptr;
  auto* const bytes = static_cast<std::byte*>(memory->get());
  const auto read = [&](size_t begin, size_t length) {
    return ReadAt(file_.fd(), bytes + begin, length, entry.offset + begin);
  };
  const auto hash = ContentHash(bytes, entry.num_bytes, packing.pool, read);
  return hash == entry.content_hash ? *memory : nullptr;
}

std::shared_ptr<void> PackStore::Find(uint64_t identity, size_t num_bytes, Packing packing) {
  if (!file_.is_open() || matrices_.size() >= entries_.size()) return nullptr;
  const Entry& entry = entries_[matrices_.size()];
  const bool is_wanted = entry.identity == identity && entry.num_bytes == num_bytes;
  std::shared_ptr<void> found = is_wanted ? ReadMatrix(entry, packing) : nullptr;
  if (found == nullptr) {
    Log(LogLevel::kInfo,
        fmt::format("{}: {}: matrix {} is not the model's, or damaged; "
                    "writing the file anew",
                    SettingName(Setting::kPackCache), Visible(path_, 400), matrices_.size()));
    file_ = FileHandle();
    return nullptr;
  }
  matrices_.push_back({identity, found, num_bytes});
  ++num_found_;
  return found;
}

void PackStore::Add(uint64_t identity, std::shared_ptr<const void> data, size_t num_bytes) {
  matrices_.push_back({identity, std::move(data), num_bytes});
  ++num_packed_;
}

void PackStore::Finish() {
  if (std::exchange(finished_, true)) return;
  const bool is_right = num_packed() == 0 && entries_.size() == matrices_.size();
  Log(LogLevel::kVerbose,
      fmt::format("{}: {}: {} matrices read, {} packed{}", SettingName(Setting::kPackCache),
                  Visible(path_, 400), num_found_, num_packed(),
                  is_right || !folder_ ? "" : "; writing it"));
  file_ = FileHandle();
  if (is_right || !folder_) {
    matrices_.clear();
    return;
  }
  try {
    writer_ = std::thread([this] {
      // The lowest priority: inference goes first.
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
      const Status written = Write();
      if (!written.ok()) Warn(path_, written.message());
      matrices_.clear();
    });
  } catch (const std::system_error& error) {
    Warn(path_, fmt::format("no thread to write it ({})", Visible(error.what())));
  }
}

Status PackStore::Write() const {
  return folder_->ReplaceFile(name_, source_.is_public ? kPublicMode : kPrivateMode,
                              [this](int fd) { return WriteTo(fd); });
}

Status PackStore::WriteTo(int fd) const {
  std::vector<Entry> entries;
  uint64_t offset = kDataAlignment;
  for (const Kept& matrix : matrices_) {
    entries.push_back({matrix.identity, offset, matrix.num_bytes,
                       ContentHash(matrix.data.get(), matrix.num_bytes)});
    MINISGL_RETURN_IF_ERROR(WriteAll(fd, matrix.data.get(), matrix.num_bytes, offset));
    offset = CeilDiv(offset + matrix.num_bytes, kDataAlignment) * kDataAlignment;
  }
  const size_t table_bytes = entries.size() * sizeof(Entry);
  Header header = {.magic = kMagic,
                   .key = {key_[0], key_[1]},
                   .num_entries = entries.size(),
                   .table_offset = offset,
                   .table_hash = HashOf(entries.data(), table_bytes),
                   .file_bytes = offset + table_bytes,
                   .header_hash = 0};
  header.header_hash = HashOf(header);
  std::array<char, kDataAlignment> first_page = {};
  std::memcpy(first_page.data(), &header, sizeof(header));
  MINISGL_RETURN_IF_ERROR(WriteAll(fd, entries.data(), table_bytes, offset));
  if (table_bytes == 0 && ftruncate(fd, static_cast<off_t>(offset)) != 0) {
    return SystemError("write");
  }
  MINISGL_RETURN_IF_ERROR(WriteAll(fd, first_page.data(), first_page.size(), 0));
  // If the weights changed while they were packed, the key is wrong.
  if (source_.holds && !source_.holds()) return BadInput("the model's files changed meanwhile");
  return Status();
}

Result<PackedMatrix> FindOrPack(std::span<const WeightTensor> parts, const WeightFormat& format,
                                CodeOrders orders, PackStore* store, Packing packing) {
  // Codes are packed about as fast as they are read.
  const bool is_coded = format.quantization == Quantization::kStored && HaveCommonCodes(parts);
  if (store == nullptr || is_coded) return PackParts(parts, format, orders, packing);
  PackedMatrix matrix;
  matrix.format = format;
  if (format.quantization == Quantization::kStored)
    matrix.format.quantization = Quantization::kNone;
  matrix.num_in = parts[0].num_in();
  for (const WeightTensor& part : parts) matrix.num_out += part.num_out();
  const uint64_t identity = IdentityOf(parts, matrix.format, orders);
  const bool becomes_codes = QuantizesToCodes(format);
  CodedMatrix coded;
  if (becomes_codes) coded = EmptyQuantizedMatrix(format, matrix.num_out, matrix.num_in, orders);
  const size_t num_bytes = becomes_codes ? coded.num_bytes() : matrix.num_bytes();
  std::shared_ptr<void> found = store->Find(identity, num_bytes, packing);
  if (found != nullptr && becomes_codes) {
    coded.data = std::move(found);
    matrix.coded = std::make_shared<const CodedMatrix>(std::move(coded));
    return matrix;
  }
  matrix.data = std::move(found);
  if (matrix.data != nullptr) return matrix;
  MINISGL_ASSIGN_OR_RETURN(matrix, PackParts(parts, format, orders, packing));
  store->Add(identity, BytesOf(matrix), num_bytes);
  return matrix;
}

Result<PackedMatrix> FindOrPackStack(std::span<const WeightTensor> parts,
                                     const WeightFormat& format, CodeOrders orders,
                                     PackStore* store, Packing packing) {
  if (format.quantization != Quantization::kStored || CountAlike(parts) == parts.size()) {
    return FindOrPack(parts, format, orders, store, packing);
  }
  PackedMatrix stack;
  stack.format = format;
  stack.num_in = parts[0].num_in();
  while (!parts.empty()) {
    const size_t count = CountAlike(parts);
    MINISGL_ASSIGN_OR_RETURN(PackedMatrix part,
                             FindOrPack(parts.first(count), format, orders, store, packing));
    stack.num_out += part.num_out;
    stack.stacked.push_back(std::move(part));
    parts = parts.subspan(count);
  }
  return stack;
}

}  // namespace minisgl::cpu
