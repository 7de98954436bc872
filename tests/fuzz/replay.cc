// Runs a fuzz target without libFuzzer: every file of its corpus unchanged, then mutations of them
// from a fixed seed. Each target is linked with this file.
//   $MINISGL_FUZZ_CORPUS  the folder of the corpus (default: by the program's name, fuzz_NAME)
//   $MINISGL_FUZZ_RUNS    the number of mutations
#include <gtest/gtest.h>

#include <errno.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

std::vector<Bytes> ReadCorpus() {
  const char* named = std::getenv("MINISGL_FUZZ_CORPUS");
  const std::string program = program_invocation_short_name;
  const std::string folder =
      named != nullptr ? named : MINISGL_SOURCE_DIR "/tests/fuzz/corpus/" + program.substr(5);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

Bytes Mutate(Bytes bytes, std::mt19937* random) {
  const auto below = [&](size_t limit) { return limit == 0 ? 0 : (*random)() % limit; };
  for (size_t edits = 1 + below(4); edits > 0; --edits) {
    const auto at = static_cast<std::ptrdiff_t>(below(bytes.size() + 1));
    switch (below(5)) {
      case 0:
        bytes.insert(bytes.begin() + at, static_cast<uint8_t>((*random)()));
        break;
      case 1:
        if (!bytes.empty()) bytes[below(bytes.size())] = static_cast<uint8_t>((*random)());
        break;
      case 2:
        if (!bytes.empty()) bytes[below(bytes.size())] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 3:
        bytes.resize(static_cast<size_t>(at));
        break;
      default: {
        const Bytes copy(bytes.begin(),
                         bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size() + 1)));
        if (bytes.size() + copy.size() < 100000)
          bytes.insert(bytes.begin() + at, copy.begin(), copy.end());
      }
    }
  }
  return bytes;
}

TEST(FuzzReplayTest, TheCorpusIsHarmless) {
  const auto corpus = ReadCorpus();
  ASSERT_FALSE(corpus.empty());
  for (const Bytes& bytes : corpus)
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
}

TEST(FuzzReplayTest, MutationsOfTheCorpusAreHarmless) {
  const char* wanted = std::getenv("MINISGL_FUZZ_RUNS");
  const long runs = wanted != nullptr ? std::strtol(wanted, nullptr, 10) : 500;
  const auto corpus = ReadCorpus();
  ASSERT_FALSE(corpus.empty());
  std::mt19937 random(2026);
  for (long run = 0; run < runs; ++run) {
    const Bytes bytes = Mutate(corpus[random() % corpus.size()], &random);
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
  }
}

}  // namespace
