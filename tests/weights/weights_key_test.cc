// The hash that packed weights are kept under: of all bytes, and remembered only while nothing can
// have changed.
#include "minisgl/weights/weights_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/base/log.h"
#include "temporary_folder.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDataBytes = size_t{3} << 20;

class WeightsKeyTest : public testing::Test {
 protected:
  WeightsKeyTest() {
    SetLogSink([this](LogLevel level, const std::string& line) {
      if (line.find("bytes of weights hashed") != std::string::npos) ++num_hashed_;
      if (level == LogLevel::kWarning) warnings_.push_back(line);
    });
  }
  ~WeightsKeyTest() override { SetLogSink(nullptr); }

  // A model directory with one tensor, all zeros except a one at `place`.
  std::string Model(const std::string& name, size_t place) const {
    const std::string dir = folder_.Path(name);
    fs::create_directory(dir);
    const std::string header = "{\"t\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(kDataBytes) +
                               "],\"data_offsets\":[0," + std::to_string(kDataBytes) + "]}}";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    bytes += header + std::string(kDataBytes, '\0');
    bytes[8 + header.size() + place] = 1;
    std::ofstream(dir + "/model.safetensors", std::ios::binary) << bytes;
    return dir;
  }
  std::string Hash(const std::string& model, int num_threads = 2) {
    const auto checkpoint = Checkpoint::Open(model);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto cache = TrustedFolder::Open(folder_.Path("cache"));
    EXPECT_TRUE(cache.ok()) << cache.status().message();
    return HashWeights(**checkpoint, *cache, num_threads);
  }
  static void WaitUntilOld() { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); }
  std::string OnlyRemembered() const {
    std::string path;
    for (const auto& entry : fs::directory_iterator(folder_.Path("cache"))) path = entry.path();
    return path;
  }

  TemporaryFolder folder_;
  int num_hashed_ = 0;
  std::vector<std::string> warnings_;
};

// Name, size, header and time of change agree; one byte in three million does not.
TEST_F(WeightsKeyTest, ModelsThatDifferInOneByteHaveOtherKeys) {
  const std::string first = Model("first", 1'234'567), second = Model("second", 1'234'568);
  fs::last_write_time(second + "/model.safetensors",
                      fs::last_write_time(first + "/model.safetensors"));
  EXPECT_EQ(Hash(first).size(), 64u);
  EXPECT_NE(Hash(first), Hash(second));
}

TEST_F(WeightsKeyTest, NeitherThePlaceNorThreadsMatter) {
  const std::string model = Model("model", 5), copy = Model("copy", 5);
  EXPECT_EQ(Hash(model, 1), Hash(copy, 3));
}

TEST_F(WeightsKeyTest, AFileThatWasJustChangedIsHashedEachTime) {
  // Once more if the machine was so busy that the file is no longer new.
  auto taken = std::chrono::steady_clock::duration::max();
  while (taken > std::chrono::milliseconds(1900)) {
    fs::remove_all(folder_.Path("cache"));
    num_hashed_ = 0;
    const auto begin = std::chrono::steady_clock::now();
    const std::string model = Model("model", 5);
    const std::string hash = Hash(model);
    EXPECT_EQ(Hash(model), hash);
    taken = std::chrono::steady_clock::now() - begin;
  }
  EXPECT_EQ(num_hashed_, 2);
  EXPECT_TRUE(fs::is_empty(folder_.Path("cache")));
}

// A file older than two seconds, as most models are, is read once. (On a file system whose times
// prove nothing it is hashed each time, as above.)
TEST_F(WeightsKeyTest, TheHashOfAnOldFileIsRememberedUntilItChanges) {
  const std::string model = Model("model", 5), path = model + "/model.safetensors";
  const auto written = fs::last_write_time(path);
  WaitUntilOld();
  const std::string hash = Hash(model);
  if (fs::is_empty(folder_.Path("cache"))) GTEST_SKIP() << "file system of unknown times";
  EXPECT_EQ(Hash(model), hash);
  EXPECT_EQ(num_hashed_, 1);
  // Other bytes with the time of the old ones.
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(1'000'000) << "x";
  fs::last_write_time(path, written);
  EXPECT_NE(Hash(model), hash);
  EXPECT_EQ(num_hashed_, 2);
}

TEST_F(WeightsKeyTest, WhatIsRememberedWrongIsNotBelieved) {
  const std::string model = Model("model", 5);
  ASSERT_EQ(chmod((model + "/model.safetensors").c_str(), 0640), 0);
  WaitUntilOld();
  const std::string hash = Hash(model);
  const std::string remembered = OnlyRemembered();
  if (remembered.empty()) GTEST_SKIP() << "file system of unknown times";
  struct stat info {};
  ASSERT_EQ(stat(remembered.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  for (const std::streamoff place : {0, 30, 70, 150}) {
    std::fstream(remembered, std::ios::in | std::ios::out | std::ios::binary).seekp(place) << "?";
    EXPECT_EQ(Hash(model), hash) << place;
  }
  fs::resize_file(remembered, 40);
  EXPECT_EQ(Hash(model), hash);
  EXPECT_EQ(num_hashed_, 6);
  EXPECT_TRUE(warnings_.empty());
  ASSERT_EQ(chmod(remembered.c_str(), 0666), 0);
  EXPECT_EQ(Hash(model), hash);
  EXPECT_EQ(num_hashed_, 7);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("may be written by others"), std::string::npos) << warnings_[0];
}

}  // namespace
}  // namespace minisgl
