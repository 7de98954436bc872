// Files of pictures that rows name: where they may lie, what they may be, how large they may be.
#include "batch/image_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "minisgl/vision/picture.h"
#include "temporary_folder.h"
#include "text/image_test_util.h"

namespace minisgl::batch {
namespace {

// The head of a picture is all that is read of it here.
const std::string kPicture = PngHead(56, 28);

ImageReader ReaderOf(const std::string& folder, const std::string& root = "") {
  load::ImageOptions options;
  options.root = root;
  return ImageReader(options, folder);
}

std::string ErrorOf(const ImageReader& reader, const std::string& path) {
  const Result<ImageFile> file = reader.Read(path);
  EXPECT_FALSE(file.ok()) << path;
  return file.status().message();
}

class ImageReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_.Path("rows/images"));
    folder_.Write("rows/images/a.png", kPicture);
    folder_.Write("outside.png", kPicture);
  }
  std::string Rows() const { return folder_.Path("rows"); }
  void Link(const std::string& to, const std::string& name) const {
    std::filesystem::create_symlink(to, folder_.Path(name));
  }

  TemporaryFolder folder_;
};

TEST_F(ImageReaderTest, PathsAreRelativeToTheRows) {
  const ImageReader reader = ReaderOf(Rows());
  for (const std::string& path :
       {std::string("images/a.png"), folder_.Path("outside.png"), std::string("../outside.png"),
        std::string("images/../images/a.png")}) {
    const Result<ImageFile> file = reader.Read(path);
    ASSERT_TRUE(file.ok()) << path << ": " << file.status().message();
    EXPECT_EQ(*file->bytes, kPicture);
    EXPECT_TRUE(file->path.starts_with('/') && file->path.ends_with(".png")) << file->path;
    EXPECT_EQ(file->path.find(".."), std::string::npos);
  }
  EXPECT_EQ(ErrorOf(reader, "none.png"),
            Rows() + "/none.png: cannot be opened (No such file or directory)");
  EXPECT_EQ(FolderOfRows("dir/rows.jsonl"), "dir");
  EXPECT_EQ(FolderOfRows("rows.jsonl"), "");
  EXPECT_EQ(FolderOfRows("-"), "");
  EXPECT_EQ(FolderOfRows("/dev/fd/63"), "");  // a pipe, as a shell names it
}

TEST_F(ImageReaderTest, AFolderOfPicturesIsNeverLeft) {
  Link(folder_.Path("outside.png"), "rows/images/absolute.png");
  Link("../../outside.png", "rows/images/relative.png");
  Link("..", "rows/images/up");
  Link("../..", "rows/images/far");
  Link(folder_.Path("rows/images/a.png"), "rows/inside.png");
  Link("images", "rows/by_link");
  std::filesystem::create_directories(folder_.Path("rows/images-2"));
  folder_.Write("rows/images-2/b.png", kPicture);
  const ImageReader reader = ReaderOf(Rows(), folder_.Path("rows/images"));
  for (const char* path : {"images/a.png", "images/../images/a.png", "inside.png", "by_link/a.png",
                           "images/up/images/a.png"}) {
    const Result<ImageFile> file = reader.Read(path);
    EXPECT_TRUE(file.ok()) << path << ": " << file.status().message();
  }
  EXPECT_TRUE(reader.Read(folder_.Path("rows/images/a.png")).ok());
  const std::string refused =
      ": is no file in the folder that --image-root allows (" + folder_.Path("rows/images") + ")";
  for (const std::string& path :
       {std::string("images/absolute.png"), std::string("images/relative.png"),
        std::string("images/far/outside.png"), std::string("images/up/images-2/b.png"),
        std::string("images-2/b.png"), std::string("../outside.png"), std::string("images"),
        std::string("none.png"), std::string("images/none.png")}) {
    EXPECT_EQ(ErrorOf(reader, path), Rows() + "/" + path + refused);
  }
  EXPECT_EQ(ErrorOf(reader, folder_.Path("outside.png")), folder_.Path("outside.png") + refused);
  EXPECT_EQ(ErrorOf(reader, "/etc/passwd"), "/etc/passwd" + refused);
  // The folder itself may be named by a link.
  Link("rows/images", "linked");
  EXPECT_TRUE(ReaderOf(Rows(), folder_.Path("linked")).Read("images/a.png").ok());
  EXPECT_FALSE(ReaderOf(Rows(), folder_.Path("none")).Read("images/a.png").ok());
  // Pictures of the command line may be anywhere, from the working directory on.
  RowImage users;
  users.path = folder_.Path("outside.png");
  users.is_users = true;
  EXPECT_TRUE(reader.Take(users, TextModel()).ok());
}

