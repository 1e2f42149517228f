#include "any_lock.hpp"
#include "child.hpp"
#include "server_notices.hpp"
#include "signals.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace tool {

namespace {

using SteadyClock = std::chrono::steady_clock;
using redlatch::Fenced;
using redlatch::Held;
using redlatch::HeldSet;
using redlatch::Lock;
using redlatch::LockSet;
using redlatch::Result;
using redlatch::Shared;
using redlatch::Simple;
using redlatch::Unexpected;
using redlatch::Watchdog;

/// What the command runs under: one lock, or several.
class Holding {
public:
    Holding(Held held) : what_(std::move(held)) {}
    Holding(HeldSet held) : what_(std::move(held)) {}

    bool held() const {
        return std::visit([](const auto& held) { return held.held(); }, what_);
    }
    std::stop_token lost() const {
        return std::visit([](const auto& held) { return held.lost(); }, what_);
    }
    Result<redlatch::Release> release() {
        return std::visit([](auto& held) { return held.release(); }, what_);
    }
    /// Of one lock.
    std::string token() const { return std::get<Held>(what_).token(); }
    std::uint64_t fence(const std::string& name) const {
        if (const auto* const one = std::get_if<Held>(&what_)) return one->fence();
        return std::get<HeldSet>(what_).fence(name);
    }

private:
    std::variant<Held, HeldSet> what_;
};

template <class Taken>
Result<Holding> as_holding(Result<Taken> taken) {
    if (!taken) return Unexpected{std::move(taken).error()};
    return Holding{*std::move(taken)};
}

/// Waits for the lock on a thread of its own, so that signals are heard meanwhile.
class Acquisition {
public:
    explicit Acquisition(const Settings& settings)
        : settings_(&settings),
          notices_(std::make_shared<ServerNotices>(settings)),
          client_(make_client(settings, notices_)) {
        thread_ = std::thread{[this] {
            try {
                result_.emplace(acquire());
            } catch (const redlatch::LockError& error) {
                result_.emplace(Unexpected{error.error()});
            }
            notices_->end(result_->has_value());
            over_.set();
        }};
    }
    Acquisition(const Acquisition&) = delete;
    Acquisition& operator=(const Acquisition&) = delete;
    ~Acquisition() {
        cancel();
        join();
    }

    void cancel() { stop_.request_stop(); }

    /// What is known of why the lock was lost: what went wrong since the last renewal.
    std::string why_lost() const {
        const auto error = notices_->last_error();
        return error ? "; last error: " + error->describe()
                     : "; it was removed, or not renewed in time";
    }

    /// Can be read as soon as there is a result.
    int descriptor() const noexcept { return over_.descriptor(); }

    /// Waits for it.
    Result<Holding>& result() {
        join();
        return *result_;
    }

    /// Releases what was taken for a command that did not run: `--at-least` does not count then.
    void free_at_once() {
        if (!*result_) return;
        Holding& holding = **result_;
        if (settings_->at_least > std::chrono::milliseconds::zero()) {
            auto owners = owners_of_all();
            if (!holding.held()) owners.clear();  // they may be somebody else's by now
            for (const auto& [name, owner] : owners) {
                static_cast<void>(Lock<Simple>{client_, name}.force_unlock(owner));
            }
        }
        static_cast<void>(holding.release());
    }

private:
    Result<Holding> acquire() {
        if (settings_->permits) return take_permit();
        if (settings_->sharing == Sharing::none) {
            return settings_->fenced ? acquire<Fenced<Simple>>() : acquire<Simple>();
        }
        return settings_->fenced ? share<Fenced<Shared>>() : share<Shared>();
    }

    template <class Policy>
    Result<Holding> acquire() {
        if (settings_->names.size() == 1) {
            return as_holding(
                Lock<Watchdog<Policy>>{client_, name(), lock_options()}.acquire(how()));
        }
        return as_holding(
            LockSet<Watchdog<Policy>>{client_, settings_->names, lock_options()}.acquire(how()));
    }

