#include "data/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& program, const char* action, int error) {
  throw Error(ErrorKind::kRuntime,
              fmt::format("cannot {} {}: {}", action, program, std::strerror(error)));
}

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void open(int number) {
    close();
    number_ = number;
  }
  void close() {
    if (number_ >= 0) {
      ::close(number_);
    }
    number_ = -1;
  }

 private:
  int number_ = -1;
};

struct Pipe {
  Descriptor read;
  Descriptor write;

  explicit Pipe(const std::string& program) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      fail(program, "make a pipe to", errno);
    }
    read.open(ends[0]);
    write.open(ends[1]);
  }
};

/// Holds SIGPIPE back from this thread, so that a write to a pipe that nobody reads is an error
/// code and not the end of the process.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe() {
    const timespec now{};
    while (!was_pending_ && sigtimedwait(&sigpipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  const sigset_t& mask_before() const { return before_; }

 private:
  sigset_t sigpipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

/// Starts the program in a process group of its own, with the signal settings a program expects.
pid_t spawn(const std::vector<std::string>& command,
            const Pipe& input,
            const Pipe& output,
            const sigset_t& mask) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.write.get(), STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &mask);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  std::vector<std::string> copies = command;
  std::vector<char*> arguments;
  for (std::string& argument : copies) {
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, arguments.front(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    fail(command.front(), "start", error);
  }
  return pid;
}

/// Writes some of `rest`; closes the pipe when all is written or nobody reads.
void write_some(Descriptor& to, std::string_view& rest) {
  const ssize_t written = ::write(to.get(), rest.data(), rest.size());
  if (written > 0) {
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  const bool is_broken = written < 0 && errno != EAGAIN && errno != EINTR;
  if (rest.empty() || is_broken) {
    to.close();
  }
}

void read_some(Descriptor& from, std::string& output) {
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
  if (count > 0) {
    output.append(buffer.data(), static_cast<std::size_t>(count));
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    from.close();
  }
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

/// Feeds and drains the program until its output ends; both at once, for it may write before it
/// has read everything.
void exchange(Descriptor& to,
              Descriptor& from,
              std::string_view rest,
              Clock::time_point deadline,
              std::size_t max_output,
              ChildResult& result) {
  if (rest.empty()) {
    to.close();
  }
  while (from.is_open()) {
    std::array<pollfd, 2> polled = {
        {{from.get(), POLLIN, 0}, {to.get(), POLLOUT, 0}}};  // poll skips a negative descriptor
    if (::poll(polled.data(), polled.size(), milliseconds_until(deadline)) < 0 && errno != EINTR) {
      fail("the reward command", "wait for", errno);
    }
    if (polled[0].revents != 0) {
      read_some(from, result.output);
    }
    if (polled[1].revents != 0) {
      write_some(to, rest);
    }
    result.overflowed = result.output.size() > max_output;
    result.timed_out = from.is_open() && Clock::now() >= deadline;
    if (result.overflowed || result.timed_out) {
      return;
    }
  }
}

/// Waits for the end of the program, which has closed its output; kills it at the deadline.
void reap(pid_t pid, Clock::time_point deadline, ChildResult& result) {
  int status = 0;
  bool killed = result.timed_out || result.overflowed;
  if (killed) {
    ::kill(-pid, SIGKILL);
  }
  while (true) {
    const pid_t ended = ::waitpid(pid, &status, killed ? 0 : WNOHANG);
    if (ended == pid) {
      break;
    }
    if (ended < 0 && errno != EINTR) {
      fail("the reward command", "wait for", errno);
    }
    if (!killed && Clock::now() >= deadline) {
      killed = result.timed_out = true;
      ::kill(-pid, SIGKILL);
    } else if (!killed) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& command,
                      std::string_view input,
                      double timeout_s,
                      std::size_t max_output) {
  check(!command.empty(), "run_child: a program is named");
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_s));
  const WithoutSigpipe guard;
  Pipe to_child(command.front());
  Pipe from_child(command.front());
  const pid_t pid = spawn(command, to_child, from_child, guard.mask_before());
  to_child.read.close();
  from_child.write.close();
  ::fcntl(to_child.write.get(), F_SETFL, O_NONBLOCK);
  ChildResult result;
  exchange(to_child.write, from_child.read, input, deadline, max_output, result);
  to_child.write.close();
  from_child.read.close();
  reap(pid, deadline, result);
  return result;
}

}  // namespace rpeg
