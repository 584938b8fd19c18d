#include "setup/bundled.h"

#include <algorithm>
#include <filesystem>

namespace talon {

Result<std::string> BundledFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  // The prefix is that of an installation, or the repository for build/talon.
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  const fs::path folders[] = {fs::current_path(error), prefix, prefix / "share/talon"};
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / path, error)) return (folder / path).string();
  }
  return NotFound("no bundled file '{}' found in {}, {} or {}", path, folders[0].string(),
                  folders[1].string(), folders[2].string());
}

Result<std::string> BundledModelDir(const std::string& name) {
  const auto config = BundledFile("models/" + name + "/config.json");
  if (config.ok()) return std::filesystem::path(*config).parent_path().string();
  return NotFound("{}; it is not part of the program itself: give a model with --model DIR",
                  config.status().message());
}

const char* BundledDraftModel(const DrafterList& drafters) {
  if (drafters.Has(DrafterKind::kStandalone)) return "tiny-draft";
  const bool block = std::ranges::any_of(drafters.kinds(), DraftsBlocks);
  return block ? "tiny-block" : "tiny-eagle3";
}

Result<std::string> ModelDir(const std::string& dir) {
  return dir.empty() ? BundledModelDir(kBundledModel) : Result<std::string>(dir);
}

std::string ShortModelName(const std::string& dir) {
  const auto path = std::filesystem::path(dir.empty() ? kBundledModel : dir).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace talon
