#include "search/chain_pool.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace rpeg::search {
namespace {

class ChainPool {
 public:
  ChainPool(const Space& space,
            const HardwareProfile& profile,
            const std::vector<ChainTask>& tasks,
            int threads)
      : space_(space),
        profile_(profile),
        tasks_(tasks),
        results_(tasks.size()),
        status_(tasks.size()) {
    running_ = std::min(static_cast<std::size_t>(threads), tasks.size());
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = running_; i > 0; --i) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        // The system has no more threads: those that run take all chains.
        if (threads_.empty()) throw;
        running_ -= i;
        break;
      }
    }
  }

  /// Calls `look` now and then until all chains have ended.
  std::vector<ChainResult> wait(const Look& look) {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kLookEvery, [&] { return running_ == 0; })) {
      if (look) look(status_);
    }
    if (failure_) std::rethrow_exception(failure_);
    return std::move(results_);
  }

 private:
  static constexpr std::chrono::milliseconds kLookEvery{200};

  void work() {
    try {
      Workbench bench(space_, profile_);
      for (std::size_t i = next_++; i < tasks_.size(); i = next_++) {
        results_[i] = run_chain(bench, tasks_[i], status_[i]);
      }
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
      next_ = tasks_.size();
    }
    const std::scoped_lock lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  const Space& space_;
  const HardwareProfile& profile_;
  const std::vector<ChainTask>& tasks_;
  std::vector<ChainResult> results_;
  std::vector<ChainStatus> status_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;  // last: joined before what they use is destroyed
};

}  // namespace

std::vector<ChainResult> run_chains(const Space& space,
                                    const HardwareProfile& profile,
                                    const std::vector<ChainTask>& tasks,
                                    int threads,
                                    const Look& look) {
  return ChainPool(space, profile, tasks, threads).wait(look);
}

}  // namespace rpeg::search
