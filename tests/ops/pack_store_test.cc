// Packed matrices in a file: the second start reads the matrices that the first one packed. Any
// error in a file is detected before its bytes are used, and the file is rewritten.
#include "cpu/pack_store.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "minisgl/base/log.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

namespace fs = std::filesystem;

class PackStoreTest : public testing::Test {
 protected:
  PackStoreTest() {
    std::string name = (fs::temp_directory_path() / "minisgl-pack-XXXXXX").string();
    dir_ = mkdtemp(name.data());
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = std::sin(static_cast<float>(i));
    SetLogSink([this](LogLevel level, const std::string& line) {
      if (level == LogLevel::kWarning) warnings_.push_back(line);
    });
  }
  ~PackStoreTest() override {
    SetLogSink(nullptr);
    fs::remove_all(dir_);
  }

  WeightTensor Matrix(size_t first, int64_t num_out, int64_t num_in) const {
    return TensorView{
        reinterpret_cast<const std::byte*>(values_.data() + first), DType::kF32, {num_out, num_in}};
  }

  struct Start {
    int64_t num_found, num_packed;
    bool had_matrices;  // when the file was opened
  };
  // One process: loads matrices of three shapes and two formats, then ends loading. Checks the
  // matrices, whether they were found or packed.
  Start Run(const std::string& source = "model", size_t shift = 0) {
    PackStore store((dir_ / "cache").string(), {.key = source, .is_public = is_public_});
    const bool had_matrices = store.has_matrices();
    ThreadPool pool(2);
    const WeightFormat int8 = {DType::kBF16, Quantization::kInt8};
    const std::pair<WeightTensor, WeightFormat> wanted[] = {
        {Matrix(shift, 40, 70), DType::kBF16},
        {Matrix(5000, 300, 300), DType::kF32},
        {Matrix(100, 17, 64), int8},
    };
    std::vector<PackedMatrix> found;
    for (const auto& [view, format] : wanted) {
      auto matrix = FindOrPack({&view, 1}, format, CodeOrder::kQuads, &store, &pool);
      EXPECT_TRUE(matrix.ok());
      found.push_back(std::move(matrix).value());
    }
    store.Finish();
    path_ = store.path();
    for (size_t i = 0; i < found.size(); ++i) {
      const auto& [view, format] = wanted[i];
      const auto packed = PackParts({&view, 1}, format, CodeOrder::kQuads, &pool);
      EXPECT_EQ(std::memcmp(BytesOf(*packed), BytesOf(found[i]), packed->num_bytes()), 0) << i;
    }
    return {store.num_found(), store.num_packed(), had_matrices};
  }
  void ExpectAllFound(const std::string& source = "model") {
    const Start start = Run(source);
    EXPECT_EQ(start.num_found, 3);
    EXPECT_EQ(start.num_packed, 0);
    EXPECT_TRUE(start.had_matrices);
  }

  static const void* BytesOf(const PackedMatrix& matrix) {
    return matrix.coded != nullptr ? matrix.coded->data.get() : matrix.data.get();
  }
  std::string ReadAll() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void WriteAll(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path dir_;
  std::string path_;
  std::vector<float> values_ = std::vector<float>(100'000);
  std::vector<std::string> warnings_;
  bool is_public_ = false;
};

TEST_F(PackStoreTest, TheSecondStartPacksNothing) {
  const Start first = Run();
  EXPECT_FALSE(first.had_matrices);
  EXPECT_EQ(first.num_found, 0);
  EXPECT_EQ(first.num_packed, 3);
  ExpectAllFound();
  const auto written = fs::last_write_time(path_);
  ExpectAllFound();
  EXPECT_EQ(fs::last_write_time(path_), written) << "a file that is right is left alone";
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "cache"), {}), 1) << "nothing else is left";
}

