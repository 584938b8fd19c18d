#include "apps/ranks/load_or_follow.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "apps/commands.h"
#include "base/log.h"
#include "setup/ranks/load_on_ranks.h"

namespace talon {
namespace {

// Follows until the leader ends. The exit code.
int Follow(LoadedModel* model) {
  // The leader ends when its requests have, and then tells the others.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  const Status status = FollowLeader(model);
  if (status.ok()) return kExitOk;
  LogError("rank {} has stopped: {}", model->ranks->rank(), status.message());
  return kExitStopped;
}

// A ping found a rank lost while no request ran. One that came meanwhile meets the same fault, and
// gets time to be answered.
void EndProcess(const std::string& reason) {
  LogError("the engine has stopped: {}", reason);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::fflush(nullptr);
  std::_Exit(kExitStopped);
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadOrFollow(const Config& config, const std::string& shape,
                                                  int min_output_rows) {
  TALON_ASSIGN_OR_RETURN(auto model, LoadOnRanks(config, EndProcess, shape, min_output_rows));
  if (Follows(*model)) {
    const int code = Follow(model.get());
    model.reset();
    std::exit(code);
  }
  return model;
}

}  // namespace talon
