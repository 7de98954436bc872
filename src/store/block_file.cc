#include "store/block_file.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "store/block_key.h"

namespace minisgl::store {
namespace {

static_assert(std::endian::native == std::endian::little, "a header is copied as it is");

const std::array<char, 8>& MagicOf(FileKind kind, bool has_marks) {
  if (has_marks) return kind == FileKind::kBlock ? kMarkedBlockMagic : kMarkedStateMagic;
  return kind == FileKind::kBlock ? kBlockMagic : kStateMagic;
}

// Bytes of the field model_name that are left for the name.
size_t NameBytes(const BlockHeader& header) {
  const bool has_marks = header.magic == kMarkedBlockMagic || header.magic == kMarkedStateMagic;
  return header.model_name.size() - (has_marks ? sizeof(Sha256::Digest) : 0);
}

MarksDigest MarksIn(const BlockHeader& header) {
  if (NameBytes(header) == header.model_name.size()) return std::nullopt;
  Sha256::Digest marks;
  std::memcpy(marks.data(), header.model_name.data() + NameBytes(header), marks.size());
  return marks;
}

const KvBlockKey& ParentOf(const KvBlockKey& root, KvBlockPath path) {
  return path.size() < 2 ? root : path[path.size() - 2];
}

}  // namespace

BlockChecksum::BlockChecksum(const BlockHeader& header)
    : state_(XXH3_createState(), [](XXH3_state_s* state) { XXH3_freeState(state); }) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
  XXH3_128bits_update(state_.get(), &header, offsetof(BlockHeader, checksum));
}

void BlockChecksum::Add(std::span<const std::byte> data) {
  XXH3_128bits_update(state_.get(), data.data(), data.size());
}

std::array<uint64_t, 2> BlockChecksum::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {hash.low64, hash.high64};
}

BlockHeader MakeBlockHeader(FileKind kind, const KvBlockKey& root, KvBlockPath path,
                            const PrefixKey& block, std::string_view model_name,
                            std::span<const std::byte> data) {
  const std::span<const TokenId> tokens = block.tokens();
  const MarksDigest marks = DigestOfMarks(block);
  BlockHeader header{};
  header.magic = MagicOf(kind, marks.has_value());
  header.num_tokens = static_cast<uint32_t>(tokens.size());
  header.index = static_cast<int32_t>(path.size() - 1);
  header.data_bytes = data.size();
  header.key = path.back();
  header.parent = ParentOf(root, path);
  std::copy_n(tokens.begin(), std::min(tokens.size(), header.tokens.size()), header.tokens.begin());
  // One zero stays at the end.
  const size_t name_bytes = NameBytes(header);
  std::copy_n(model_name.begin(), std::min(model_name.size(), name_bytes - 1),
              header.model_name.begin());
  if (marks) std::memcpy(header.model_name.data() + name_bytes, marks->data(), marks->size());
  BlockChecksum checksum(header);
  checksum.Add(data);
  header.checksum = checksum.value();
  return header;
}

std::string_view HeaderFault(FileKind kind, const BlockHeader& header, const KvBlockKey& root,
                             const KvBlockKey& key, uint64_t file_bytes) {
  if (header.magic != MagicOf(kind, false) && header.magic != MagicOf(kind, true)) {
    return kind == FileKind::kBlock ? "is no file of a block" : "is no file of a state";
  }
  if (header.num_tokens != kKvBlockTokens) return "has another number of tokens";
  if (file_bytes < kBlockHeaderBytes || header.data_bytes != file_bytes - kBlockHeaderBytes) {
    return "is cut off, or too long";
  }
  if (header.key != key) return "has the name of another block";
  if (header.index < 0 || (header.index == 0) != (header.parent == root) ||
      header.key != ChildKey(header.parent, header.tokens, MarksIn(header))) {
    return "has another key than its tokens";
  }
  return "";
}

bool IsBlock(FileKind kind, const BlockHeader& header, const KvBlockKey& root, KvBlockPath path,
             const PrefixKey& block, std::span<const std::byte> data) {
  const std::span<const TokenId> tokens = block.tokens();
  const MarksDigest marks = DigestOfMarks(block);
  if (header.magic != MagicOf(kind, marks.has_value()) || MarksIn(header) != marks ||
      header.num_tokens != tokens.size() || header.data_bytes != data.size() ||
      header.key != path.back() || header.parent != ParentOf(root, path) ||
      header.index != std::ssize(path) - 1 ||
      !std::equal(tokens.begin(), tokens.end(), header.tokens.begin(), header.tokens.end())) {
    return false;
  }
  BlockChecksum checksum(header);
  checksum.Add(data);
  return checksum.value() == header.checksum;
}

std::string ModelNameOf(const BlockHeader& header) {
  return std::string(header.model_name.data(),
                     strnlen(header.model_name.data(), NameBytes(header)));
}

}  // namespace minisgl::store
