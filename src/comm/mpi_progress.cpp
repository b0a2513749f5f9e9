#include "comm/mpi_progress.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <set>
#include <utility>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

// Waking up costs a few microseconds: at this pace well below a hundredth of a core.
constexpr std::chrono::microseconds kPace{1000};

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(ErrorKind::kRuntime, fmt::format("{} failed: {}", call, text.data()));
}

MpiProgress::MpiProgress(std::size_t piece_bytes)
    : piece_bytes_(piece_bytes), thread_([this] { run(); }) {}

MpiProgress::~MpiProgress() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  thread_.join();
  const bool is_coming = std::ranges::any_of(receives_, &Receive::is_coming);
  if (!sends_.empty() || is_coming) {
    // MPI may still read or write these buffers: they must outlive this object.
    [[maybe_unused]] auto* sends = new std::list<Send>(std::move(sends_));
    [[maybe_unused]] auto* receives = new std::list<Receive>(std::move(receives_));
  }
}

MpiProgress::Key MpiProgress::key_of(const MpiChannel& channel) {
  return {MPI_Comm_c2f(channel.comm), channel.from, channel.tag};
}

void MpiProgress::send(MPI_Comm comm, int to, int tag, Bytes message) {
  const std::lock_guard lock(mutex_);
  if (message.size() < piece_bytes_) {
    start(comm, to, tag, std::move(message));
  } else {
    for (std::size_t begin = 0; begin <= message.size(); begin += piece_bytes_) {
      const std::size_t end = std::min(begin + piece_bytes_, message.size());
      start(comm,
            to,
            tag,
            Bytes(message.begin() + static_cast<std::ptrdiff_t>(begin),
                  message.begin() + static_cast<std::ptrdiff_t>(end)));
    }
  }
  if (!sends_.empty()) {
    wake_.notify_one();
  }
}

void MpiProgress::start(MPI_Comm comm, int to, int tag, Bytes piece) {
  Send& send = sends_.emplace_back(Send{comm, MPI_REQUEST_NULL, std::move(piece)});
  check_mpi(MPI_Isend(send.piece.data(),
                      static_cast<int>(send.piece.size()),
                      MPI_BYTE,
                      to,
                      tag,
                      comm,
                      &send.request),
            "MPI_Isend");
  int done = 0;  // small messages leave at once: they need no further attention
  check_mpi(MPI_Test(&send.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done != 0) {
    sends_.pop_back();
  }
}

void MpiProgress::expect(const MpiChannel& channel) {
  const std::lock_guard lock(mutex_);
  receives_.push_back({.channel = channel, .message = {}, .piece = {}});
  wake_.notify_one();
}

bool MpiProgress::is_expected(const MpiChannel& channel) const {
  return std::ranges::any_of(receives_, [&](const Receive& receive) {
    return key_of(receive.channel) == key_of(channel);
  });
}

bool MpiProgress::try_take(const MpiChannel& channel, Bytes& message) {
  const std::lock_guard lock(mutex_);
  const Key key = key_of(channel);
  auto arrived = inbox_.find(key);
  if (arrived == inbox_.end()) {
    if (!is_expected(channel)) {
      receives_.push_back({.channel = channel, .message = {}, .piece = {}});
    }
    const auto first = std::ranges::find_if(
        receives_, [&](const Receive& receive) { return key_of(receive.channel) == key; });
    if (!advance(*first)) {
      std::erase_if(sends_, [](Send& send) {
        int done = 0;
        check_mpi(MPI_Test(&send.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
      });
      return false;
    }
    message = std::move(first->message);
    receives_.erase(first);
    return true;
  }
  message = std::move(arrived->second.front());
  arrived->second.pop_front();
  if (arrived->second.empty()) {
    inbox_.erase(arrived);
  }
  return true;
}

bool MpiProgress::is_here(const MpiChannel& channel) {
  const std::lock_guard lock(mutex_);
  if (inbox_.contains(key_of(channel))) {
    return true;
  }
  const auto first = std::ranges::find_if(
      receives_, [&](const Receive& r) { return key_of(r.channel) == key_of(channel); });
  if (first != receives_.end() && first->is_coming) {
    return true;
  }
  int found = 0;
  check_mpi(MPI_Iprobe(channel.from, channel.tag, channel.comm, &found, MPI_STATUS_IGNORE),
            "MPI_Iprobe");
  return found != 0;
}

void MpiProgress::give_up(const MpiChannel& channel) {
  const std::lock_guard lock(mutex_);
  const auto first = std::ranges::find_if(
      receives_, [&](const Receive& r) { return key_of(r.channel) == key_of(channel); });
  if (first != receives_.end() && !first->is_coming && first->message.empty()) {
    receives_.erase(first);
  }
}

std::size_t MpiProgress::pending_sends(MPI_Comm comm) {
  const std::lock_guard lock(mutex_);
  advance_all();
  return static_cast<std::size_t>(std::ranges::count(sends_, comm, &Send::comm));
}

void MpiProgress::forget(MPI_Comm comm) {
  const std::lock_guard lock(mutex_);
  std::erase_if(receives_, [&](const Receive& receive) {
    return receive.channel.comm == comm && !receive.is_coming;
  });
}

// A message is matched only when it has been found, so it can be of any size, and the pieces of a
// message follow one another.
bool MpiProgress::advance(Receive& receive) {
  while (true) {
    if (!receive.is_coming) {
      MPI_Message handle = MPI_MESSAGE_NULL;
      MPI_Status status;
      int found = 0;
      const MpiChannel& channel = receive.channel;
      check_mpi(MPI_Improbe(channel.from, channel.tag, channel.comm, &found, &handle, &status),
                "MPI_Improbe");
      if (found == 0) {
        return false;
      }
      int size = 0;
      check_mpi(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
      receive.piece.resize(static_cast<std::size_t>(size));
      receive.is_coming = true;
      check_mpi(MPI_Imrecv(receive.piece.data(), size, MPI_BYTE, &handle, &receive.request),
                "MPI_Imrecv");
    }
    int done = 0;
    check_mpi(MPI_Test(&receive.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) {
      return false;
    }
    receive.is_coming = false;
    const bool more = receive.piece.size() == piece_bytes_;
    if (receive.message.empty()) {
      receive.message = std::move(receive.piece);
    } else {
      receive.message.insert(receive.message.end(), receive.piece.begin(), receive.piece.end());
    }
    receive.piece = {};
    if (!more) {
      return true;
    }
  }
}

void MpiProgress::advance_all() {
  std::erase_if(sends_, [](Send& send) {
    int done = 0;
    check_mpi(MPI_Test(&send.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
  std::set<Key> waiting;  // an earlier message of the channel is not complete
  for (auto receive = receives_.begin(); receive != receives_.end();) {
    const Key key = key_of(receive->channel);
    if (!waiting.contains(key) && advance(*receive)) {
      inbox_[key].push_back(std::move(receive->message));
      receive = receives_.erase(receive);
    } else {
      waiting.insert(key);
      ++receive;
    }
  }
}

void MpiProgress::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (sends_.empty() && receives_.empty()) {
      wake_.wait(lock);
      continue;
    }
    try {
      advance_all();
    } catch (const std::exception& error) {
      // The rank's thread meets the same fault at its next call and reports it.
      spdlog::debug("progress of messages: {}", error.what());
    }
    wake_.wait_for(lock, kPace, [&] { return ends_; });
  }
}

}  // namespace rpeg
