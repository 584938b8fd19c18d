#include "model/files/model_dir.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "model/files/safetensors.h"
#include "model/heads/draft_kind.h"
#include "model/test_model.h"

namespace talon {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPointer =
    "version https://git-lfs.example/spec/v1\noid sha256:4d7a\nsize 4976698672\n";

class ModelDirTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return dir_.path() + "/" + name; }
  std::string Write(const std::string& name, const std::string& contents = "{}") const {
    EXPECT_TRUE(WriteFile(Path(name), contents).ok());
    return Path(name);
  }
  static void ExpectSays(const Status& status, const std::vector<std::string>& parts) {
    EXPECT_FALSE(status.ok());
    for (const std::string& part : parts) {
      EXPECT_NE(status.message().find(part), std::string::npos)
          << "no '" << part << "' in: " << status.message();
    }
  }

  TempDirectory dir_;
};

TEST_F(ModelDirTest, NamesOfTheHubGetTheCommandThatFetchesThem) {
  ExpectSays(CheckModelDir("meta-llama/Llama-3.1-8B"),
             {"no such directory", "hf download meta-llama/Llama-3.1-8B --local-dir Llama-3.1-8B"});
  for (const char* name : {"hf:owner/model", "https://hub.example/owner/model"}) {
    ExpectSays(CheckModelDir(name), {name, "hf download owner/model --local-dir model"});
  }
  fs::create_directory(Path("models"));
  const fs::path here = fs::current_path();
  fs::current_path(dir_.path());
  EXPECT_EQ(CheckModelDir("models/tinny").message(), "models/tinny: no such directory")
      << "a mistyped path is not a name of the hub";
  fs::current_path(here);
  for (const char* path : {"/no/such", "no such/model", "../x", "a/b/c", "plain", "owner/"}) {
    EXPECT_EQ(CheckModelDir(path).message(), std::string(path) + ": no such directory");
  }
}

TEST_F(ModelDirTest, FilesOfOtherFormatsAreNamed) {
  ExpectSays(CheckModelDir(Write("m.gguf", "GGUF....")), {"m.gguf", "GGUF file", "hf download"});
  ExpectSays(CheckModelDir(Write("blob", "GGUF....")), {"GGUF file"});
  ExpectSays(CheckModelDir(dir_.path()), {"m.gguf", "GGUF file"});
  for (const char* name : {"pytorch_model.bin", "consolidated.00.pth"}) {
    ExpectSays(CheckModelDir(Write(name)),
               {name, "python3 -c", "save_pretrained", "give the directory: " + dir_.path()});
  }
  ExpectSays(CheckModelDir(Write("model.safetensors")), {"give its directory: " + dir_.path()});
}

TEST_F(ModelDirTest, MetasOwnFormatIsNamed) {
  Write("params.json");
  ExpectSays(CheckModelDir(dir_.path()), {"params.json", "another format"});
}

TEST_F(ModelDirTest, LinksThatLeadNowhereNameTheirTarget) {
  fs::create_symlink("/no/such/place", Path("link"));
  ExpectSays(CheckModelDir(Path("link")), {"symbolic link to '/no/such/place'"});
  fs::create_symlink("../../blobs/17", Path("config.json"));
  ExpectSays(CheckModelDir(dir_.path()), {"config.json", "symbolic link to '../../blobs/17'"});
  fs::create_symlink("../../blobs/18", Path("model.safetensors"));
  ExpectSays(SafetensorsReader::OpenDirectory(dir_.path()).status(),
             {"model.safetensors", "'../../blobs/18'", "fetch the model again"});
  fs::create_symlink("../../blobs/19", Path("tokenizer.json"));
  ExpectSays(MissingTokenizer(dir_.path()), {"tokenizer.json", "'../../blobs/19'"});
}

TEST_F(ModelDirTest, AModelBelowIsSuggested) {
  fs::create_directories(Path("snapshots/0a1b"));
  Write("snapshots/0a1b/config.json");
  ExpectSays(CheckModelDir(dir_.path()), {"did you mean " + Path("snapshots/0a1b") + "?"});
}

TEST_F(ModelDirTest, DirectoriesThatCannotBeReadSaySo) {
  fs::permissions(dir_.path(), fs::perms::none);
  const uid_t user = geteuid();
  constexpr uid_t kOtherUser = 65534;  // root may read everything
  if (user == 0) {
    ASSERT_EQ(seteuid(kOtherUser), 0);
  }
  ExpectSays(CheckModelDir(dir_.path()), {"cannot read the directory", "Permission denied"});
  ExpectSays(CheckModelDir(Path("below")), {"Permission denied"});
  if (user == 0) {
    ASSERT_EQ(seteuid(0), 0);
  }
  fs::permissions(dir_.path(), fs::perms::owner_all);
}

TEST_F(ModelDirTest, PointersOfGitLfsSayHowToFetchTheFile) {
  const std::string pull = "git -C " + dir_.path() + " lfs pull";
  Write("config.json", kPointer);
  ExpectSays(CheckModelDir(dir_.path()), {"config.json", "git-lfs pointer", pull});
  Write("model.safetensors", kPointer);
  ExpectSays(SafetensorsReader::OpenDirectory(dir_.path()).status(),
             {"model.safetensors", "git-lfs pointer", pull});
  EXPECT_FALSE(CheckFetched(Path("config.json")).ok());
  EXPECT_TRUE(CheckFetched(Write("empty", "")).ok());
}

TEST_F(ModelDirTest, WeightsOfPyTorchGetTheCommandThatConvertsThem) {
  Write("pytorch_model.bin");
  ExpectSays(SafetensorsReader::OpenDirectory(dir_.path()).status(),
             {"neither model.safetensors nor", "pytorch_model.bin", "python3 -c", "save_pretrained",
              dir_.path()});
  Write("adapter.safetensors");
  ExpectSays(MissingWeights(dir_.path()), {"only PyTorch's pytorch_model.bin", "python3 -c"});
  Write("model-00001-of-00002.safetensors");
  ExpectSays(MissingWeights(dir_.path()), {"only model-00001-of-00002.safetensors"});
}

TEST_F(ModelDirTest, OtherTokenizersGetTheCommandThatConvertsThem) {
  EXPECT_EQ(MissingTokenizer(dir_.path()).message(), dir_.path() + ": no tokenizer.json");
  Write("tokenizer.model");
  ExpectSays(MissingTokenizer(dir_.path()), {"only tokenizer.model", "AutoTokenizer"});
}

TEST_F(ModelDirTest, DraftsAreToldApart) {
  EXPECT_EQ(DraftKindOf(TALON_SOURCE_DIR "/models/tiny-eagle3").value(), DraftKind::kEagle3);
  EXPECT_EQ(DraftKindOf(TALON_SOURCE_DIR "/models/tiny-draft").value(), DraftKind::kModel);
  EXPECT_FALSE(DraftKindOf(dir_.path()).ok());
}

}  // namespace
}  // namespace talon