TEST_F(ImageReaderTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(mkfifo(folder_.Path("rows/fifo").c_str(), 0600), 0);
  for (const std::string& root : {std::string(), folder_.Path("rows")}) {
    const ImageReader reader = ReaderOf(Rows(), root);
    EXPECT_EQ(ErrorOf(reader, "fifo"),
              Rows() + "/fifo: is a device or a pipe, not a file of a picture");
    EXPECT_EQ(ErrorOf(reader, "images"), Rows() + "/images: is a folder, not a file of a picture");
  }
  EXPECT_EQ(ErrorOf(ReaderOf(""), "/dev/zero"),
            "/dev/zero: is a device or a pipe, not a file of a picture");
  EXPECT_EQ(ErrorOf(ReaderOf(""), "/dev/tty"),
            "/dev/tty: is a device or a pipe, not a file of a picture");
}

TEST_F(ImageReaderTest, SizesAreCheckedBeforeBytesAreRead) {
  const std::string huge = folder_.Write("huge.png", kPicture);
  ASSERT_EQ(truncate(huge.c_str(), off_t{1} << 40), 0);  // sparse
  EXPECT_EQ(ErrorOf(ReaderOf(""), huge),
            huge + ": has 1099511627776 bytes, and a picture may have 67108864");
  const std::string wide = folder_.Write("wide.png", PngHead(50000, 50000));
  EXPECT_NE(ErrorOf(ReaderOf(""), wide).find("50000"), std::string::npos);
  load::ImageOptions options;
  options.pixels_max = 56 * 28;
  const std::string small = folder_.Path("rows/images/a.png");
  EXPECT_TRUE(ImageReader(options, "").Read(small).ok());
  options.pixels_max = 56 * 28 - 1;
  EXPECT_TRUE(ErrorOf(ImageReader(options, ""), small).starts_with(small + ": "));
  EXPECT_TRUE(ErrorOf(ReaderOf(""), folder_.Write("empty", "")).starts_with(folder_.Path("empty")));
  EXPECT_TRUE(ErrorOf(ReaderOf(""), "/etc/passwd").starts_with("/etc/passwd: "));
  // A file of the kernel has no size.
  EXPECT_FALSE(ReaderOf("").Read("/proc/self/environ").ok());
}

TEST_F(ImageReaderTest, APictureOfManyRowsIsInMemoryOnce) {
  const ImageReader reader = ReaderOf(Rows());
  const auto first = reader.Read("images/a.png");
  std::filesystem::create_hard_link(folder_.Path("rows/images/a.png"), folder_.Path("rows/b.png"));
  const auto touched = reader.Read("images/a.png");
  const auto same = reader.Read("b.png");
  ASSERT_TRUE(first.ok() && touched.ok() && same.ok());
  EXPECT_EQ(touched->bytes, same->bytes);
  // A file that was replaced is read again.
  folder_.Write("rows/images/new", PngHead(28, 28));
  std::filesystem::rename(folder_.Path("rows/images/new"), folder_.Path("rows/images/a.png"));
  const auto other = reader.Read("images/a.png");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(*other->bytes, PngHead(28, 28));
}

TEST_F(ImageReaderTest, DetailAndOptionsBoundTheTokens) {
  const TextModel text = SmallQwen();  // 28 pixels a side are a token, at most 100
  load::ImageOptions options;
  RowImage image;
  image.name = "a data: URI of 33 bytes";
  image.bytes = std::make_shared<const std::string>(PngHead(280, 280));
  const auto bounds = [&] {
    const auto taken = ImageReader(options, "").Take(image, text);
    EXPECT_TRUE(taken.ok()) << taken.status().message();
    return taken.ok() ? std::pair(taken->tokens_min, taken->tokens_max)
                      : std::pair<std::optional<int32_t>, std::optional<int32_t>>();
  };
  using Bounds = std::pair<std::optional<int32_t>, std::optional<int32_t>>;
  EXPECT_EQ(bounds(), Bounds(std::nullopt, std::nullopt));
  image.detail = ImageDetail::kHigh;
  EXPECT_EQ(bounds(), Bounds(std::nullopt, std::nullopt));
  image.detail = ImageDetail::kLow;
  EXPECT_EQ(bounds(), Bounds(std::nullopt, 70));
  options.tokens_max = 20;
  EXPECT_EQ(bounds(), Bounds(std::nullopt, 20));
  options.tokens_max.reset();
  options.tokens_min = 90;
  EXPECT_EQ(bounds(), Bounds(90, 90));
  options.background = Background::kWhite;
  EXPECT_EQ(ImageReader(options, "").Take(image, text)->background, Background::kWhite);
  // A side of more than 200 times the other one is no picture of the model.
  image.bytes = std::make_shared<const std::string>(PngHead(2010, 10));
  const auto thin = ImageReader(options, "").Take(image, text);
  ASSERT_FALSE(thin.ok());
  EXPECT_TRUE(thin.status().message().starts_with("a data: URI of 33 bytes: "))
      << thin.status().message();
}

TEST_F(ImageReaderTest, APictureIsKnownByItsBytes) {
  EXPECT_TRUE(IsPicture(kPicture));
  EXPECT_TRUE(IsPicture(PngHead(1, 60000)));
  EXPECT_FALSE(IsPicture("# a text"));
  EXPECT_FALSE(IsPicture(""));
}

}  // namespace
}  // namespace minisgl::batch