// The codes of int4, which take long to find. Their parts are stacked.
TEST_F(PackStoreTest, TheSecondStartReadsTheCodesOfInt4) {
  const WeightTensor parts[] = {Matrix(0, 20, 70), Matrix(7000, 13, 70)};
  const WeightFormat format = {DType::kBF16, Quantization::kInt4};
  ThreadPool pool(2);
  const auto packed = PackParts(parts, format, CodeOrder::kWords, &pool);
  ASSERT_TRUE(packed.ok());
  for (const int64_t num_found : {0, 1}) {
    PackStore store((dir_ / "cache").string(), {.key = "model", .is_public = false});
    const auto found = FindOrPack(parts, format, CodeOrder::kWords, &store, &pool);
    store.Finish();
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(store.num_found(), num_found);
    EXPECT_EQ(found->format, format);
    EXPECT_EQ(found->num_out, 33);
    ASSERT_NE(found->coded, nullptr);
    std::vector<float> row(70), expected(70);
    for (int64_t out = 0; out < 33; ++out) {
      found->ReadRow(out, row.data());
      packed->ReadRow(out, expected.data());
      EXPECT_EQ(row, expected) << out;
    }
  }
}

TEST_F(PackStoreTest, AnotherModelHasAFileOfItsOwn) {
  Run("a");
  const std::string a = path_;
  EXPECT_EQ(Run("b").num_packed, 3);
  EXPECT_NE(path_, a);
  ExpectAllFound("a");
  ExpectAllFound("b");
}

// The source has the same key but other bytes: its samples reveal it, and the file is rewritten.
TEST_F(PackStoreTest, OtherWeightsAreNotTakenForTheModels) {
  Run();
  const Start other = Run("model", 9000);
  EXPECT_EQ(other.num_found, 0);
  EXPECT_EQ(other.num_packed, 3);
  const Start again = Run("model", 9000);
  EXPECT_EQ(again.num_found, 3);
}

TEST_F(PackStoreTest, MatricesBeforeADamagedOneAreKept) {
  Run();
  std::string bytes = ReadAll();
  // The second matrix: 300 x 300 floats from its page on.
  const size_t second = 4096 + (48 * 70 * 2 + 4095) / 4096 * 4096;
  bytes[second + 3] ^= 1;
  WriteAll(bytes);
  const Start start = Run();
  EXPECT_EQ(start.num_found, 1);
  EXPECT_EQ(start.num_packed, 2);
  ExpectAllFound();
}

// Damage to any byte of the header or the table, or to bytes all over the matrices, means packing.
TEST_F(PackStoreTest, DamageOfAnyByteIsFound) {
  Run();
  const std::string right = ReadAll();
  std::vector<size_t> places;
  for (size_t i = 0; i < 64; ++i) places.push_back(i);
  for (size_t i = right.size() - 3 * 32; i < right.size(); ++i) places.push_back(i);
  // The matrix of 300 x 300 floats, whose panels are padded to 304 outputs.
  constexpr size_t kBegin = 4096 + 2 * 4096, kEnd = kBegin + 304 * 300 * 4;
  for (size_t i = kBegin; i < kEnd; i += 9973) places.push_back(i);
  places.push_back(kEnd - 1);
  for (const size_t place : places) {
    std::string bytes = right;
    bytes[place] ^= 0x10;
    WriteAll(bytes);
    const Start start = Run();
    EXPECT_GT(start.num_packed, 0) << "byte " << place;
    EXPECT_TRUE(ReadAll() == right) << "byte " << place << " is not mended";
  }
}

TEST_F(PackStoreTest, AFileOfWrongLengthIsRewritten) {
  Run();
  const std::string right = ReadAll();
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{4095}, size_t{4096}, right.size() / 2,
        right.size() - 33, right.size() - 32, right.size() - 1}) {
    WriteAll(right.substr(0, length));
    EXPECT_EQ(Run().num_packed, 3) << length;
    EXPECT_TRUE(ReadAll() == right) << length;
  }
  WriteAll(right + "x");
  EXPECT_EQ(Run().num_packed, 3);
  WriteAll(std::string(right.size(), '\0'));
  EXPECT_EQ(Run().num_packed, 3);
  ExpectAllFound();
}

// A header with a valid hash and wrong numbers, at and past every limit. The test computes the hash
// as the file format does.
uint64_t Hash(const std::string& bytes) {
  uint64_t hash = 0;
  const auto add = [&hash](uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  };
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    add(word);
  }
  add(bytes.size());
  return hash;
}

