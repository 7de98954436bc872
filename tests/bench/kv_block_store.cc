// Rates of the prefix cache on disk, beside what the machine allows.
//
//   bench_kv_block_store FOLDER [BLOCK_MIB [BLOCKS]]
//
// FOLDER is made, used and cleared. Blocks of BLOCK_MIB (1) are written, read back and checked. All
// files are in the page cache when they are read. Prints MiB/s of copies in memory, of the
// checksum, of plain files of the same sizes, and of the store; and the time of Find and Keys for a
// prefix.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "minisgl/base/parse_number.h"
#include "minisgl/store/cache_tools.h"
#include "minisgl/store/kv_block_store.h"
#include "store/block_file.h"
#include "store/block_key.h"

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 5;

double SecondsOf(const std::function<void()>& work) {
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The median of several rounds.
double MedianSeconds(const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) seconds.push_back(SecondsOf(work));
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRounds / 2];
}

struct Bench {
  std::string folder;
  size_t block_bytes;
  size_t blocks;
  std::vector<std::byte> data, read;

  void Print(const char* what, double seconds) const {
    const double mib = static_cast<double>(blocks * block_bytes) / (1 << 20);
    fmt::print("{:<40} {:>10.0f} MiB/s\n", what, mib / seconds);
  }
  std::string PlainPath(size_t block) const { return fmt::format("{}/plain-{}", folder, block); }

  void InMemory() {
    Print("copy in memory", MedianSeconds([this] {
            for (size_t i = 0; i < blocks; ++i) std::memcpy(read.data(), data.data(), block_bytes);
          }));
    uint64_t sum = 0;
    Print("checksum", MedianSeconds([&] {
            for (size_t i = 0; i < blocks; ++i) {
              store::BlockChecksum checksum{store::BlockHeader{}};
              checksum.Add(data);
              sum += checksum.value()[0];
            }
          }));
    if (sum == 1) fmt::print("\n");  // so that the sums are not left out
  }

  void PlainFiles() {
    Print("plain files: write", SecondsOf([this] {
            for (size_t i = 0; i < blocks; ++i) {
              const int fd = open(PlainPath(i).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
              if (write(fd, data.data(), block_bytes) < 0) fmt::print("a write failed\n");
              close(fd);
            }
          }));
    Print("plain files: read", MedianSeconds([this] {
            for (size_t i = 0; i < blocks; ++i) {
              const int fd = open(PlainPath(i).c_str(), O_RDONLY);
              if (::read(fd, read.data(), block_bytes) < 0) fmt::print("a read failed\n");
              close(fd);
            }
          }));
    for (size_t i = 0; i < blocks; ++i) unlink(PlainPath(i).c_str());
  }

  void Store(KvBlockStore* store) {
    std::vector<TokenId> tokens(blocks * kKvBlockTokens);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i % 32'000);
    const std::vector<KvBlockKey> keys = store->Keys(tokens);
    const auto block_tokens = [&](size_t block) {
      return std::span(tokens).subspan(block * kKvBlockTokens, kKvBlockTokens);
    };
    int64_t done = 0;
    Print("store: write", SecondsOf([&] {
            for (size_t i = 0; i < blocks; ++i) {
              done += store->Write(KvBlockPath(keys).first(i + 1), block_tokens(i), data) ? 1 : 0;
            }
          }));
    Print("store: read", MedianSeconds([&] {
            for (size_t i = 0; i < blocks; ++i) {
              done += store->Read(KvBlockPath(keys).first(i + 1), block_tokens(i), read) ? 1 : 0;
            }
          }));
    if (done != static_cast<int64_t>((kRounds + 1) * blocks) || read != data) {
      fmt::print("blocks were lost\n");
    }
    const double count = static_cast<double>(blocks);
    fmt::print("{:<40} {:>10.2f} us/block\n", "store: keys",
               1e6 / count * MedianSeconds([&] { done += std::ssize(store->Keys(tokens)); }));
    fmt::print("{:<40} {:>10.2f} us/block\n", "store: find, known",
               1e6 / count * MedianSeconds([&] { done += store->Find(keys); }));
  }
};

int Main(const std::string& folder, size_t block_mib, size_t blocks) {
  const auto store = OpenKvBlockFolder({.folder = folder,
                                        .max_bytes = int64_t{1} << 40,
                                        .identity = "bench",
                                        .model_name = "bench",
                                        .block_bytes = static_cast<int64_t>(block_mib << 20)});
  if (!store.ok()) {
    fmt::print("{}\n", store.status().message());
    return 1;
  }
  Bench bench{folder, block_mib << 20, blocks, {}, {}};
  bench.data.resize(bench.block_bytes);
  bench.read.resize(bench.block_bytes);
  for (size_t i = 0; i < bench.data.size(); ++i) bench.data[i] = static_cast<std::byte>(i * 7);
  bench.InMemory();
  bench.PlainFiles();
  bench.Store(store->get());
  const auto cleared = ClearPrefixCache(folder);
  return cleared.ok() && cleared->blocks == static_cast<int64_t>(blocks) ? 0 : 1;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  const auto number = [&](int at, int64_t otherwise) {
    return static_cast<size_t>(
        argc > at ? minisgl::ParseNumber<int64_t>(argv[at]).value_or(otherwise) : otherwise);
  };
  if (argc < 2) {
    fmt::print("usage: bench_kv_block_store FOLDER [BLOCK_MIB [BLOCKS]]\n");
    return 64;
  }
  return minisgl::Main(argv[1], number(2, 1), number(3, 256));
}
