// Stands in for the server in builds without its libraries.
#include "apps/bench/bench.h"
#include "apps/chat/chat_model.h"
#include "apps/run_server.h"

namespace talon {

Result<int> RunServer(Config) {
  return Unimplemented("serve: this build has no HTTP server (it was built without {})",
                       TALON_MISSING_SERVE_PARTS);
}

Result<std::unique_ptr<ChatModel>> OpenServerChat(const ServerChatOptions&) {
  return Unimplemented("url: this build has no HTTP (it was built without {})",
                       TALON_MISSING_SERVE_PARTS);
}

void AddBenchLoad(Command, Config*, CommandBody*) {}  // there is nothing to put under load

}  // namespace talon
