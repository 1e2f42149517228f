#pragma once

// Asynchronous operations with Asio's completion tokens: `asio::use_awaitable`, a callback, `asio::deferred`
// and so on. For standalone Asio (1.22 or newer), or with REDLATCH_BOOST_ASIO defined for Boost.Asio (Boost
// 1.81 or newer). The CMake target redlatch::asio finds one of them and sets this.

#include <redlatch/completion_queue.hpp>
#include <redlatch/core/intrusive_list.hpp>
#include <redlatch/held.hpp>
#include <redlatch/lock.hpp>
#include <redlatch/lock_set.hpp>
#include <redlatch/net/process_id.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/semaphore.hpp>
#include <redlatch/steps/new_stop_source.hpp>

#if defined(REDLATCH_BOOST_ASIO)
#if !__has_include(<boost/asio/version.hpp>)
#error "<redlatch/asio.hpp> finds no Boost.Asio, which REDLATCH_BOOST_ASIO asks for"
#include "see the error above"
#endif
#include <boost/version.hpp>
#if BOOST_VERSION < 108100
#error "<redlatch/asio.hpp> needs Boost 1.81 or newer: older ones have no cancellation slots"
#include "see the error above"
#endif
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/executor.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/system_executor.hpp>
#else
#if !__has_include(<asio/version.hpp>)
#error \
    "<redlatch/asio.hpp> needs standalone Asio (Debian: libasio-dev), or REDLATCH_BOOST_ASIO defined for Boost.Asio"
