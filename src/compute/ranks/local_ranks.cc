#include "compute/ranks/local_ranks.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/contain.h"

namespace talon {

std::vector<std::unique_ptr<Ranks>> LocalRanks::Create(int size) {
  auto mail = std::make_shared<Mail>();
  mail->queues.resize(static_cast<size_t>(size) * size);
  std::vector<std::unique_ptr<Ranks>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::unique_ptr<Ranks>(new LocalRanks(rank, size, mail)));
  }
  return ranks;
}

void LocalRanks::Send(int to, std::span<const uint8_t> bytes) {
  {
    const std::lock_guard lock(mail_->mutex);
    mail_->queues[rank() * size() + to].emplace_back(bytes.begin(), bytes.end());
  }
  mail_->arrived.notify_all();
}

void LocalRanks::Receive(int from, std::span<uint8_t> bytes) {
  std::unique_lock lock(mail_->mutex);
  auto& queue = mail_->queues[from * size() + rank()];
  if (!mail_->arrived.wait_for(lock, std::chrono::duration<double>(deadline()),
                               [&] { return !queue.empty(); })) {
    throw DeviceFault(fmt::format("rank {} did not answer within {} s", from, deadline()));
  }
  const std::vector<uint8_t> message = std::move(queue.front());
  queue.pop_front();
  TALON_CHECK(message.size() == bytes.size(), "{} bytes from rank {}, expected {}", message.size(),
              from, bytes.size());
  if (!message.empty()) std::memcpy(bytes.data(), message.data(), message.size());
}

}  // namespace talon
