#include "model/files/model_dir.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "base/file.h"

namespace talon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLfsPointer = "version https://git-lfs";
constexpr const char* kFormat =
    "Talon reads a directory with config.json, tokenizer.json and safetensors";
constexpr size_t kMostEntries = 4096;  // entries that are looked at in a directory

// The names in a directory; empty if it cannot be read.
std::vector<std::string> NamesIn(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
    if (names.size() == kMostEntries) break;
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> FirstWithEnding(const std::vector<std::string>& names,
                                           std::string_view ending) {
  const auto at = std::find_if(names.begin(), names.end(),
                               [&](const std::string& name) { return name.ends_with(ending); });
  return at == names.end() ? std::nullopt : std::optional(*at);
}

// The target of a link that leads nowhere.
std::optional<std::string> DanglingLink(const std::string& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error) || fs::exists(path, error)) return std::nullopt;
  return fs::read_symlink(path, error).string();
}

bool IsHubWord(std::string_view word) {
  return !word.empty() && std::isalnum(static_cast<unsigned char>(word.front())) != 0 &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

// "owner/model", where no folder "owner" is here.
bool MayBeHubName(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && IsHubWord(name.substr(0, slash)) &&
         IsHubWord(name.substr(slash + 1)) && !IsDirectory(name.substr(0, slash));
}

// The name in "hf:owner/model" or in a page's address, or as it is.
std::string WithoutHubPrefix(const std::string& name) {
  if (name.starts_with("hf:")) return name.substr(3);
  if (!name.starts_with("https://")) return name;
  const size_t path = name.find('/', std::string_view("https://").size());
  return path == std::string::npos ? name : name.substr(path + 1);
}

Status NoSuchDirectory(const std::string& dir) {
  if (const auto target = DanglingLink(dir)) {
    return NotFound("{}: is a symbolic link to '{}', which does not exist", dir, *target);
  }
  std::error_code error;
  const fs::file_status status = fs::status(dir, error);
  if (status.type() == fs::file_type::none) return NotFound("{}: {}", dir, error.message());
  const std::string name = WithoutHubPrefix(dir);
  if (!MayBeHubName(name)) return NotFound("{}: no such directory", dir);
  return NotFound(
      "{}: no such directory; a model of that name on the Hugging Face hub is fetched with "
      "'hf download {} --local-dir {}'",
      dir, name, fs::path(name).filename().string());
}

// The command that turns what PyTorch saved in a directory into safetensors.
std::string Conversion(const std::string& dir) {
  return fmt::format(
      "python3 -c \"from transformers import AutoModelForCausalLM as M; "
      "M.from_pretrained('{}').save_pretrained('{}')\" writes safetensors",
      dir, dir);
}

bool IsPyTorch(const std::string& name) {
  return name.ends_with(".bin") || name.ends_with(".pth") || name.ends_with(".pt");
}

std::string DirectoryOf(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

Status IsFile(const std::string& path) {
  const auto file = MappedFile::Open(path);
  const bool gguf = file.ok() && file->bytes().size() >= 4 &&
                    std::equal(file->bytes().begin(), file->bytes().begin() + 4, "GGUF");
  if (gguf || path.ends_with(".gguf")) {
    return InvalidArgument(
        "{}: is a GGUF file; {}: fetch the model that it was made from ('hf download OWNER/MODEL "
        "--local-dir DIR')",
        path, kFormat);
  }
  if (path.ends_with(".safetensors") || path.ends_with("/config.json")) {
    return InvalidArgument("{}: is a file; give its directory: {}", path, DirectoryOf(path));
  }
  if (IsPyTorch(path)) {
    const std::string dir = DirectoryOf(path);
    return InvalidArgument("{}: is a file of PyTorch; {}, then give the directory: {}", path,
                           Conversion(dir), dir);
  }
  return InvalidArgument("{}: is a file, expected a model directory", path);
}

// A directory below `dir` with a config.json, as in the hub's cache (snapshots/REVISION).
std::optional<std::string> ModelBelow(const fs::path& dir, int depth = 2) {
  for (const std::string& name : NamesIn(dir)) {
    const fs::path below = dir / name;
    if (!IsDirectory(below)) continue;
    if (FileExists(below / "config.json")) return below.string();
    if (depth == 1) continue;
    if (auto found = ModelBelow(below, depth - 1)) return found;
  }
  return std::nullopt;
}

Status BrokenLink(const std::string& path, const std::string& target) {
  return NotFound("{}: is a symbolic link to '{}', which does not exist; fetch the model again",
                  path, target);
}

Status NoConfig(const std::string& dir) {
  const std::string path = dir + "/config.json";
  if (const auto target = DanglingLink(path)) return BrokenLink(path, *target);
  std::error_code error;
  const fs::directory_iterator unused(dir, error);
  if (error) return InvalidArgument("{}: cannot read the directory: {}", dir, error.message());
  const std::vector<std::string> names = NamesIn(dir);
  if (const auto gguf = FirstWithEnding(names, ".gguf")) return IsFile(dir + "/" + *gguf);
  if (const auto below = ModelBelow(dir)) {
    return NotFound("{}: has no config.json; did you mean {}?", dir, *below);
  }
  if (std::ranges::binary_search(names, "params.json")) {
    return NotFound(
        "{}: has params.json but no config.json: another format; {} (fetch the model's Hugging "
        "Face form)",
        dir, kFormat);
  }
  return NotFound("{}: has no config.json", dir);
}

}  // namespace

Status CheckModelDir(const std::string& dir) {
  if (FileExists(dir)) return IsFile(dir);
  if (!IsDirectory(dir)) return NoSuchDirectory(dir);
  const std::string config = dir + "/config.json";
  return FileExists(config) ? CheckFetched(config) : NoConfig(dir);
}

Status CheckNotLfsPointer(std::string_view contents, const std::string& path) {
  if (!contents.starts_with(kLfsPointer)) return OkStatus();
  return InvalidArgument(
      "{}: is a git-lfs pointer, the file itself was not fetched; 'git -C {} lfs pull' does", path,
      DirectoryOf(path));
}

Status CheckFetched(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return CheckNotLfsPointer(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
}

Status MissingWeights(const std::string& dir) {
  for (const char* name : {"/model.safetensors", "/model.safetensors.index.json"}) {
    if (const auto target = DanglingLink(dir + name)) return BrokenLink(dir + name, *target);
  }
  const std::vector<std::string> names = NamesIn(dir);
  const std::string neither =
      fmt::format("{}: has neither model.safetensors nor model.safetensors.index.json", dir);
  const auto shard = std::ranges::find_if(names, [](const std::string& name) {
    return name.starts_with("model-") && name.ends_with(".safetensors");
  });
  const auto pytorch = std::ranges::find_if(names, IsPyTorch);
  if (shard == names.end() && pytorch != names.end()) {
    return NotFound("{}, only PyTorch's {}; {}", neither, *pytorch, Conversion(dir));
  }
  if (const auto other = FirstWithEnding(names, ".safetensors")) {
    return NotFound("{}, only {}: fetch the missing files", neither,
                    shard == names.end() ? *other : *shard);
  }
  if (const auto gguf = FirstWithEnding(names, ".gguf")) return IsFile(dir + "/" + *gguf);
  return NotFound("{}", neither);
}

Status MissingTokenizer(const std::string& dir) {
  if (!IsDirectory(dir)) TALON_RETURN_IF_ERROR(CheckModelDir(dir));
  const std::string path = dir + "/tokenizer.json";
  if (const auto target = DanglingLink(path)) return BrokenLink(path, *target);
  for (const char* name : {"tokenizer.model", "vocab.json"}) {
    if (!FileExists(dir + "/" + name)) continue;
    return InvalidArgument(
        "{}: no tokenizer.json, only {}; python3 -c \"from transformers import AutoTokenizer as "
        "T; T.from_pretrained('{}').save_pretrained('{}')\" writes one",
        dir, name, dir, dir);
  }
  return InvalidArgument("{}: no tokenizer.json", dir);
}

}  // namespace talon