    template <class Policy>
    Result<Holding> share() {
        Lock<Watchdog<Policy>> lock{client_, name(), lock_options()};
        const bool reads = settings_->sharing == Sharing::reads;
        return as_holding(reads ? lock.acquire_shared(how()) : lock.acquire(how()));
    }

    Result<Holding> take_permit() {
        redlatch::Semaphore<> semaphore{client_, name(), *settings_->permits, lock_options()};
        return as_holding(semaphore.take({.wait = settings_->wait, .stop = stop_.get_token()}));
    }

    const std::string& name() const { return settings_->names.front(); }

    /// Of those that can be asked for.
    std::vector<std::pair<std::string, std::string>> owners_of_all() {
        std::vector<std::pair<std::string, std::string>> owners;
        for (const std::string& name : settings_->names) {
            const auto seen = Lock<Simple>{client_, name}.inspect();
            if (seen && seen->locked) owners.emplace_back(name, seen->owner);
        }
        return owners;
    }

    redlatch::LockOptions lock_options() const {
        return {.lease = settings_->lease,
                .lock_delay = settings_->kill_after,
                .min_hold = settings_->at_least};
    }
    redlatch::AcquireOptions how() const {
        return {.wait = settings_->wait, .stop = stop_.get_token(), .owner = redlatch::Owner::hold};
    }

    void join() {
        if (thread_.joinable()) thread_.join();
    }

    const Settings* settings_;
    std::shared_ptr<ServerNotices> notices_;
    redlatch::Client client_;
    std::stop_source stop_;
    Event over_;
    std::optional<Result<Holding>> result_;
    std::thread thread_;
};

/// Whether the command gets the terminal before it asks for it. This program cannot tell whether others share
/// its process group, such as a pager, which reads from the terminal as well as a command like sudo. Where its
/// input or output says that there may be some, the terminal stays with them. Each of the two groups gets it
/// when it asks for it, that is, when the kernel stops it.
bool gives_terminal_at_start() {
    struct stat output {};
    const bool is_piped = ::fstat(STDOUT_FILENO, &output) == 0 &&
                          (S_ISFIFO(output.st_mode) || S_ISSOCK(output.st_mode));
    return ::isatty(STDIN_FILENO) == 1 && !is_piped;
}

Child::Options child_options(const Settings& settings, std::string path, const Signals& signals) {
    return {.command = settings.command,
            .path = std::move(path),
            .signals = signals.original(),
            .stoppable = settings.stoppable,
            .server_is_named = settings.server_is_named,
            .ignores_child = signals.ignored_child()};
}

/// One run: from the wait for the lock to the end of the command.
class Run {
public:
    Run(const Settings& settings, const std::string& path)
        : settings_(&settings), path_(path), child_(child_options(settings, path, signals_)) {}

    int go() {
        acquisition_ = std::make_unique<Acquisition>(*settings_);
        if (const auto code = wait_for_lock()) return *code;
        Holding& held = *acquisition_->result();
        std::stop_callback on_loss{held.lost(), [this] { lost_.set(); }};
        if (!held.held()) return lost_before_start();
        say(is_fenced() ? "acquired, fence " + fences(held, ", ") : "acquired");
        if (gives_terminal_ && child_.is_in_foreground()) child_.give_terminal();
        child_.start(variables(held));
        const int status = supervise();
        const bool had_terminal = child_.take_terminal();
        const int code = finish(held, status);
        note_key(status, had_terminal);
        return code;
    }

    /// The signal of the terminal's interrupt or quit key, or of its end, where that has ended the command,
    /// or the wait; else 0.
    int key() const noexcept { return key_; }

    /// The server did not answer the release. The client's end would wait for it once more.
    bool is_server_silent() const noexcept { return is_silent_; }

private:
    // ---- Before the command starts