#include "see the error above"
#endif
#include <asio/version.hpp>
#if ASIO_VERSION < 102200
#error "<redlatch/asio.hpp> needs Asio 1.22 or newer"
#include "see the error above"
#endif
#include <asio/any_io_executor.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/bind_executor.hpp>
#include <asio/execution/context.hpp>
#include <asio/execution/executor.hpp>
#include <asio/execution/outstanding_work.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>
#include <asio/system_executor.hpp>
#endif

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace redlatch::inline v0 {

namespace detail {

#if defined(REDLATCH_BOOST_ASIO)
inline namespace with_boost_asio {
namespace net = boost::asio;
using AsioError = boost::system::error_code;
#else
inline namespace with_asio {
namespace net = ::asio;
using AsioError = std::error_code;
#endif

/// Runs a function on the thread where the context has heard of a completion. It uses no strand, as a strand
/// whose code blocks would hold up the others. An exception there comes out of `run()`; on a
/// `system_executor` it would end the program.
class AsioInPlace {
public:
    template <class Function>
    void execute(Function&& function) const {
        std::forward<Function>(function)();
    }
    friend bool operator==(const AsioInPlace&, const AsioInPlace&) noexcept = default;
};

/// A handler that is to be called, and the work that its executor has until then. Where the context goes
/// first, it destroys the handler: afterwards there is nothing left for the handler to refer to.
class AsioPending : public IntrusiveList<AsioPending>::Hook {
public:
    AsioPending() = default;
    AsioPending(const AsioPending&) = delete;
    AsioPending& operator=(const AsioPending&) = delete;
    virtual ~AsioPending() = default;
};

/// Waits for completions on one execution context, as long as operations are under way there, and has them go
/// on. When the context goes, this discards all pending handlers, as operations may complete after that. In a
/// forked child it discards those of operations that the parent has begun.
class AsioCompletions final : public net::execution_context::service {
public:
    using key_type = AsioCompletions;

    static inline net::execution_context::id id;

    explicit AsioCompletions(net::execution_context& context)
        : net::execution_context::service(context) {}
    /// Asio does not shut down a service that is made while its context goes.
    ~AsioCompletions() override { leave(); }

    /// The service of a context. A context destroys the newest of its services first. So this function first
    /// makes the service of descriptors, which `AsioCompletions` uses to its end.
    static AsioCompletions& of(net::execution_context& context,
                               const net::any_io_executor& executor) {
        if (!net::has_service<AsioCompletions>(context)) {
            [[maybe_unused]] const net::posix::stream_descriptor needs_their_service{executor};
        }
        return net::use_service<AsioCompletions>(context);
    }

    /// The executor on which an operation that begins now completes; `executor` is one of its context. Keeps
    /// `pending` until `end`. Where the context goes, or this throws, `pending` stays the caller's.
    std::shared_ptr<Executor> begin(const net::any_io_executor& executor,
                                    std::unique_ptr<AsioPending>& pending) {
        begin_anew_in_child();
        const std::lock_guard lock{mutex_};
        if (gone_) return gone_;  // nobody would run what is pending
        if (!descriptor_) {
            Descriptor own{::fcntl(queue_->descriptor(), F_DUPFD_CLOEXEC, 0)};
            if (!own.valid()) throw std::system_error{errno, std::system_category(), "dup"};
            // The descriptor stays as long as the context, so it must not count as work there. `emplace` may
            // throw, and has not taken the descriptor then.
            descriptor_.emplace(net::prefer(executor, net::execution::outstanding_work.untracked),
                                own.get());
            own.release();
        }
        if (!is_waiting_) wait();
        pending_.push_back(*pending.release());
        return queue_->share();
    }

    /// `pending` is the caller's from now on.
    void end(AsioPending& pending) noexcept {
        const std::lock_guard lock{mutex_};
        pending_.remove(pending);
    }

private:
    void shutdown() override { leave(); }

    /// The context goes.
    void leave() noexcept {
        {
            const std::lock_guard lock{mutex_};
            if (gone_) return;
            gone_ = queue_->share();
        }
        if (descriptor_ && process_ != ProcessId::of_this_process()) leave_to_parent();
        descriptor_.reset();
        queue_.reset();
        discard(pending_);  // a handler's destructor may begin something
    }

    /// A child shares the epoll instance of its parent's reactor. Asio takes a descriptor from there before it closes
    /// it, and the parent would hear of nothing any more. So another file takes that number first.
    void leave_to_parent() {
        const int number = descriptor_->native_handle();
        const Descriptor other{::eventfd(0, EFD_CLOEXEC)};
        if (!other.valid() || ::dup3(other.get(), number, O_CLOEXEC) < 0) ::close(number);
    }

    /// Destructors of the parent's handlers may use services that hear of the fork after this one. So they
    /// run later.
    void notify_fork(net::execution_context::fork_event event) override {
        if (event != net::execution_context::fork_child || !descriptor_) return;
        net::post(descriptor_->get_executor(), [this] { begin_anew_in_child(); });
    }

    void begin_anew_in_child() {
        IntrusiveList<AsioPending> parents;
        {
            const std::lock_guard lock{mutex_};
            if (gone_ || process_ == ProcessId::of_this_process()) return;
            queue_ = std::make_unique<CompletionQueue>();
            descriptor_.reset();
            is_waiting_ = false;
            process_ = ProcessId::of_this_process();
            while (AsioPending* const first = pending_.front()) {
                pending_.remove(*first);
                parents.push_back(*first);
            }
        }
        discard(parents);  // a handler's destructor may begin something
    }

    static void discard(IntrusiveList<AsioPending>& pending) noexcept {
        while (AsioPending* const first = pending.front()) {
            pending.remove(*first);
            delete first;
        }
    }

    void wait() {
        auto go_on = [this, process = process_](const AsioError& error) {
            if (error || process != ProcessId::of_this_process()) return;
            queue_->run_ready();
            const std::lock_guard lock{mutex_};
            is_waiting_ = false;
            if (!pending_.empty()) wait();
        };
        descriptor_->async_wait(net::posix::stream_descriptor::wait_read,
                                net::bind_executor(AsioInPlace{}, std::move(go_on)));
        is_waiting_ = true;
    }

    ::pid_t process_ = ProcessId::of_this_process();
    std::unique_ptr<CompletionQueue> queue_ = std::make_unique<CompletionQueue>();
    std::shared_ptr<Executor> gone_{};  // set once the context goes; discards all
    std::mutex mutex_;
    std::optional<net::posix::stream_descriptor> descriptor_;
    IntrusiveList<AsioPending> pending_;
    bool is_waiting_ = false;
};

/// Gives an executor work, for as long as the result lives, as Asio's own operations do. For a
/// `strand<any_io_executor>` an `executor_work_guard` does not compile.
template <class AnyExecutor>
auto track_work(const AnyExecutor& executor) {
    if constexpr (net::execution::is_executor<AnyExecutor>::value) {
        return net::prefer(executor, net::execution::outstanding_work.tracked);
    } else {
        return net::executor_work_guard<AnyExecutor>{executor};
    }
}

/// Calls Asio's handler with the outcome, on the handler's executor. The executor has work until then.
template <class T, class Handler>
class AsioContinuation final : public AsyncCall::Continuation {
    using HandlersExecutor = net::associated_executor_t<Handler, net::system_executor>;

    // Whether the handler's executor has a context. That of a future has none: then the client's own threads
    // post to it.
    static constexpr bool has_context =
        net::can_query<HandlersExecutor, net::execution::context_t>::value &&
        std::is_convertible_v<HandlersExecutor, net::any_io_executor>;

    struct Pending final : AsioPending {
        explicit Pending(Handler its)
            : handler(std::move(its)),
              executor(net::get_associated_executor(handler, net::system_executor{})),
              work(track_work(executor)) {}
        Handler handler;
        HandlersExecutor executor;
        decltype(track_work(std::declval<const HandlersExecutor&>())) work;
    };

public:
    explicit AsioContinuation(Handler handler)
        : own_(std::make_unique<Pending>(std::move(handler))), pending_(own_.get()) {}

    /// To be called once, when nothing is left to prepare. Where it throws, the handler can still be called.
    void begin(AsyncCall& call) {
        if constexpr (has_context) {
            const net::any_io_executor executor = pending_->executor;
            net::execution_context& context = net::query(executor, net::execution::context);
            AsioCompletions& completions = AsioCompletions::of(context, executor);
            std::unique_ptr<AsioPending> pending = std::move(own_);
            try {
                call.complete_on(completions.begin(executor, pending));
            } catch (...) {
                own_.reset(static_cast<Pending*>(pending.release()));
                throw;
            }
            completions_ = &completions;
        }
    }

    /// Calls the handler, where `begin` has thrown.
    void refuse(const std::exception& why) {
        post([error = Error{Errc::unavailable,
                            {},
                            {},
                            std::string{"the completion cannot be waited for: "} + why.what(),
                            {}}](Handler&& handler) mutable {
            std::move(handler)(Result<T>{Unexpected{std::move(error)}});
        });
    }

    void cancel_by(std::stop_source stop) {
        auto slot = net::get_associated_cancellation_slot(pending_->handler);
        if (!slot.is_connected()) return;
        slot.assign([stop = std::move(stop)](net::cancellation_type type) mutable {
            if (type != net::cancellation_type::none) stop.request_stop();
        });
    }

    /// An exception of the handler comes out of `run()`, as everywhere in Asio.
    void resume(AsyncCall& call) override {
        if (completions_ != nullptr) {
            completions_->end(*pending_);
            own_.reset(pending_);
        }
        post([call = call.shared_from_this()](Handler&& handler) {
            if (call->is_ours()) {
                std::move(handler)(static_cast<AsyncCallFor<T>&>(*call).take());
            }
        });
    }

private:
    /// Makes the handler's executor call `complete` with the handler.
    template <class Complete>
    void post(Complete complete) {
        const HandlersExecutor executor = pending_->executor;
        net::post(executor, [complete = std::move(complete), work = std::move(pending_->work),
                             handler = std::move(pending_->handler)]() mutable {
            auto slot = net::get_associated_cancellation_slot(handler);
            if (slot.is_connected()) slot.clear();
            { [[maybe_unused]] const auto ends = std::move(work); }
            complete(std::move(handler));
        });
    }

    std::unique_ptr<Pending> own_;  // null while the context has it
    Pending* pending_;
    AsioCompletions* completions_ = nullptr;
};

/// Completes `awaitable` by a completion token. Gives it up where the token never begins it, or cannot. In
/// the latter case the outcome says so: a coroutine has no other way to hear of that.
template <class T, class Token>
auto complete_with(AsyncResult<T> awaitable, std::stop_source stop, Token&& token) {
    return net::async_initiate<Token, void(Result<T>)>(
        [awaitable = std::move(awaitable), stop = std::move(stop)](auto handler) mutable {
            using Continuation = AsioContinuation<T, decltype(handler)>;
            auto continuation = std::make_unique<Continuation>(std::move(handler));
            continuation->cancel_by(std::move(stop));
            try {
                continuation->begin(AsyncAccess::call_in(awaitable));
            } catch (const std::bad_alloc&) {
                throw;
            } catch (const std::exception& why) {
                return continuation->refuse(why);
            }
            const auto call = AsyncAccess::call_of(std::move(awaitable));
            call->await(std::move(continuation));
            call->start();
        },
        token);
}

/// The same, where `begin` takes the stop token by which Asio's cancellation ends the wait.
template <class Begin, class Token>
auto wait_with(const Begin& begin, Token&& token) {
    std::stop_source stop = new_stop_source();
    auto awaitable = begin(stop.get_token());
    return complete_with(std::move(awaitable), std::move(stop), std::forward<Token>(token));
}

}  // namespace with_asio or with_boost_asio
}  // namespace detail

/// `Lock::async_acquire()` with a completion token: completes with `Result<Held>` on the handler's executor, which has
/// work until then. Any kind of Asio's cancellation ends the wait with `Errc::cancelled`; a lock that was
/// acquired before is delivered.
template <class Policy, class Token>
auto async_acquire(Lock<Policy>& lock, const AsyncOptions& options, Token&& token) {
    return detail::wait_with(
        [&](std::stop_token stop) { return lock.async_acquire(options, std::move(stop)); },
        std::forward<Token>(token));
}

/// `Lock::async_acquire_shared()`, likewise.
template <class Policy, class Token>
auto async_acquire_shared(Lock<Policy>& lock, const AsyncOptions& options, Token&& token) {
    return detail::wait_with(
        [&](std::stop_token stop) { return lock.async_acquire_shared(options, std::move(stop)); },
        std::forward<Token>(token));
}

/// `LockSet::async_acquire()`, likewise: completes with `Result<HeldSet>`.
template <class Policy, class Token>
auto async_acquire(LockSet<Policy>& set, const AsyncOptions& options, Token&& token) {
    return detail::wait_with(
        [&](std::stop_token stop) { return set.async_acquire(options, std::move(stop)); },
        std::forward<Token>(token));
}

/// `LockSet::async_acquire_shared()`, likewise.
template <class Policy, class Token>
auto async_acquire_shared(LockSet<Policy>& set, const AsyncOptions& options, Token&& token) {
    return detail::wait_with(
        [&](std::stop_token stop) { return set.async_acquire_shared(options, std::move(stop)); },
        std::forward<Token>(token));
}

/// `Semaphore::async_take()`, likewise.
template <class Policy, class Token>
auto async_take(Semaphore<Policy>& semaphore, const AsyncTakeOptions& options, Token&& token) {
    return detail::wait_with(
        [&](std::stop_token stop) { return semaphore.async_take(options, std::move(stop)); },
        std::forward<Token>(token));
}

/// `Lock::async_inspect()` with a completion token: completes with `Result<LockInfo>`.
template <class Policy, class Token>
auto async_inspect(const Lock<Policy>& lock, Token&& token) {
    return detail::complete_with(lock.async_inspect(), std::stop_source{std::nostopstate},
                                 std::forward<Token>(token));
}

/// `Semaphore::async_inspect()`, likewise: completes with `Result<SemaphoreInfo>`.
template <class Policy, class Token>
auto async_inspect(const Semaphore<Policy>& semaphore, Token&& token) {
    return detail::complete_with(semaphore.async_inspect(), std::stop_source{std::nostopstate},
                                 std::forward<Token>(token));
}

/// @{
/// `async_release()` of a `Held` or a `HeldSet` with a completion token: completes with
/// `Result<Release>`. The hold ends at the call.
template <class Token>
auto async_release(Held& held, Token&& token) {
    return detail::complete_with(held.async_release(), std::stop_source{std::nostopstate},
                                 std::forward<Token>(token));
}
template <class Token>
auto async_release(HeldSet& held, Token&& token) {
    return detail::complete_with(held.async_release(), std::stop_source{std::nostopstate},
                                 std::forward<Token>(token));
}
/// @}

/// @{
/// `async_extend()` of a `Held` or a `HeldSet` with a completion token: completes with
/// `Result<void>`.
template <class Token>
auto async_extend(Held& held, Lease lease, Token&& token) {
    return detail::complete_with(held.async_extend(lease), std::stop_source{std::nostopstate},
                                 std::forward<Token>(token));
}
template <class Token>
auto async_extend(HeldSet& held, Lease lease, Token&& token) {
    return detail::complete_with(held.async_extend(lease), std::stop_source{std::nostopstate},
                                 std::forward<Token>(token));
}
/// @}

/// `Held::async_downgrade()` with a completion token: completes with `Result<void>`.
template <class Token>
auto async_downgrade(Held& held, Token&& token) {
    return detail::complete_with(held.async_downgrade(), std::stop_source{std::nostopstate},
                                 std::forward<Token>(token));
}

/// `Held::async_nest()` with a completion token: completes with `Result<Held>`.
template <class Token>
auto async_nest(Held& held, Token&& token) {
    return detail::complete_with(held.async_nest(), std::stop_source{std::nostopstate},
                                 std::forward<Token>(token));
}

}  // namespace redlatch::inline v0