TEST_F(PackStoreTest, HostileNumbersAreRefusedWithoutACrash) {
  Run();
  const std::string right = ReadAll();
  const size_t table = right.size() - 3 * 32;
  const uint64_t kHostile[] = {0,
                               1,
                               4095,
                               4097,
                               1 << 20,
                               right.size(),
                               right.size() + 4096,
                               UINT64_MAX,
                               UINT64_MAX - 4095,
                               uint64_t{1} << 63};
  const auto put = [](std::string* bytes, size_t at, uint64_t value) {
    std::memcpy(bytes->data() + at, &value, sizeof(value));
  };
  // Fields of the header, and of each entry the offset and the size.
  std::vector<size_t> places = {24, 32, 48};
  for (size_t entry = 0; entry < 3; ++entry) {
    places.push_back(table + entry * 32 + 8);
    places.push_back(table + entry * 32 + 16);
  }
  for (const size_t place : places) {
    for (const uint64_t value : kHostile) {
      std::string bytes = right;
      put(&bytes, place, value);
      if (bytes == right) continue;
      put(&bytes, 40, Hash(bytes.substr(table)));
      put(&bytes, 56, Hash(bytes.substr(0, 56)));
      WriteAll(bytes);
      EXPECT_GT(Run().num_packed, 0) << value << " at " << place;
    }
  }
  // The test's hash is the format's: an unchanged file with rewritten hashes is accepted.
  std::string same = right;
  put(&same, 40, Hash(same.substr(table)));
  put(&same, 56, Hash(same.substr(0, 56)));
  WriteAll(same);
  ExpectAllFound();
}

TEST_F(PackStoreTest, ADirectoryThatCannotBeWrittenIsAWarning) {
  std::ofstream(dir_ / "cache") << "a file, not a directory";
  EXPECT_EQ(Run().num_packed, 3);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("pack_cache: "), std::string::npos) << warnings_[0];
}

// A user with write access to the file or the folder could choose the weights.
TEST_F(PackStoreTest, AFileThatOthersMayWriteIsRewrittenUnread) {
  Run();
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_EQ(Run().num_packed, 3);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("may be written by others"), std::string::npos) << warnings_[0];
  ExpectAllFound();
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(PackStoreTest, AFolderThatOthersMayWriteIsNotUsed) {
  Run();
  const std::string right = ReadAll();
  ASSERT_EQ(chmod((dir_ / "cache").c_str(), 0777), 0);
  WriteAll("forged");
  EXPECT_EQ(Run().num_packed, 3);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("may be written by others"), std::string::npos) << warnings_[0];
  path_ = (dir_ / "cache").string();
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) path_ = entry.path();
  EXPECT_EQ(ReadAll(), "forged") << "nothing is kept there";
}

TEST_F(PackStoreTest, AnotherUsersFileIsNotRead) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to other users";
  Run();
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(Run().num_packed, 3);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("belongs to another user"), std::string::npos) << warnings_[0];
  ExpectAllFound();
}

// The bytes that were checked are used, however the file changes afterwards.
TEST_F(PackStoreTest, ALaterChangeOfTheFileHasNoEffect) {
  Run();
  const WeightTensor view = Matrix(0, 40, 70);
  PackStore store((dir_ / "cache").string(), {.key = "model"});
  ThreadPool pool(2);
  const auto matrix = FindOrPack({&view, 1}, DType::kBF16, CodeOrder::kWords, &store, &pool);
  ASSERT_TRUE(matrix.ok());
  ASSERT_EQ(store.num_found(), 1);
  const auto right = PackParts({&view, 1}, DType::kBF16, CodeOrder::kWords, &pool);
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary)
      << std::string(fs::file_size(path_), 'x');
  EXPECT_EQ(std::memcmp(right->data.get(), matrix->data.get(), right->num_bytes()), 0);
  fs::resize_file(path_, 0);
  EXPECT_EQ(std::memcmp(right->data.get(), matrix->data.get(), right->num_bytes()), 0);
}

TEST_F(PackStoreTest, AFileIsAsPrivateAsTheModel) {
  const auto mode = [this] {
    struct stat info {};
    EXPECT_EQ(stat(path_.c_str(), &info), 0);
    return info.st_mode & 07777;
  };
  const mode_t old_umask = umask(022);
  Run();
  EXPECT_EQ(mode(), 0600u);
  is_public_ = true;
  Run("public");
  EXPECT_EQ(mode(), 0644u);
  umask(old_umask);
}