    /// The exit code, where the lock was not obtained.
    std::optional<int> wait_for_lock() {
        std::optional<int> ended_by;
        for (bool over = false; !over;) {
            wait_for(acquisition_->descriptor(), SteadyClock::duration::max());
            while (const auto received = signals_.next()) {
                const int signal = received->signal;
                const bool stops = signal == SIGTSTP || Signals::asks_for_terminal(signal);
                if (stops) Signals::stop(signal);
                if (!Signals::is_forwarded(signal)) continue;
                if (!ended_by && received->from_key) key_ = signal;
                ended_by = ended_by.value_or(signal);
                acquisition_->cancel();
            }
            over = is_readable(acquisition_->descriptor());
        }
        const Result<Holding>& result = acquisition_->result();
        if (ended_by) {
            acquisition_->free_at_once();
            return ended_by_signal(*ended_by);
        }
        if (result) return std::nullopt;
        const redlatch::Errc why = result.error().code;
        const int code = settings_->codes.of(result.error());
        // Whoever calls that a success, as a crontab on each of several machines does, wants no mail about it.
        const bool is_success = why == redlatch::Errc::timed_out && code == 0;
        if (!is_success || settings_->verbose) {
            complain(*settings_,
                     result.error().describe() + (why == redlatch::Errc::wrong_type
                                                      ? "; --permits, --shared and --exclusive are "
                                                        "kinds of their own"
                                                      : ""));
        }
        return code;
    }

    int lost_before_start() {
        complain(*settings_, lost_lock() + " before the command started");
        return settings_->codes.of(Failure::lost);
    }

    std::string lost_lock() const {
        const std::vector<std::string>& names = settings_->names;
        return names.size() == 1 ? "the lock '" + printable(names.front()) + "' was lost"
                                 : "one of the locks was lost";
    }

    bool is_fenced() const { return settings_->fenced && !settings_->permits; }

    /// The fencing tokens of all names.
    std::string fences(const Holding& held, const char* between) const {
        std::string text;
        for (const std::string& name : settings_->names) {
            text += (text.empty() ? "" : between) + std::to_string(held.fence(name));
        }
        return text;
    }

    std::vector<std::string> variables(const Holding& held) const {
        const std::vector<std::string>& names = settings_->names;
        const std::string plural = names.size() == 1 ? "" : "S";
        std::string all_names = names.front();
        for (std::size_t i = 1; i < names.size(); ++i) all_names += "\n" + names[i];
        std::vector<std::string> all{"REDLATCH_NAME" + plural + "=" + all_names};
        if (names.size() == 1) all.push_back("REDLATCH_TOKEN=" + held.token());
        if (is_fenced()) all.push_back("REDLATCH_FENCE" + plural + "=" + fences(held, "\n"));
        return all;
    }

    // ---- While it runs

    /// The command's status, as of `waitpid`.
    int supervise() {
        for (;;) {
            // First, as it may have been killed while the lock was waited for.
            if (const auto status = reap()) return *status;
            if (child_.is_in_foreground()) hand_terminal_over();
            if (command_waits_ && is_orphaned()) hang_up();
            wait_for(lost_.descriptor(), time_to_wait());
            if (lost_.take()) lose();
            if (kill_at_ && SteadyClock::now() >= *kill_at_) {
                child_.send(SIGKILL);
                kill_at_.reset();
            }
            while (const auto received = signals_.next()) forward(*received);
        }
    }

    void lose() {
        is_lost_ = true;
        child_.send(SIGTERM);
        child_.send(SIGCONT);
        kill_at_ = SteadyClock::now() + settings_->kill_after;
        complain(*settings_, lost_lock() + "; the command is ended" + acquisition_->why_lost());
    }

    void forward(const Signals::Received& received) {
        const int signal = received.signal;
        if (Signals::asks_for_terminal(signal)) group_waits_ = true;
        // A shell may have brought this program to the foreground, or to the background.
        const bool gives = signal == SIGCONT && gives_terminal_ && child_.is_in_foreground();
        if (gives) child_.give_terminal();
        const bool stops = signal == SIGTSTP && settings_->stoppable;
        if (signal == SIGCONT || stops || Signals::is_forwarded(signal)) child_.send(signal);
        if (Signals::is_forwarded(signal)) forwarded_ = received;
        // Stopped, the command would not hear of it.
        if (Signals::is_forwarded(signal) && is_stopped()) child_.send(SIGCONT);
    }

