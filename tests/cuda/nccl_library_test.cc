// Loading NCCL: each way in which it cannot be used gives one error that says what to do.
#include "nccl_library.h"

#include <gtest/gtest.h>

#include "fake_nccl_fixture.h"
#include "nccl_ranks.h"

namespace minisgl::cuda {
namespace {

using NcclLibraryTest = FakeNcclTest;

constexpr char kRemedy[] =
    "; searched after the loader's folders: /a, /b; install NCCL 2.16.0 or newer (Python's package "
    "nvidia-nccl-cu13 or nvidia-nccl-cu12, or a distribution's libnccl2), put the folder that has "
    "it into LD_LIBRARY_PATH, or leave out all_reduce";

std::string WhyNot(const std::vector<std::string>& names) {
  const auto library = LoadNcclOf({.names = names, .folders = "/a, /b"});
  EXPECT_EQ(library.status().code(), StatusCode::kUsage);
  std::string message = library.status().message();
  EXPECT_TRUE(message.starts_with("all_reduce nccl: NCCL cannot be loaded: ")) << message;
  EXPECT_TRUE(message.ends_with(kRemedy)) << message;
  return message;
}

TEST_F(NcclLibraryTest, TheFirstThatIsOfUseIsTaken) {
  const auto library =
      LoadNcclOf({.names = {"libno-such-library.so.2", MINISGL_FAKE_NCCL_OF_OLD, MINISGL_FAKE_NCCL},
                  .folders = ""});
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_EQ(library->VersionText(), "2.27.3");
  EXPECT_EQ(library->ErrorText(2), "unhandled system error (what went wrong)");
}

TEST_F(NcclLibraryTest, MissingLibrariesAndFunctionsAreNamed) {
  const std::string missing = WhyNot({"libno-such-library.so.2"});
  EXPECT_NE(missing.find("libno-such-library.so.2: cannot open"), std::string::npos) << missing;
  const std::string lacks = WhyNot({MINISGL_FAKE_NCCL_OF_OLD});
  EXPECT_NE(lacks.find("ncclCommAbort"), std::string::npos) << lacks;
}

TEST_F(NcclLibraryTest, AnOldVersionIsRefused) {
  for (const auto& [code, text] : {std::pair{21599, "2.15.99"}, {2804, "2.8.4"}}) {
    nccl_->version = code;
    const std::string message = WhyNot({MINISGL_FAKE_NCCL});
    EXPECT_NE(
        message.find(std::string(MINISGL_FAKE_NCCL) + " is NCCL " + text + ", which is too old"),
        std::string::npos)
        << message;
  }
  nccl_->version = kNcclVersionMin;
  EXPECT_TRUE(LoadFakeNccl().ok());
  nccl_->version_error = 2;
  const std::string message = WhyNot({MINISGL_FAKE_NCCL});
  EXPECT_NE(message.find("unhandled system error"), std::string::npos) << message;
}

TEST_F(NcclLibraryTest, AnErrorOfTheStartIsNcclsOwn) {
  const auto library = LoadFakeNccl();
  ASSERT_TRUE(library.ok()) << library.status().message();
  nccl_->init_error = 2;
  uint32_t alarm = 0;
  EXPECT_EQ(NcclRanks::Make(*library, {0, 1}, 1000, &alarm).status().message(),
            "NCCL 2.27.3 cannot connect the GPUs: unhandled system error (what went wrong); "
            "all_reduce own does without it");
  nccl_->init_error = 0;
  const auto ranks = NcclRanks::Make(*library, {3, 1}, 1000, &alarm);
  ASSERT_TRUE(ranks.ok()) << ranks.status().message();
  EXPECT_EQ(nccl_->devices, (std::vector<int>{3, 1}));
  EXPECT_EQ(nccl_->num_comms, 2);
}

}  // namespace
}  // namespace minisgl::cuda
