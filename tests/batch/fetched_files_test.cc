// Files that rows name by URLs: what is fetched, and how often; and when the reader of pictures
// does.
#include "batch/fetched_files.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "batch/image_reader.h"
#include "batch/row_images.h"

namespace minisgl::batch {
namespace {

TEST(FetchedFilesTest, AUrlIsFetchedOnceByAllThreads) {
  FetchedFiles files(10, 1000);
  std::atomic<int> num_fetched = 0;
  const auto fetch = [&num_fetched](const std::string& url) -> Result<std::string> {
    ++num_fetched;
    if (url == "bad") return BadInput("no such file");
    return "bytes of " + url;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto good = files.Get("good", fetch);
      ASSERT_TRUE(good.ok());
      EXPECT_EQ(**good, "bytes of good");
      EXPECT_EQ(files.Get("bad", fetch).status().message(), "no such file");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_fetched, 2);
}

TEST(FetchedFilesTest, TheOldestMakeRoom) {
  int num_fetched = 0;
  const auto fetch = [&num_fetched](const std::string& url) -> Result<std::string> {
    ++num_fetched;
    return std::string(url == "large" ? 200 : 40, 'x');
  };
  FetchedFiles by_count(2, 1000), by_bytes(10, 100);
  for (FetchedFiles* files : {&by_count, &by_bytes}) {
    num_fetched = 0;
    for (const char* url : {"a", "b", "a", "c", "a"}) ASSERT_TRUE(files->Get(url, fetch).ok());
    EXPECT_EQ(num_fetched, 3) << "a is used again before c comes";
    ASSERT_TRUE(files->Get("b", fetch).ok());
    EXPECT_EQ(num_fetched, 4);
  }
  ASSERT_TRUE(by_bytes.Get("large", fetch).ok());
  ASSERT_TRUE(by_bytes.Get("large", fetch).ok());
  EXPECT_EQ(num_fetched, 6) << "larger than all that is kept";
}

TEST(FetchedFilesTest, PicturesOfTheNetworkAreFetchedIfThatIsWanted) {
  const RowImage picture = *ImageNamed("HTTPS://example.org/a.png");
  EXPECT_EQ(picture.url, "HTTPS://example.org/a.png");
  EXPECT_EQ(picture.path, "");
  EXPECT_EQ(ImageOfUser("http://example.org/a").url, "http://example.org/a");
  EXPECT_EQ(ImageOfUser("https.png").path, "https.png");
  EXPECT_EQ(ImageNamed("http://" + std::string(9000, 'a')).status().message(),
            "names a picture by a URL of 9007 bytes, and one has at most 8192");
  load::ImageOptions options;
  std::vector<bool> is_public_only;
  options.fetch = [&](const std::string&, uint64_t, bool is_public) -> Result<std::string> {
    is_public_only.push_back(is_public);
    return std::string("no picture");
  };
  const TextModel text;
  EXPECT_EQ(ImageReader(options, "").Take(picture, text).status().message(),
            "HTTPS://example.org/a.png: is a picture of the network; give --fetch-images to have "
            "it fetched, or download it and name the file");
  EXPECT_TRUE(is_public_only.empty());
  options.fetches = true;
  EXPECT_NE(ImageReader(options, "")
                .Take(picture, text)
                .status()
                .message()
                .find("HTTPS://example.org/a.png: "),
            std::string::npos);
  options.fetches_private = true;
  EXPECT_FALSE(ImageReader(options, "").Take(picture, text).ok());
  EXPECT_EQ(is_public_only, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace minisgl::batch