    /// Also where `reap()` has not seen it yet.
    bool is_stopped() const {
        siginfo_t info{};
        const auto pid = static_cast<::id_t>(child_.pid());
        return is_stopped_ ||
               (::waitid(P_PID, pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0);
    }

    /// To the group that has stopped as it asked for the terminal. Where both have, the command's turn is next.
    void hand_terminal_over() {
        if (std::exchange(group_waits_, false)) {
            gives_terminal_ = false;
            child_.take_terminal();
            ::kill(0, SIGCONT);
        } else if (std::exchange(command_waits_, false)) {
            child_.give_terminal();
            child_.send(SIGCONT);
        }
    }

    /// The shell that could bring this program to the foreground has ended, or the terminal has. One that
    /// leads its session never had such a shell.
    bool is_orphaned() const {
        const bool leads = ::getsid(0) == ::getpid();
        const ::pid_t parents = ::getsid(::getppid());
        const bool has_no_shell = parents >= 0 && parents != ::getsid(0);
        return child_.has_lost_terminal() || (!leads && has_no_shell);
    }

    /// What the kernel does with a group that has stopped, and that nobody can let go on any more. It does so
    /// where a group has no parent in its session, which the command's group always has.
    void hang_up() {
        command_waits_ = false;
        child_.send(std::exchange(is_hung_up_, true) ? SIGKILL : SIGHUP);
        child_.send(SIGCONT);
    }

    std::optional<int> reap() {
        child_.reap_others();
        int status = 0;
        const ::pid_t pid = ::waitpid(child_.pid(), &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (pid != child_.pid()) return std::nullopt;
        is_stopped_ = WIFSTOPPED(status);
        if (WIFCONTINUED(status)) return std::nullopt;
        if (!is_stopped_) return status;
        const bool asks = Signals::asks_for_terminal(WSTOPSIG(status));
        if (asks && child_.is_in_foreground()) {
            command_waits_ = true;
        } else if (settings_->stoppable) {
            // The shell that started this program is to see that it has stopped.
            child_.take_terminal();
            ::raise(SIGSTOP);
        } else if (asks && !is_lost_ && !std::exchange(command_waits_, true)) {
            complain(*settings_,
                     "the command is stopped until it is in the foreground of its terminal; it "
                     "holds the lock");
            ::kill(
                0,
                SIGTTIN);  // so that this program's shell hears of it, or another of its kind does
        }
        return std::nullopt;
    }

    SteadyClock::duration time_to_wait() const {
        // A shell whose job has not stopped itself brings it to the foreground without a signal.
        constexpr std::chrono::milliseconds look_at_terminal{100};
        const SteadyClock::duration most =
            command_waits_ || group_waits_ ? look_at_terminal : SteadyClock::duration::max();
        return kill_at_ ? std::min(most, *kill_at_ - SteadyClock::now()) : most;
    }

    // ---- Afterwards

    int finish(Holding& held, int status) {
        const auto why_never_ran = child_.why_never_ran();
        if (!is_lost_ && why_never_ran) {
            acquisition_->free_at_once();
            child_.detach_group();
            if (*why_never_ran != 0) {
                complain(*settings_, "cannot execute " + shown(path_) + ": " +
                                         std::system_category().message(*why_never_ran));
            }
            return code_of(status);
        }
        if (!is_lost_ && !held.held()) note_late_loss();
        // What the command has left behind. Others may get the locks of a set by the release.
        if (is_lost_) child_.send(SIGKILL);
        const Result<redlatch::Release> released = held.release();
        const bool expired = released && *released != redlatch::Release::released;
        if (!is_lost_ && expired) note_late_loss();
        if (!released) complain(*settings_, released.error().describe());
        if (is_lost_) {
            child_.send(SIGKILL);
            return settings_->codes.of(Failure::lost);
        }
        child_.detach_group();
        is_silent_ = !released;
        return code_of(status);
    }

    /// It came, or was heard of, together with the end of the command.
    void note_late_loss() {
        is_lost_ = true;
        complain(*settings_, lost_lock() + " while the command ran");
    }

    /// The terminal sends what its keys mean to the group that has it, and SIGHUP as it is hung up. Where that is the
    /// command's, a script around this program, which is in this one's group, is to hear of it too.
    void note_key(int status, bool had_terminal) {
        const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        const bool is_hang_up =
            signal == SIGHUP && gives_terminal_ && !forwarded_ && child_.has_lost_terminal();
        if (is_hang_up) had_terminal = true;
        if (is_lost_ || (signal != SIGINT && signal != SIGQUIT && !is_hang_up)) return;
        if (forwarded_ && forwarded_->signal == signal) {
            if (forwarded_->from_key) key_ = signal;
        } else if (had_terminal) {
            key_ = signal;
            ::kill(0, signal);  // blocked here
        }
    }

    static int code_of(int status) {
        return WIFSIGNALED(status) ? ended_by_signal(WTERMSIG(status)) : WEXITSTATUS(status);
    }

    // ---- Waiting

    /// Blocks until a signal has come, `descriptor` can be read, or `time` is over.
    void wait_for(int descriptor, SteadyClock::duration time) const {
        std::array<pollfd, 2> entries{pollfd{signals_.descriptor(), POLLIN, 0},
                                      pollfd{descriptor, POLLIN, 0}};
        constexpr std::chrono::milliseconds most{3'600'000};
        auto left = most;
        if (time < most) {
            left = std::max(std::chrono::ceil<std::chrono::milliseconds>(time),
                            std::chrono::milliseconds::zero());
        }
        ::poll(entries.data(), entries.size(), static_cast<int>(left.count()));
    }

    static bool is_readable(int descriptor) {
        pollfd entry{descriptor, POLLIN, 0};
        return ::poll(&entry, 1, 0) == 1;
    }

    void say(const std::string& line) const {
        if (settings_->verbose) complain(*settings_, line);
    }

    const Settings* settings_;
    const std::string path_;  // of the command's program
    Signals signals_;
    Event lost_;
    Child child_;  // forked before there is a second thread
    std::unique_ptr<Acquisition> acquisition_;
    std::optional<SteadyClock::time_point> kill_at_;
    bool is_lost_ = false;
    bool is_silent_ = false;                        // the server, to the release
    std::optional<Signals::Received> forwarded_{};  // the last one
    int key_ = 0;
    bool gives_terminal_ = gives_terminal_at_start();
    bool command_waits_ = false;  // for the terminal, stopped
    bool is_stopped_ = false;     // the command, as `reap()` has seen last
    bool group_waits_ = false;    // for the terminal, stopped, all but this program
    bool is_hung_up_ = false;     // the command
};

/// Whether this program is run by a command that has such a lock, as far as that one's variables say.
bool is_within_one_of(const std::vector<std::string>& names) {
    for (const char* const variable : {"REDLATCH_NAME", "REDLATCH_NAMES"}) {
        const char* const value = std::getenv(variable);
        if (value == nullptr) continue;
        const std::string held = "\n" + std::string{value} + "\n";
        const auto is_held = [&held](const std::string& name) {
            return held.find("\n" + name + "\n") != std::string::npos;
        };
        if (std::ranges::any_of(names, is_held)) return true;
    }
    return false;
}

}  // namespace

int run(const Settings& settings) {
    int code = not_found;
    const std::string path = find_program(settings.command.front(), code);
    if (path.empty()) {
        complain(settings, code == not_found
                               ? shown(settings.command.front()) + " is not found"
                               : shown(settings.command.front()) + " cannot be executed");
        return code;
    }
    const bool excludes = settings.sharing != Sharing::reads && !settings.permits;
    if (excludes && settings.wait.is_unlimited() && is_within_one_of(settings.names)) {
        complain(settings,
                 "if the command around this one holds the same lock, both wait for ever");
    }
    std::optional<Run> ended{std::in_place, settings, path};
    code = ended->go();
    const int key = ended->key();
    const bool is_server_silent = ended->is_server_silent();
    if (!is_server_silent) ended.reset();
    // A shell goes on with a script where it has seen an interrupt, and a program that has not died of it.
    if (key != 0) Signals::end_by(key);
    if (is_server_silent) std::_Exit(code);
    return code;
}

}  // namespace tool