// The model's files changed after the key was computed.
TEST_F(PackStoreTest, WeightsThatChangedWhileTheyWerePackedAreNotKept) {
  const WeightTensor view = Matrix(0, 40, 70);
  ThreadPool pool(1);
  {
    PackStore store((dir_ / "cache").string(), {.key = "model", .holds = [] { return false; }});
    ASSERT_TRUE(FindOrPack({&view, 1}, DType::kBF16, CodeOrder::kWords, &store, &pool).ok());
    store.Finish();
  }
  EXPECT_TRUE(fs::is_empty(dir_ / "cache"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("changed meanwhile"), std::string::npos) << warnings_[0];
}

// Weights of int8 for tiles of bf16 are in lines, those for products of integers in quads: each has
// a file of its own, which stays when a start of the other kind follows.
TEST_F(PackStoreTest, FormsOfInt8HaveFilesOfTheirOwn) {
  const WeightFormat int8(DType::kBF16, Quantization::kInt8);
  const WeightTensor view = Matrix(0, 40, 136);
  ThreadPool pool(2);
  for (const int64_t num_found : {0, 1, 1}) {
    for (const CodeOrder order : {CodeOrder::kQuads, CodeOrder::kLines}) {
      PackStore store((dir_ / "cache").string(), {.key = "model", .format = int8}, order);
      const auto matrix = FindOrPack({&view, 1}, int8, order, &store, &pool);
      ASSERT_TRUE(matrix.ok());
      EXPECT_EQ(store.num_found(), num_found);
      EXPECT_EQ(matrix->coded->order, order);
      const auto packed = PackParts({&view, 1}, int8, order, &pool);
      std::vector<float> found(136), wanted(136);
      for (int64_t out = 0; out < 40; ++out) {
        matrix->ReadRow(out, found.data());
        packed->ReadRow(out, wanted.data());
        EXPECT_EQ(found, wanted);
      }
      store.Finish();
    }
  }
  const auto files = fs::directory_iterator(dir_ / "cache");
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

// One file that names both, as if they had one: a matrix of the other form is not the wanted one.
TEST_F(PackStoreTest, AMatrixOfAnotherFormIsPackedAnew) {
  const WeightFormat int8(DType::kBF16, Quantization::kInt8);
  const WeightTensor view = Matrix(0, 48, 128);
  ThreadPool pool(1);
  for (const CodeOrder order : {CodeOrder::kQuads, CodeOrder::kLines}) {
    PackStore store((dir_ / "cache").string(), {.key = "model"});
    const auto matrix = FindOrPack({&view, 1}, int8, order, &store, &pool);
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ(store.num_packed(), 1);
    EXPECT_EQ(matrix->num_bytes(), size_t{48} * (128 + 4 * 2)) << "of one size in both forms";
    store.Finish();
  }
}

// A limit on file sizes simulates a full disk.
TEST_F(PackStoreTest, AFullDiskIsAWarningAndLeavesNoFile) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {200'000, 200'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Start start = Run();
    const bool is_empty = fs::is_empty(dir_ / "cache");
    _exit(start.num_packed == 3 && warnings_.size() == 1 && is_empty ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The process is killed at some moment of writing: the next start finds or packs the right
// matrices, and temporary files are removed when they are old.
TEST_F(PackStoreTest, AProcessKilledWhileWritingLeavesNoWrongFile) {
  fs::create_directory(dir_ / "cache");
  for (int delay_us = 0; delay_us < 3000; delay_us += 300) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Run();
      _exit(0);
    }
    usleep(static_cast<useconds_t>(delay_us));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    Run();
    fs::remove(path_);
  }
  const fs::path left = dir_ / "cache" / ("." + fs::path(path_).filename().string() + ".1.2.tmp");
  std::ofstream(left) << "half";
  Run();
  EXPECT_TRUE(fs::exists(left)) << "it may be in the making";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(1));
  fs::remove(path_);
  Run();
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(PackStoreTest, TwoProcessesAtOnceAreBothRight) {
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Run();
      _exit(HasFailure() ? 1 : 0);
    }
    Run();
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ExpectAllFound();
    fs::remove(path_);
  }
}

}  // namespace
}  // namespace minisgl::cpu
