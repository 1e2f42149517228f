#include "support/authority.hpp"
#include "support/cluster.hpp"
#include "support/in_background.hpp"
#include "support/process.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/sanitizers.hpp"
#include "support/sentinels.hpp"
#include "support/temp_folder.hpp"
#include "support/wait.hpp"
#include <redlatch/redlatch.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using Words = std::vector<std::string>;

std::string content(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

bool exists(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
}

/// Whether a process was stopped, as by the stop key.
bool is_stopped(pid_t id) {
    const std::string stat = content("/proc/" + std::to_string(id) + "/stat");
    const std::size_t name_end = std::min(stat.rfind(')'), stat.size());
    return stat.substr(name_end).starts_with(") T");
}

/// One run of the tool, with what it writes.
class ToolRun {
public:
    /// `error`: where its standard error goes; -1 for `errors()`.
    ToolRun(const Words& arguments, std::map<std::string, std::string> env,
            const Words& before = {}, int input = -1, int error = -1) {
        Words argv = before;
        argv.emplace_back(REDLATCH_TOOL);
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        const UniqueFd out = file("out");
        const UniqueFd err = file("err");
        process_ = spawn({.argv = argv,
                          .env = std::move(env),
                          .input = input,
                          .output = out.get(),
                          .error = error < 0 ? err.get() : error});
    }

    [[nodiscard]] std::string output() const { return content(folder_->file("out")); }
    [[nodiscard]] std::string errors() const { return content(folder_->file("err")); }
    ProcessHandle& process() { return process_; }

    /// Waits for its end. -1 where a signal ended it, or nothing did.
    int code() {
        const auto status = process_.wait();
        return status && status->signal == 0 ? status->code : -1;
    }

    /// Waits for its end: the signal that ended it; 0 where none did.
    int signal() {
        const auto status = process_.wait();
        return status ? status->signal : 0;
    }

private:
    [[nodiscard]] UniqueFd file(const std::string& name) const {
        return UniqueFd{::open(folder_->file(name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)};
    }

    std::unique_ptr<TempFolder> folder_ = std::make_unique<TempFolder>();
    ProcessHandle process_;
};

class Tool : public testing::Test {
protected:
    ToolRun run(const Words& arguments, const Words& before = {}, int input = -1) {
        return {arguments, {{"REDLATCH_URI", uri()}}, before, input};
    }

    /// `redlatch run <options> job -- sh -c <script>`; the script sees the folder as $F.
    ToolRun run_script(const std::string& script, Words options = {}, const Words& before = {},
                       int input = -1) {
        options.insert(options.begin(), "run");
        for (const std::string word : {"job", "--", "sh", "-c"}) options.push_back(word);
        options.push_back("export F=" + folder.path() + "; " + script);
        return run(options, before, input);
    }

    /// A command that holds `a` and `b`, and leaves a process behind that TERM does not end: its id is in $F/left.
    ToolRun run_leaving(const std::string& script, Words options) {
        options.insert(options.begin(), "run");
        for (const std::string word : {"a", "b", "--", "sh", "-c"}) options.push_back(word);
        options.push_back("export F=" + folder.path() +
                          "; (trap '' TERM; exec sh -c 'echo $$ >$F/left; exec sleep 1000') & " +
                          script);
        return run(options);
    }

    /// A shell whose terminal is `input`; the script runs the tool as "$0", and sees the folder as $F.
    ToolRun run_in_shell(const std::string& script, int input, const TempFolder& its,
                         const Words& shell = {"sh"}) {
        Words before{"setsid", "--ctty"};
        before.insert(before.end(), shell.begin(), shell.end());
        before.insert(before.end(), {"-c", script});
        return {{}, {{"REDLATCH_URI", uri()}, {"F", its.path()}}, before, input};
    }

    /// With time for answers that a busy machine keeps back.
    [[nodiscard]] std::string uri() const {
        return server.uri() + "?connect_timeout=10000&command_timeout=10000";
    }

    /// With little time for them, where a server is to be silent.
    [[nodiscard]] std::string impatient_uri() const {
        return server.uri() + "?connect_timeout=500&command_timeout=500";
    }

    [[nodiscard]] std::string file(const std::string& name) const { return folder.file(name); }

    /// Waits until the script has made that file.
    [[nodiscard]] bool made(const std::string& name) const {
        return eventually([&] { return exists(file(name)); });
    }

    /// The id that the script has written into that file.
    [[nodiscard]] pid_t id_in(const std::string& name) const {
        EXPECT_TRUE(eventually([&] { return content(file(name)).ends_with('\n'); }));
        return static_cast<pid_t>(std::stol("0" + content(file(name))));
    }

    [[nodiscard]] bool waits() {
        return eventually([&] { return raw.exists("redlatch:queue:{job}"); });
    }

    /// Waits until the server has heard once more from the lock's holder.
    [[nodiscard]] bool renews() {
        long long left = raw.pttl("job");
        return eventually([&] {
            const long long before = std::exchange(left, raw.pttl("job"));
            return left > before;
        });
    }

    /// The command, or what becomes it, and the watcher.
    [[nodiscard]] static std::vector<pid_t> children_of(ToolRun& tool) {
        const std::string id = std::to_string(tool.process().pid());
        std::istringstream children{content("/proc/" + id + "/task/" + id + "/children")};
        std::vector<pid_t> all;
        for (pid_t child = 0; children >> child;) all.push_back(child);
        return all;
    }

    RedisServer server{{.tcp = true}};
    RawRedis raw{server};
    TempFolder folder;
};

/// Whether a terminal shows it as one message, and does nothing else.
bool is_one_line(const std::string& errors) {
    return errors.starts_with("redlatch: ") && errors.find('\n') == errors.size() - 1 &&
           std::ranges::all_of(errors, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); });
}

// ---- Exit codes

TEST_F(Tool, ends_with_the_code_of_the_command) {
    EXPECT_EQ(run_script("exit 0").code(), 0);
    EXPECT_EQ(run_script("exit 7").code(), 7);
    EXPECT_EQ(run_script("exit 255").code(), 255);
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(Tool, ends_with_128_and_the_number_of_the_signal_that_ended_the_command) {
    EXPECT_EQ(run_script("kill -USR1 $$").code(), 128 + SIGUSR1);
    EXPECT_EQ(run_script("kill -KILL $$").code(), 128 + SIGKILL);
}

TEST_F(Tool, says_in_one_line_what_is_wrong_with_its_arguments) {
    const std::vector<Words> mistakes{
        {},
        {"lock"},
        {"run"},
        {"run", "job"},
        {"run", "job", "--"},
        {"run", "--", "true"},
        {"run", "one", "one", "--", "true"},
        {"run", "--permits", "2", "one", "two", "--", "true"},
        {"run", "--shared", "one", "two", "--", "true"},
        {"run", "--permits", "0", "job", "--", "true"},
        {"run", "--permits", "two", "job", "--", "true"},
        {"run", "--permits", "2", "--shared", "job", "--", "true"},
        {"run", "--shared", "--exclusive", "job", "--", "true"},
        {"run", "--at-least", "1", "--permits", "2", "job", "--", "true"},
        {"run", "--at-least", "1", "--shared", "job", "--", "true"},
        {"run", "--at-least", "soon", "job", "--", "true"},
        {"run", "a", "b\nc", "--", "true"},
        {"run", "--key-space", "{x}", "job", "--", "true"},
        {"run", "--key-space", "", "job", "--", "true"},
        {"run", "--wait", "soon", "job", "--", "true"},
        {"run", "--wait", "-1", "job", "--", "true"},
        {"run", "--lease", "nan", "job", "--", "true"},
        {"run", "--lease", "0x10", "job", "--", "true"},
        {"run", "--lease", " 10", "job", "--", "true"},
        {"run", "--lease", "0", "job", "--", "true"},
        {"run", "--wait"},
        {"run", "--nothing", "job", "--", "true"},
        {"run", "-x", "job", "--", "true"},
        {"run", "job", "--nothing", "--", "true"},
        {"run", "job", "-x", "--", "true"},
        {"run", "job", "--wait", "soon", "--", "true"},
        {"run", "job", "--wait"},
        {"run", "job", "sleep", "5"},
        {"run", "--quiet=yes", "job", "--", "true"},
        {"run", "-E", "busy", "job", "--", "true"},
        {"run", "-E", "busy=256", "job", "--", "true"},
        {"run", "-E", "idle=1", "job", "--", "true"},
        {"run", "--uri", "http://here", "job", "--", "true"},
        {"run", "--uri-file", "/nowhere", "job", "--", "true"},
        {"run", "redlatch:mine", "--", "true"},
        {"run", "", "--", "true"},
        {"status"},
        {"status", "one", "two"},
        {"status", "job", "--wait", "1"},
        {"break"},
        {"break", "job"},
        {"a\nb\x1b"},
        {"status", "job", "b\nc\x1b"},
        {"run", "--wait", "1\n2\x1b", "job", "--", "true"},
        {"run", "--permits", "1\n2\x1b", "job", "--", "true"},
        {"run", "-E", "a\nb\x1b", "job", "--", "true"},
        {"run", "--uri-file", "/no\nwhere\x1b", "job", "--", "true"},
        {"run", "--a\nb\x1b", "job", "--", "true"},
        {"run", "-\n", "job", "--", "true"},
    };
    for (const Words& arguments : mistakes) {
        ToolRun tool = run(arguments);
        EXPECT_EQ(tool.code(), 64) << testing::PrintToString(arguments);
        EXPECT_TRUE(is_one_line(tool.errors())) << tool.errors();
    }
    EXPECT_TRUE(raw.keys().empty());
}

TEST_F(Tool, says_in_one_line_that_a_command_cannot_be_run) {
    const std::string program = file("a\nb\x1b");
    const auto expect_one_line = [&](int code) {
        ToolRun tool = run({"run", "job", "--", program});
        EXPECT_EQ(tool.code(), code);
        EXPECT_TRUE(is_one_line(tool.errors())) << tool.errors();
    };
    expect_one_line(127);
    std::ofstream{program} << "#!/\n";  // its interpreter is a folder
    expect_one_line(126);
    ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
    expect_one_line(126);
}

TEST_F(Tool, says_why_it_cannot_read_the_file_of_uris) {
    ToolRun missing = run({"run", "--uri-file", file("uri"), "job", "--", "true"});
    EXPECT_EQ(missing.code(), 64);
    EXPECT_NE(missing.errors().find("No such file"), std::string::npos) << missing.errors();
    ToolRun is_a_folder = run({"run", "--uri-file", folder.path(), "job", "--", "true"});
    EXPECT_EQ(is_a_folder.code(), 64);
    EXPECT_NE(is_a_folder.errors().find("directory"), std::string::npos) << is_a_folder.errors();
}

TEST_F(Tool, says_what_is_wrong_with_an_option_that_there_is) {
    const auto complaint_about = [&](const Words& arguments) {
        ToolRun tool = run(arguments);
        EXPECT_EQ(tool.code(), 64);
        return tool.errors();
    };
    for (const std::string number : {"1e10", "1e300", "-1"}) {
        const std::string said = complaint_about({"run", "--wait", number, "job", "--", "true"});
        EXPECT_NE(said.find("between 0 and 1000000000"), std::string::npos) << said;
    }
    const std::string word = complaint_about({"run", "--wait", "soon", "job", "--", "true"});
    EXPECT_NE(word.find("no number"), std::string::npos) << word;
    const std::string json = complaint_about({"run", "--json", "job", "--", "true"});
    EXPECT_NE(json.find("--json is for status"), std::string::npos) << json;
    const std::string wait = complaint_about({"status", "--wait=1", "job"});
    EXPECT_NE(wait.find("--wait is for run"), std::string::npos) << wait;
}

TEST_F(Tool, shows_no_value_of_an_option_that_there_is_not) {
    for (const std::string option : {"--url", "--ur"}) {
        ToolRun tool = run({"status", option + "=redis://:secret@here", "job"});
        EXPECT_EQ(tool.code(), 64);
        EXPECT_NE(tool.errors().find(option), std::string::npos) << tool.errors();
        EXPECT_EQ(tool.errors().find("secret"), std::string::npos) << tool.errors();
    }
    ToolRun valued = run({"run", "--no-wait", "--quiet=yes", "job", "--", "true"});
    EXPECT_EQ(valued.code(), 64);
    EXPECT_NE(valued.errors().find("--quiet takes no value"), std::string::npos) << valued.errors();
}

TEST_F(Tool, says_that_options_stand_behind_what_is_to_be_done) {
    ToolRun tool = run({"--uri", "redis://:secret@here", "status", "job"});
    EXPECT_EQ(tool.code(), 64);
    EXPECT_NE(tool.errors().find("options stand behind"), std::string::npos) << tool.errors();
    EXPECT_EQ(tool.errors().find("secret"), std::string::npos) << tool.errors();
}

TEST_F(Tool, reads_options_before_and_behind_the_names) {
    raw.set("job", "somebody");
    EXPECT_EQ(run({"run", "job", "--no-wait", "--", "true"}).code(), 75);
    EXPECT_EQ(run({"run", "other", "job", "-w", "0", "-E", "busy=3", "--", "true"}).code(), 3);
    ToolRun json = run({"status", "job", "--json"});
    EXPECT_EQ(json.code(), 0);
    EXPECT_TRUE(json.output().starts_with("{"));
    EXPECT_EQ(run({"break", "job", "--yes"}).code(), 0);
    EXPECT_EQ(run({"run", "gpus", "--permits", "4", "--", "ls", "--all", "--", "/"}).code(), 0);
    EXPECT_TRUE(raw.keys().size() <= 1) << testing::PrintToString(raw.keys());
    raw.set("--json", "somebody");
    EXPECT_EQ(run({"status", "--", "--json"}).code(), 0);
}

TEST_F(Tool, fails_where_its_answer_cannot_be_written) {
    for (const Words& arguments : {Words{"status", "job"}, Words{"--version"}}) {
        ToolRun tool = run(arguments, {"sh", "-c", "exec \"$0\" \"$@\" >/dev/full"});
        EXPECT_EQ(tool.code(), 70);
        EXPECT_NE(tool.errors().find("No space left"), std::string::npos) << tool.errors();
        ToolRun closed = run(arguments, {"sh", "-c", "exec \"$0\" \"$@\" >&-"});
        EXPECT_EQ(closed.code(), 70);
        EXPECT_NE(closed.errors().find("Bad file descriptor"), std::string::npos)
            << closed.errors();
    }
    ToolRun own = run({"run", "job", "--", "true"}, {"sh", "-c", "exec \"$0\" \"$@\" >&-"});
    EXPECT_EQ(own.code(), 0) << own.errors();
}

TEST_F(Tool, has_a_code_for_a_key_that_is_no_lock) {
    raw.command({"RPUSH", "job", "data"});
    EXPECT_EQ(run_script("exit 0").code(), 65);
    EXPECT_EQ(run({"status", "job"}).code(), 65);
    EXPECT_EQ(run({"break", "--yes", "job"}).code(), 65);
}

TEST_F(Tool, has_the_same_code_for_it_at_several_masters) {
    const RedisServer second;
    const RedisServer third;
    Words masters;
    for (const RedisServer* const one : {&std::as_const(server), &second, &third}) {
        RawRedis{*one}.command({"ZADD", "job", "1", "data"});
        masters.insert(masters.end(), {"--uri", one->uri()});
    }
    for (Words arguments : {Words{"status"}, Words{"break", "--yes"}}) {
        arguments.insert(arguments.end(), masters.begin(), masters.end());
        arguments.emplace_back("job");
        ToolRun tool = run(arguments);
        EXPECT_EQ(tool.code(), 65) << tool.errors();
    }
}

TEST_F(Tool, has_a_code_for_a_server_that_is_not_there) {
    server.stop();
    EXPECT_EQ(run_script("exit 0", {"--wait", "0.2"}).code(), 69);
    EXPECT_EQ(run_script("exit 0", {"--no-wait"}).code(), 69);
    EXPECT_EQ(run({"status", "job"}).code(), 69);
}

TEST_F(Tool, says_once_that_it_waits_for_a_server) {
    server.stop();
    ToolRun tool = run_script("touch $F/ran");
    const auto said = [&] { return tool.errors(); };
    ASSERT_TRUE(eventually([&] { return said().ends_with("\n"); }));
    EXPECT_TRUE(said().starts_with("redlatch: still waiting: no usable answer")) << said();
    server.start();
    EXPECT_EQ(tool.code(), 0);
    EXPECT_TRUE(exists(file("ran")));
    EXPECT_EQ(std::ranges::count(said(), '\n'), 1) << said();
}

TEST_F(Tool, says_what_is_wrong_with_how_the_server_is_set_up) {
    raw.command({"CONFIG", "SET", "maxmemory", "100mb"});
    raw.command({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
    ToolRun tool = run_script("true");
    EXPECT_EQ(tool.code(), 0);
    EXPECT_TRUE(is_one_line(tool.errors())) << tool.errors();
    EXPECT_NE(tool.errors().find("warning: "), std::string::npos) << tool.errors();
    EXPECT_NE(tool.errors().find("allkeys-lru"), std::string::npos) << tool.errors();
    raw.set("job", "somebody");
    ToolRun busy = run_script("true", {"-n", "-E", "busy=0"});
    EXPECT_EQ(busy.code(), 0);
    EXPECT_EQ(busy.errors(), "") << "a crontab would mail it from all machines but one";
    raw.del("job");
    ToolRun quiet = run_script("true", {"--quiet"});
    EXPECT_EQ(quiet.code(), 0);
    EXPECT_EQ(quiet.errors(), "");
}

TEST_F(Tool, says_that_it_waits_for_a_quorum) {
    RedisServer one;
    RedisServer two;
    RedisServer three;
    const Words uris{"--uri", one.uri(), "--uri", two.uri(), "--uri", three.uri()};
    two.stop();
    three.stop();
    ToolRun tool = run_script("true", uris);
    EXPECT_TRUE(eventually([&] { return tool.errors().ends_with("\n"); }));
    EXPECT_TRUE(tool.errors().starts_with("redlatch: still waiting: no quorum")) << tool.errors();
    tool.process().kill(SIGTERM);
    EXPECT_EQ(tool.code(), 128 + SIGTERM);
}

TEST_F(Tool, says_what_it_does_where_it_is_asked_to) {
    raw.set("job", "somebody");
    ToolRun tool = run_script("true", {"--verbose"});
    EXPECT_TRUE(eventually([&] { return tool.errors() == "redlatch: waiting for job\n"; }))
        << tool.errors();
    raw.del("job");
    EXPECT_EQ(tool.code(), 0);
    EXPECT_NE(tool.errors().find("redlatch: acquired, fence "), std::string::npos) << tool.errors();
}

TEST_F(Tool, takes_no_uri_for_a_name) {
    for (const std::string uri : {"redis://:s3cret@h", "REDISS://:s3cret@h:1", "unix://:s3cret@/x",
                                  "redis+cluster://:s3cret@h"}) {
        for (const Words& arguments :
             {Words{"run", uri, "job", "--", "true"}, Words{"run", "job", uri, "--", "true"},
              Words{"status", uri}, Words{"break", "--yes", uri}, Words{"status", "job", uri},
              Words{uri}, Words{"run", "--wait", uri, "job", "--", "true"},
              Words{"run", "--permits", uri, "job", "--", "true"},
              Words{"run", "-E", uri, "job", "--", "true"},
              Words{"run", "--uri-file", uri, "job", "--", "true"},
              Words{"run", "--" + uri, "job", "--", "true"}}) {
            ToolRun tool = run(arguments);
            EXPECT_EQ(tool.code(), 64) << tool.errors();
            EXPECT_EQ(tool.errors().find("s3cret"), std::string::npos) << tool.errors();
            EXPECT_NE(tool.errors().find("URI"), std::string::npos) << tool.errors();
        }
        ToolRun as_command = run({"run", "job", "--", uri});
        EXPECT_EQ(as_command.code(), 127);
        EXPECT_EQ(as_command.errors(), "redlatch: a URI is not found\n");
    }
    EXPECT_EQ(run({"run", "https://shop/cart", "--", "true"}).code(), 0);
}

TEST_F(Tool, runs_a_script_that_does_not_say_whose_it_is) {
    std::ofstream{file("script")} << "echo \"$0 $1\"\n";
    ::chmod(file("script").c_str(), 0700);
    ToolRun tool = run({"run", "job", "--", file("script"), "one two"});
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(tool.output(), file("script") + " one two\n");
}

TEST_F(Tool, takes_no_hash_away_that_is_data) {
    raw.command({"HSET", "session", "user", "1", "name", "bob"});
    raw.command({"HSET", "name", "bob", "x"});
    raw.command({"PEXPIRE", "name", "60000"});
    for (const std::string name : {"session", "name"}) {
        EXPECT_EQ(run({"status", name}).code(), 65);
        ToolRun tool = run({"break", "--yes", name});
        EXPECT_EQ(tool.code(), 65);
        EXPECT_EQ(tool.errors(),
                  "redlatch: '" + name + "' is no lock; redis-cli TYPE tells what it is\n");
        EXPECT_EQ(raw.type(name), "hash");
    }
}

TEST_F(Tool, has_a_code_for_a_lock_that_it_did_not_get) {
    raw.set("job", "somebody");
    ToolRun once = run_script("touch $F/ran", {"--no-wait"});
    EXPECT_EQ(once.code(), 75);
    EXPECT_NE(once.errors().find("the lock is taken: held by"), std::string::npos) << once.errors();
    int code = 69;
    EXPECT_TRUE(eventually([&] {  // on a busy machine the answer to the last try may be too late
        code = run_script("touch $F/ran", {"--wait", "0.1"}).code();
        return code != 69;
    }));
    EXPECT_EQ(code, 75);
    EXPECT_EQ(run_script("touch $F/ran", {"-w", "0"}).code(), 75);
    EXPECT_FALSE(exists(file("ran")));
}

TEST_F(Tool, has_a_code_for_a_refused_log_in) {
    RedisServer guarded{{.password = "right"}};
    ToolRun tool = run({"run", "--uri", guarded.uri(), "job", "--", "true"});
    EXPECT_EQ(tool.code(), 77);
}

TEST_F(Tool, knows_before_it_waits_that_there_is_no_such_command) {
    raw.set("job", "somebody");
    EXPECT_EQ(run({"run", "job", "--", "no-such-program"}).code(), 127);
    EXPECT_EQ(run({"run", "job", "--", "/no/such/program"}).code(), 127);
    EXPECT_EQ(run({"run", "job", "--", "/etc/passwd"}).code(), 126);
    EXPECT_EQ(run({"run", "job", "--", "/"}).code(), 126);
}

TEST_F(Tool, changes_its_codes_when_it_is_told_to) {
    raw.set("job", "somebody");
    ToolRun success = run_script("exit 0", {"-n", "-E", "busy=0"});
    EXPECT_EQ(success.code(), 0);
    EXPECT_EQ(success.errors(), "") << "cron would mail it";
    ToolRun verbose = run_script("exit 0", {"-n", "-E", "busy=0", "-v"});
    EXPECT_EQ(verbose.code(), 0);
    EXPECT_NE(verbose.errors().find("the lock is taken"), std::string::npos) << verbose.errors();
    EXPECT_EQ(run_script("exit 0", {"-n", "-E", "lost=3,busy=4"}).code(), 4);
    EXPECT_EQ(run({"run", "-E", "usage=99", "--nothing"}).code(), 99);
    EXPECT_EQ(run_script("exit 64", {"-E", "usage=1", "-n", "-E", "busy=2"}).code(), 2);
}

/// The default code, and another one that `-E` gives for the same failure.
template <class Failing>
void expect_code(const std::string& name, int code, Failing failing) {
    ToolRun by_default = failing(Words{});
    EXPECT_EQ(by_default.code(), code) << by_default.errors();
    ToolRun changed = failing(Words{"-E", name + "=9"});
    EXPECT_EQ(changed.code(), 9) << changed.errors();
}

TEST_F(Tool, changes_the_code_of_a_lost_lock) {
    expect_code("lost", 79, [&](Words options) {
        options.insert(options.end(), {"--lease", "300"});
        const std::string up = "up" + std::to_string(options.size());
        ToolRun tool = run_script(
            "touch $F/" + up + "; while [ ! -e $F/" + up + ".go ]; do sleep 0.02; done", options);
        EXPECT_TRUE(made(up));
        raw.set("job", "somebody");
        std::ofstream{file(up + ".go")};
        tool.process().wait();
        raw.del("job");
        return tool;
    });
}

TEST_F(Tool, changes_the_code_of_a_key_that_is_no_lock) {
    raw.command({"RPUSH", "job", "data"});
    expect_code("type", 65, [&](const Words& options) { return run_script("exit 0", options); });
    expect_code("type", 65, [&](Words options) {
        options.insert(options.begin(), "status");
        options.emplace_back("job");
        return run(options);
    });
}

TEST_F(Tool, changes_the_code_of_a_server_that_is_not_there) {
    server.stop();
    expect_code("server", 69, [&](Words options) {
        options.emplace_back("-n");
        return run_script("exit 0", options);
    });
    expect_code("server", 69, [&](Words options) {
        options.insert(options.begin(), {"break", "--yes"});
        options.emplace_back("job");
        return run(options);
    });
}

TEST_F(Tool, changes_the_code_of_a_refused_user_or_command) {
    const RedisServer guarded{{.password = "right"}};
    const RedisServer limited{{.acl = {"default on nopass ~* +@all -@scripting"}}};
    for (const RedisServer* const refusing : {&guarded, &limited}) {
        expect_code("denied", 77, [&](Words options) {
            options.insert(options.end(), {"--uri", refusing->uri()});
            return run_script("exit 0", options);
        });
    }
}

TEST_F(Tool, has_a_code_for_what_nobody_expects) {
    const RedisServer strange{
        {.config = {{"rename-command", "EVAL \"\""}, {"rename-command", "EVALSHA \"\""}}}};
    expect_code("internal", 70, [&](Words options) {
        options.insert(options.end(), {"--uri", strange.uri()});
        return run_script("exit 0", options);
    });
}

TEST_F(Tool, has_a_code_for_a_system_that_gives_it_no_descriptors) {
#if defined(REDLATCH_TEST_ASAN)
    GTEST_SKIP() << "UBSan, which comes with ASan, looks at objects through a pipe of its own";
#endif
    expect_code("internal", 70, [&](const Words& options) {
        return run_script("exit 0", options, {"sh", "-c", "ulimit -n 6; exec \"$0\" \"$@\""});
    });
}

// ---- Waiting

TEST_F(Tool, runs_one_command_at_a_time) {
    std::vector<ToolRun> runs;
    runs.reserve(5);
    for (int i = 0; i < 5; ++i) {
        runs.push_back(run_script("mkdir $F/inside || touch $F/two; sleep 0.05; rmdir $F/inside"));
    }
    for (ToolRun& tool : runs) EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_FALSE(exists(file("two")));
}

TEST_F(Tool, waits_without_limit_by_default_and_then_runs_the_command) {
    raw.set("job", "somebody");
    ToolRun tool = run_script("touch $F/ran");
    ASSERT_TRUE(waits());
    EXPECT_FALSE(exists(file("ran")));
    raw.del("job");
    EXPECT_EQ(tool.code(), 0);
    EXPECT_TRUE(exists(file("ran")));
}

TEST_F(Tool, ends_at_once_at_a_signal_while_it_waits_and_leaves_nothing_behind) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
        raw.set("job", "somebody");
        ToolRun tool = run_script("touch $F/ran");
        ASSERT_TRUE(waits());
        tool.process().kill(signal);
        EXPECT_EQ(tool.code(), 128 + signal) << tool.errors();
        raw.del("job");
        EXPECT_TRUE(eventually([&] {
            return raw.keys() == Words{"redlatch:fence:{job}"} || raw.keys().empty();
        })) << testing::PrintToString(raw.keys());
        EXPECT_FALSE(exists(file("ran")));
    }
}

// ---- The command's surroundings

TEST_F(Tool, tells_the_command_which_lock_it_has) {
    EXPECT_EQ(
        run_script("echo $REDLATCH_NAME $REDLATCH_FENCE >$F/env; echo $REDLATCH_TOKEN >$F/token;"
                   "exit 0")
            .code(),
        0);
    EXPECT_EQ(content(file("env")), "job " + raw.get("redlatch:fence:{job}").value_or("") + "\n");
    EXPECT_GT(content(file("token")).size(), 16U);
}

TEST_F(Tool, takes_no_fence_where_none_is_wanted) {
    ToolRun tool = run_script("echo \"<${REDLATCH_FENCE-none}>\"", {"--no-fence"});
    EXPECT_EQ(tool.code(), 0);
    EXPECT_EQ(tool.output(), "<none>\n");
    EXPECT_TRUE(raw.keys().empty()) << testing::PrintToString(raw.keys());
}

TEST_F(Tool, shows_the_command_nothing_of_an_outer_lock) {
    for (const Words& inner : {Words{"inner"}, Words{"--no-fence", "inner"},
                               Words{"--permits", "4", "inner"}, Words{"inner", "second"}}) {
        Words words{"run", "job", "--", REDLATCH_TOOL, "run", "-u", uri()};
        words.insert(words.end(), inner.begin(), inner.end());
        words.insert(words.end(), {"--", "sh", "-c", "env | grep ^REDLATCH_"});
        ToolRun tool = run(words);
        EXPECT_EQ(tool.code(), 0) << tool.errors();
        const bool has_fence = inner == Words{"inner"};
        const bool has_names = inner.back() == "second";
        EXPECT_EQ(tool.output().find("job"), std::string::npos) << tool.output();
        EXPECT_EQ(tool.output().find("REDLATCH_FENCE=") != std::string::npos, has_fence);
        EXPECT_EQ(tool.output().find("REDLATCH_NAME=") == std::string::npos, has_names);
    }
}

TEST_F(Tool, never_shows_the_uri_to_the_command) {
    ToolRun tool = run_script("env | grep -c REDLATCH_URI");
    tool.code();
    EXPECT_EQ(tool.output(), "0\n");
}

TEST_F(Tool, takes_no_other_server_where_the_uri_was_kept_from_it) {
    ToolRun inner = run_script(REDLATCH_TOOL " run --no-wait inner -- true");
    EXPECT_EQ(inner.code(), 64);
    EXPECT_NE(inner.errors().find("does not see its REDLATCH_URI"), std::string::npos)
        << inner.errors();
    ToolRun named{
        {"run", "--uri", uri(), "outer", "--", REDLATCH_TOOL, "run", "-n", "inner", "--", "true"},
        {}};
    EXPECT_EQ(named.code(), 64) << "by --uri too: " << named.errors();
    EXPECT_EQ(run_script("REDLATCH_URI='" + uri() + "' " REDLATCH_TOOL " run inner -- true").code(),
              0);
}

TEST_F(Tool, gives_the_command_its_standard_input) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    UniqueFd read{ends[0]};
    UniqueFd write{ends[1]};
    ASSERT_EQ(::write(write.get(), "typed\n", 6), 6);
    write.reset();
    ToolRun tool = run_script("cat", {}, {}, read.get());
    EXPECT_EQ(tool.code(), 0);
    EXPECT_EQ(tool.output(), "typed\n");
}

TEST_F(Tool, reads_the_uri_from_a_file) {
    std::ofstream{file("uri")} << uri() << "\n";
    ToolRun tool{{"run", "--uri-file", file("uri"), "job", "--", "true"},
                 {{"REDLATCH_URI", "redis://127.0.0.1:1"}}};
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

TEST_F(Tool, says_that_it_may_wait_for_the_command_around_it) {
    std::ofstream{file("uri")} << uri();
    ToolRun tool =
        run_script(REDLATCH_TOOL
                   " run --uri-file $F/uri other job -- true 2>$F/said & "
                   "while [ ! -e $F/go ]; do sleep 0.02; done; kill $!; wait $!; exit 3");
    EXPECT_TRUE(eventually(
        [&] { return content(file("said")).find("holds the same lock") != std::string::npos; }));
    std::ofstream{file("go")} << "\n";
    EXPECT_EQ(tool.code(), 3) << tool.errors();
    ToolRun beside = run({"run", "--shared", "book", "--", REDLATCH_TOOL, "run", "--uri", uri(),
                          "--shared", "book", "--", "true"});
    EXPECT_EQ(beside.code(), 0);
    EXPECT_EQ(beside.errors(), "") << "readers read side by side";
    ToolRun once = run_script(REDLATCH_TOOL " run -n --uri-file $F/uri job -- true; exit $?");
    EXPECT_EQ(once.code(), 75) << once.errors();
    EXPECT_EQ(once.errors().find("holds the same"), std::string::npos) << "it does not wait";
}

TEST_F(Tool, asks_several_masters_where_there_are_several_uris) {
    const RedisServer second;
    const RedisServer third;
    std::ofstream{file("first")} << "# the first of three\n " << server.uri() << " # here\n";
    std::ofstream{file("second")} << second.uri() << "\n";
    for (Words arguments :
         {Words{"--uri", server.uri(), "--uri", second.uri(), "--uri", third.uri()},
          Words{"--uri-file", file("first"), "--uri", second.uri(), "--uri", third.uri()},
          Words{"--uri", third.uri(), "--uri-file", file("first"), "--uri-file", file("second")}}) {
        arguments.insert(arguments.begin(), {"run", "--wait", "0.1"});
        arguments.insert(arguments.end(), {"job", "--", "true"});
        // None of them has a vote yet, as each may have forgotten a lock when it started.
        ToolRun tool = run(arguments);
        EXPECT_EQ(tool.code(), 69);
        EXPECT_NE(tool.errors().find("no quorum"), std::string::npos) << tool.errors();
    }
}

TEST_F(Tool, takes_a_lock_of_several_masters_for_no_longer_than_they_remember) {
    const RedisServer second;
    const RedisServer third;
    const Words masters{"--uri", server.uri(), "--uri", second.uri(), "--uri", third.uri()};
    const auto run_with = [&](Words options) {
        options.insert(options.begin(), "run");
        options.insert(options.end(), masters.begin(), masters.end());
        options.insert(options.end(), {"job", "--", "true"});
        return run(options);
    };
    ToolRun long_lease = run_with({"--lease", "25"});
    EXPECT_EQ(long_lease.code(), 64) << "with --kill-after it is longer than others expect";
    EXPECT_NE(long_lease.errors().find("longest_lease"), std::string::npos) << long_lease.errors();
    ToolRun never_forget = run_with({"--lease", "25", "--longest-lease", "0"});
    EXPECT_EQ(never_forget.code(), 0) << never_forget.errors();
}

#if defined(REDLATCH_TOOL_TLS)

class ToolTls : public Tool {
protected:
    /// Runs a command under a lock of that server, with and without trust in its authority.
    void expect_lock(const std::string& uri) {
        const Words arguments{"run", "--uri", uri + "?connect_timeout=10000&command_timeout=10000",
                              "job", "--",    "true"};
        ToolRun trusting{arguments, {{"SSL_CERT_FILE", authority.file()}}};
        EXPECT_EQ(trusting.code(), 0) << trusting.errors();
        ToolRun doubtful{arguments, {}};
        EXPECT_NE(doubtful.code(), 0);
        EXPECT_NE(doubtful.errors().find("certificate is not accepted"), std::string::npos)
            << doubtful.errors();
    }

    Authority authority;
    const ServerTls tls{authority.issue("DNS:localhost,IP:127.0.0.1"), authority.file()};
};

TEST_F(ToolTls, speaks_tls_to_a_server) {
    const RedisServer secure{{.tls = tls}};
    expect_lock(secure.tls_uri());
}

TEST_F(ToolTls, speaks_tls_to_sentinels) {
    const SentinelGroup group{{.tls = tls, .sentinels = 1}};
    expect_lock(group.uri());
}

TEST_F(ToolTls, speaks_tls_to_a_cluster) {
    const ClusterGroup group{{.tls = tls}};
    expect_lock(group.uri());
}

#endif

TEST_F(Tool, knows_a_scheme_in_capitals) {
    ToolRun small = run({"run", "-w", "0", "--uri", "rediss://127.0.0.1:1", "job", "--", "true"});
    ToolRun capital = run({"run", "-w", "0", "--uri", "REDISS://127.0.0.1:1", "job", "--", "true"});
    EXPECT_EQ(capital.code(), small.code()) << capital.errors();
}

TEST_F(Tool, says_nothing_where_nothing_goes_wrong_or_it_is_told_to_be_quiet) {
    ToolRun good = run({"run", "job", "--", "true"});
    EXPECT_EQ(good.code(), 0);
    EXPECT_EQ(good.errors(), "");
    ToolRun quiet =
        run({"run", "-q", "-w", "0", "--uri", "redis://127.0.0.1:1", "job", "--", "true"});
    EXPECT_EQ(quiet.code(), 69);
    EXPECT_EQ(quiet.errors(), "");
    std::ofstream{file("program")} << "#!/\n";  // its interpreter is a folder
    ASSERT_EQ(::chmod(file("program").c_str(), 0700), 0);
    ToolRun no_program = run({"run", "--quiet", "job", "--", file("program")});
    EXPECT_EQ(no_program.code(), 126);
    EXPECT_EQ(no_program.errors(), "");
    ToolRun verbose = run({"run", "-v", "job", "--", "true"});
    EXPECT_EQ(verbose.code(), 0);
    EXPECT_NE(verbose.errors(), "");
}

TEST_F(Tool, renews_a_short_lease_while_the_command_runs) {
    ToolRun tool = run_script("sleep 6; touch $F/ran", {"--lease", "4", "-k", "0"});
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_TRUE(exists(file("ran")));
}

TEST_F(Tool, keeps_a_dead_machines_lock_as_long_as_its_command_may_run) {
    ToolRun tool = run_script("touch $F/up; sleep 1000", {"--lease", "5", "--kill-after", "60"});
    ASSERT_TRUE(made("up"));
    EXPECT_GT(raw.pttl("job"), 60'000);
    tool.process().kill(SIGTERM);
    EXPECT_EQ(tool.code(), 128 + SIGTERM);
}

// ---- Several locks, and locks of other kinds

TEST_F(Tool, holds_all_of_several_locks) {
    ToolRun tool =
        run({"run", "b", "a", "--", "sh", "-c",
             "echo \"$REDLATCH_NAMES\"; echo \"$REDLATCH_FENCES\"; "
             "echo \"<${REDLATCH_NAME-none}>\"; touch " +
                 file("up") + "; while [ ! -e " + file("go") + " ]; do sleep 0.02; done"});
    ASSERT_TRUE(made("up"));
    EXPECT_TRUE(raw.exists("a") && raw.exists("b"));
    EXPECT_EQ(run({"run", "-n", "a", "--", "true"}).code(), 75);
    EXPECT_EQ(run({"run", "-n", "c", "b", "--", "true"}).code(), 75);
    EXPECT_FALSE(raw.exists("c")) << "all or none";
    const std::string fences = raw.get("redlatch:fence:{b}").value_or("") + "\n" +
                               raw.get("redlatch:fence:{a}").value_or("") + "\n";
    std::ofstream{file("go")};
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(tool.output(), "b\na\n" + fences + "<none>\n");
    EXPECT_FALSE(raw.exists("a") || raw.exists("b"));
}

TEST_F(Tool, tells_of_a_name_with_a_line_break_where_it_is_the_only_one) {
    ToolRun tool = run({"run", "a\nb", "--", "sh", "-c", "echo \"$REDLATCH_NAME\""});
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(tool.output(), "a\nb\n");
    ToolRun refused = run({"run", "c", "a\nb", "--", "true"});
    EXPECT_EQ(refused.code(), 64);
    EXPECT_NE(refused.errors().find("line break"), std::string::npos) << refused.errors();
}

TEST_F(Tool, ends_the_command_when_one_of_several_locks_is_lost) {
    ToolRun tool = run({"run", "--lease", "3", "a", "b", "--", "sh", "-c",
                        "touch " + file("up") + "; exec sleep 1000"});
    ASSERT_TRUE(made("up"));
    raw.del("b");
    EXPECT_EQ(tool.code(), 79);
    EXPECT_TRUE(eventually([&] { return !raw.exists("a"); }));
}

/// A script that shows that it runs, and ends when it is told to.
const std::string until_told = "touch $F/$0up; while [ ! -e $F/$0go ]; do sleep 0.02; done";

TEST_F(Tool, runs_as_many_at_a_time_as_there_are_permits) {
    const auto start = [&](const std::string& name) {
        return run({"run", "--permits", "2", "job", "--", "sh", "-c",
                    "F=" + folder.path() + "; " + until_told + "; exit 3", name});
    };
    ToolRun first = start("1");
    ToolRun second = start("2");
    ASSERT_TRUE(made("1up") && made("2up"));
    EXPECT_EQ(run({"run", "--permits", "2", "-n", "job", "--", "true"}).code(), 75);
    ToolRun third = start("3");
    ASSERT_TRUE(waits());
    EXPECT_FALSE(exists(file("3up")));
    std::ofstream{file("1go")};
    EXPECT_EQ(first.code(), 3) << first.errors();
    ASSERT_TRUE(made("3up"));
    std::ofstream{file("2go")};
    std::ofstream{file("3go")};
    EXPECT_EQ(second.code(), 3);
    EXPECT_EQ(third.code(), 3);
    ToolRun fence = run_script("echo \"<${REDLATCH_FENCE-none}>\"", {"--permits", "2"});
    EXPECT_EQ(fence.code(), 0);
    EXPECT_EQ(fence.output(), "<none>\n");
}

TEST_F(Tool, shares_a_lock_with_others_or_takes_it_alone) {
    const auto start = [&](const std::string& how, const std::string& name) {
        return run({"run", how, "job", "--", "sh", "-c",
                    "F=" + folder.path() + "; " + until_told + "; exit 3", name});
    };
    ToolRun first = start("--shared", "1");
    ToolRun second = start("--shared", "2");
    ASSERT_TRUE(made("1up") && made("2up"));
    EXPECT_EQ(run({"run", "--exclusive", "-n", "job", "--", "true"}).code(), 75);
    ToolRun alone = start("--exclusive", "3");
    ASSERT_TRUE(waits());
    std::ofstream{file("1go")};
    EXPECT_EQ(first.code(), 3) << first.errors();
    EXPECT_FALSE(exists(file("3up")));
    std::ofstream{file("2go")};
    EXPECT_EQ(second.code(), 3);
    ASSERT_TRUE(made("3up"));
    EXPECT_EQ(run({"run", "--shared", "-n", "job", "--", "true"}).code(), 75);
    EXPECT_EQ(run({"run", "-n", "job", "--", "true"}).code(), 65) << "a lock of another kind";
    std::ofstream{file("3go")};
    EXPECT_EQ(alone.code(), 3);
    EXPECT_EQ(run({"run", "--shared", "--no-fence", "job", "--", "true"}).code(), 0);
}

TEST_F(Tool, lets_nobody_in_for_a_while_whatever_the_commands_code_was) {
    for (const std::string code : {"0", "5"}) {
        EXPECT_EQ(run_script("exit " + code, {"--at-least", "1000"}).code(), std::stoi(code));
        EXPECT_GT(raw.pttl("job"), 600'000);
        EXPECT_EQ(run_script("exit 0", {"-n"}).code(), 75);
        EXPECT_EQ(run({"break", "--yes", "job"}).code(), 0);
        EXPECT_FALSE(raw.exists("job"));
    }
    EXPECT_EQ(run({"run", "--at-least", "1000", "a", "b", "--", "true"}).code(), 0);
    EXPECT_TRUE(raw.exists("a") && raw.exists("b"));

    ToolRun killed = run_script("touch $F/up; sleep 1000", {"--at-least", "1000"});
    ASSERT_TRUE(made("up"));
    killed.process().kill(SIGKILL);
    EXPECT_EQ(killed.code(), -1);
    EXPECT_LE(raw.pttl("job"), 20'000) << "no longer than its lease and --kill-after";
}

TEST_F(Tool, frees_at_once_what_was_taken_for_a_command_that_did_not_run) {
    std::ofstream{file("program")} << "#!/\n";  // its interpreter is a folder
    ASSERT_EQ(::chmod(file("program").c_str(), 0700), 0);
    for (const Words& names : {Words{"job"}, Words{"job", "other"}}) {
        Words arguments{"run", "--at-least", "1000"};
        arguments.insert(arguments.end(), names.begin(), names.end());
        arguments.insert(arguments.end(), {"--", file("program")});
        EXPECT_EQ(run(arguments).code(), 126);
        for (const std::string& name : names) EXPECT_FALSE(raw.exists(name)) << name;
    }
}

TEST_F(Tool, keeps_its_other_keys_in_a_key_space) {
    const Words options{"--key-space", "svc:locks:"};
    ToolRun tool = run_script("touch $F/up; while [ ! -e $F/go ]; do sleep 0.02; done", options);
    ASSERT_TRUE(made("up"));
    EXPECT_EQ(raw.keys(), (Words{"job", "svc:locks:fence:{job}"}));
    ToolRun next = run_script("exit 4", options);
    ASSERT_TRUE(eventually([&] { return raw.exists("svc:locks:queue:{job}"); }));
    ToolRun shown = run({"status", "--key-space", "svc:locks:", "job"});
    EXPECT_EQ(shown.code(), 0);
    EXPECT_NE(shown.output().find("waiters: 1"), std::string::npos) << shown.output();
    EXPECT_EQ(run({"break", "--yes", "--key-space", "svc:locks:", "job"}).code(), 0);
    EXPECT_EQ(next.code(), 4);
    EXPECT_EQ(tool.code(), 79);
}

// ---- Signals while the command runs

TEST_F(Tool, passes_signals_on_to_the_whole_group) {
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2}) {
        const std::string n = std::to_string(signal);
        ToolRun tool = run_script("trap 'touch $F/outer" + n + "' " + n +
                                  "; sh -c 'trap \"touch $F/inner" + n + "; exit\" " + n +
                                  "; touch $F/up" + n + "; while :; do sleep 0.02; done'; exit 5");
        ASSERT_TRUE(made("up" + n));
        tool.process().kill(signal);
        EXPECT_EQ(tool.code(), 5) << n;
        EXPECT_TRUE(made("outer" + n) && made("inner" + n)) << n;
    }
}

TEST_F(Tool, leaves_signals_ignored_that_were) {
    ToolRun tool =
        run_script("touch $F/up; while [ ! -e $F/go ]; do sleep 0.02; done; exit 6", {}, {"nohup"});
    ASSERT_TRUE(made("up"));
    tool.process().kill(SIGHUP);
    std::ofstream{file("go")};
    EXPECT_EQ(tool.code(), 6);
}

TEST_F(Tool, learns_the_code_of_the_command_also_where_the_end_of_children_is_ignored) {
    raw.set("job", "somebody");  // until the test ignores it no more
    ::signal(SIGCHLD, SIG_IGN);
    ToolRun tool = run({"run", "job", "--", "grep", "SigIgn", "/proc/self/status", "/"});
    ::signal(SIGCHLD, SIG_DFL);
    ASSERT_TRUE(waits());
    raw.del("job");
    EXPECT_EQ(tool.code(), 2);  // as the last one is a folder
    const std::string output = tool.output();
    ASSERT_NE(output.find('\t'), output.npos) << output;
    const auto ignored = std::stoull(output.substr(output.find('\t')), nullptr, 16);
    EXPECT_NE(ignored & (1ULL << (SIGCHLD - 1)), 0U) << "the command is to ignore it too";
}

TEST_F(Tool, notices_that_its_command_was_killed_while_it_waited) {
    raw.set("job", "somebody");
    ToolRun tool = run_script("exit 0", {"--at-least", "1000"});
    ASSERT_TRUE(waits());
    const std::vector<pid_t> children = children_of(tool);
    ASSERT_FALSE(children.empty());
    ::kill(children.front(), SIGKILL);
    raw.del("job");
    EXPECT_EQ(tool.code(), 128 + SIGKILL);
    EXPECT_FALSE(raw.exists("job")) << "it did not run, so --at-least does not count";
}

TEST_F(Tool, takes_the_whole_group_with_it_when_it_is_killed) {
    ToolRun tool = run_script("sh -c 'echo $$ >$F/inner; sleep 1000; :' & echo $$ >$F/outer; wait");
    const pid_t inner = id_in("inner");
    const pid_t outer = id_in("outer");
    tool.process().kill(SIGKILL);
    EXPECT_TRUE(eventually([&] { return !process_alive(inner) && !process_alive(outer); }));
}

TEST_F(Tool, takes_the_command_with_it_when_its_watcher_is_killed_too) {
    for (const bool watcher_first : {false, true}) {
        ToolRun tool = run({"run", "job", "--", "sleep", "1000"});
        ASSERT_TRUE(eventually([&] { return children_of(tool).size() == 2; }));
        const std::vector<pid_t> children = children_of(tool);
        const auto file_of = [](pid_t id, const std::string& name) {
            return content("/proc/" + std::to_string(id) + "/" + name);
        };
        const pid_t watcher = children.back();
        ASSERT_TRUE(eventually([&] { return file_of(watcher, "comm") == "watcher\n"; }))
            << "as long as it goes by the tool's name, killall finds it";
        EXPECT_FALSE(file_of(watcher, "cmdline").starts_with(REDLATCH_TOOL)) << "pkill -f finds it";
        const pid_t command = children.front();
        ASSERT_TRUE(eventually([&] { return file_of(command, "comm") == "sleep\n"; }));
        if (watcher_first) ::kill(watcher, SIGKILL);
        tool.process().kill(SIGKILL);
        ::kill(watcher, SIGKILL);
        EXPECT_TRUE(eventually([&] { return !process_alive(command); }));
        if (process_alive(command)) ::kill(command, SIGKILL);
        raw.del("job");
    }
}

TEST_F(Tool, reaps_the_orphans_that_a_container_leaves_to_it) {
    const std::string adopt_orphans =
        "import ctypes, os, sys\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"  // PR_SET_CHILD_SUBREAPER
        "os.execv(sys.argv[1], sys.argv[1:])";
    ToolRun tool = run_script(
        "touch $F/up; while [ ! -e $F/go ]; do sleep 0.02; done; (sh -c 'echo $$ >$F/orphan' &); "
        "exec sleep 1000",
        {}, {"python3", "-c", adopt_orphans});
    ASSERT_TRUE(made("up"));
    ::kill(children_of(tool).back(), SIGKILL);  // the watcher's end must not be in the way
    std::ofstream{file("go")};
    const pid_t orphan = id_in("orphan");
    const std::string its = "/proc/" + std::to_string(orphan);
    EXPECT_TRUE(eventually([&] { return !exists(its); })) << content(its + "/status");
    tool.process().kill(SIGTERM);
    EXPECT_EQ(tool.code(), 128 + SIGTERM);
}

TEST_F(Tool, never_starts_the_command_when_it_is_killed_while_it_waits) {
    raw.set("job", "somebody");
    ToolRun tool = run_script("touch $F/ran");
    ASSERT_TRUE(waits());
    tool.process().kill(SIGKILL);
    raw.del("job");
    ToolRun next = run_script("exit 0");  // comes behind it
    EXPECT_EQ(next.code(), 0);
    EXPECT_FALSE(exists(file("ran")));
}

TEST_F(Tool, lets_go_on_what_the_command_has_left_in_the_background) {
    ToolRun tool = run_script(
        "sh -c 'echo $$ >$F/inner; exec sleep 1000' >/dev/null 2>&1 & "
        "while [ ! -s $F/inner ]; do sleep 0.02; done");
    EXPECT_EQ(tool.code(), 0);
    const pid_t left = id_in("inner");
    EXPECT_TRUE(process_alive(left));
    ::kill(left, SIGKILL);
}

// ---- Loss

TEST_F(Tool, ends_the_command_when_the_lock_is_lost) {
    ToolRun tool =
        run_script("trap 'touch $F/term; exit 0' TERM; touch $F/up; while :; do sleep 0.02; done",
                   {"--lease", "3", "-k", "30"});
    ASSERT_TRUE(made("up"));
    raw.del("job");
    EXPECT_EQ(tool.code(), 79);  // though the command said 0
    EXPECT_TRUE(exists(file("term")));
    EXPECT_NE(tool.errors().find("lost"), std::string::npos) << tool.errors();
}

TEST_F(Tool, kills_a_command_that_does_not_end_after_a_loss) {
    ToolRun tool = run_script("trap '' TERM; echo $$ >$F/up; while :; do sleep 0.02; done",
                              {"--lease", "3", "-k", "0.3"});
    const pid_t command = id_in("up");
    raw.del("job");
    EXPECT_EQ(tool.code(), 79);
    EXPECT_FALSE(process_alive(command));
}

TEST_F(Tool, wakes_a_stopped_command_when_the_lock_is_lost) {
    ToolRun tool =
        run_script("trap 'touch $F/term; exit 0' TERM; echo $$ >$F/up; kill -STOP $$; exit 0",
                   {"--lease", "3", "-k", "30"});
    EXPECT_GT(id_in("up"), 0);
    raw.del("job");
    EXPECT_EQ(tool.code(), 79);
    EXPECT_TRUE(exists(file("term")));
}

TEST_F(Tool, kills_what_the_command_has_left_before_the_rest_of_a_set_is_released) {
    ToolRun tool = run_leaving(
        "trap 'touch $F/term; while [ ! -e $F/go ]; do sleep 0.02; done; exit 0' TERM; "
        "touch $F/up; while :; do sleep 0.02; done",
        {"--lease", "3", "-k", "60"});
    const pid_t left = id_in("left");
    ASSERT_TRUE(made("up"));
    raw.del("b");
    ASSERT_TRUE(made("term"));
    server.freeze();
    std::ofstream{file("go")};
    // The release waits for its answer for ten seconds.
    EXPECT_TRUE(eventually([&] { return !process_alive(left); }, 8s));
    server.thaw();
    EXPECT_EQ(tool.code(), 79);
}

// The command's end and the loss are seen at the same time.
TEST_F(Tool, that_slept_through_the_loss_kills_what_is_left_before_it_releases) {
    ToolRun tool = run_leaving("touch $F/up; while [ ! -e $F/go ]; do sleep 0.02; done; exit 0",
                               {"--lease", "3", "-k", "1"});
    const pid_t left = id_in("left");
    ASSERT_TRUE(made("up"));
    tool.process().kill(SIGSTOP);
    std::ofstream{file("go")};
    ASSERT_TRUE(eventually([&] { return !raw.exists("a") && !raw.exists("b"); }));
    server.freeze();
    tool.process().kill(SIGCONT);
    // The release waits for its answer for ten seconds.
    EXPECT_TRUE(eventually([&] { return !process_alive(left); }, 8s));
    server.thaw();
    EXPECT_EQ(tool.code(), 79);
}

TEST_F(Tool, wakes_a_stopped_command_by_a_signal_that_goes_on_to_it) {
    ToolRun tool = run_script(
        "trap 'touch $F/term; exit 3' TERM; echo $$ >$F/up; kill -STOP $$; while :; do sleep 0.02; "
        "done");
    const pid_t command = id_in("up");
    ASSERT_TRUE(eventually([&] { return is_stopped(command); }));
    tool.process().kill(SIGTERM);
    EXPECT_EQ(tool.code(), 3);
    EXPECT_TRUE(exists(file("term")));
}

TEST_F(Tool, says_that_the_lock_was_lost_though_the_command_ended_well_meanwhile) {
    ToolRun tool = run_script("touch $F/up; while [ ! -e $F/go ]; do sleep 0.02; done; exit 0");
    ASSERT_TRUE(made("up"));
    raw.set("job", "somebody");
    std::ofstream{file("go")};
    EXPECT_EQ(tool.code(), 79) << tool.errors();
    EXPECT_EQ(raw.get("job"), "somebody");
}

TEST_F(Tool, ends_the_command_when_the_server_is_silent_for_a_whole_lease) {
    ToolRun tool = run_script(
        "exec 2>/dev/null; trap 'touch $F/term; exit 0' TERM; touch $F/up; while :; do sleep 0.02; "
        "done",
        {"--uri", impatient_uri(), "--lease", "3", "-k", "30"});
    ASSERT_TRUE(made("up"));
    server.freeze();
    EXPECT_EQ(tool.code(), 79);  // though the command said 0
    EXPECT_TRUE(exists(file("term")));
    const std::string line = "redlatch: the lock 'job' was lost; the command is ended";
    EXPECT_TRUE(tool.errors().starts_with(line)) << tool.errors();
    EXPECT_NE(tool.errors().find("last error: no usable answer"), std::string::npos)
        << tool.errors();
}

TEST_F(Tool, kills_a_command_that_does_not_end_after_a_loss_by_silence) {
    ToolRun tool = run_script("trap '' TERM; echo $$ >$F/up; while :; do sleep 0.02; done",
                              {"--uri", impatient_uri(), "--lease", "3", "-k", "0.3"});
    const pid_t command = id_in("up");
    server.freeze();
    EXPECT_EQ(tool.code(), 79);
    EXPECT_FALSE(process_alive(command));
    const std::string line = "redlatch: the lock 'job' was lost; the command is ended";
    EXPECT_TRUE(tool.errors().starts_with(line)) << tool.errors();
    EXPECT_NE(tool.errors().find("last error: no usable answer"), std::string::npos)
        << tool.errors();
}

TEST_F(Tool, gives_the_code_of_a_command_that_ended_while_the_server_was_silent) {
    ToolRun tool = run_script("touch $F/up; while [ ! -e $F/go ]; do sleep 0.02; done; exit 5",
                              {"--uri", impatient_uri(), "--lease", "300"});
    ASSERT_TRUE(made("up"));
    server.freeze();
    std::ofstream{file("go")};
    EXPECT_EQ(tool.code(), 5) << tool.errors();  // long before the lease is over
    const std::string errors = tool.errors();
    EXPECT_TRUE(errors.starts_with("redlatch: ")) << errors;
    EXPECT_EQ(errors.find('\n'), errors.size() - 1) << errors;
}

TEST_F(Tool, waits_no_second_time_for_a_silent_server_when_the_command_has_ended) {
    const auto silent = [&](const std::string& timeout) {
        return server.uri() + "?connect_timeout=" + timeout + "&command_timeout=" + timeout;
    };
    ToolRun tool = run_script("touch $F/up; while [ ! -e $F/go ]; do sleep 0.02; done; exit 5",
                              {"--uri", silent("6000"), "--lease", "300"});
    ASSERT_TRUE(made("up"));
    server.freeze();
    std::ofstream{file("go")};
    ASSERT_TRUE(eventually([&] { return tool.errors().ends_with('\n'); }));  // of the release
    ToolRun half = run({"status", "--uri", silent("3000"), "job"});
    EXPECT_EQ(tool.code(), 5) << tool.errors();
    EXPECT_TRUE(half.process().running()) << "which waits for half of that time";
}

/// One thread of a process stands still, as after a debugger's break, while the others go on.
class StoppedThread {
public:
    explicit StoppedThread(pid_t id) : id_{id} {
        int status = 0;
        stopped_ = ::ptrace(PTRACE_SEIZE, id, nullptr, nullptr) == 0 &&
                   ::ptrace(PTRACE_INTERRUPT, id, nullptr, nullptr) == 0 &&
                   ::waitpid(id, &status, __WALL) == id && WIFSTOPPED(status);
    }
    ~StoppedThread() { go_on(); }
    StoppedThread(const StoppedThread&) = delete;
    StoppedThread& operator=(const StoppedThread&) = delete;

    /// False where the system forbids it.
    [[nodiscard]] bool stopped() const { return stopped_; }
    void go_on() {
        if (std::exchange(stopped_, false)) ::ptrace(PTRACE_DETACH, id_, nullptr, nullptr);
    }

private:
    pid_t id_;
    bool stopped_ = false;
};

TEST_F(Tool, never_starts_a_command_whose_lock_was_lost_before) {
    constexpr auto lease = 2s;
    raw.set("job", "somebody");
    ToolRun tool = run_script("touch $F/ran", {"--lease", "2"});
    ASSERT_TRUE(waits());
    // The thread that starts the command. Another one gets the lock meanwhile.
    StoppedThread starter{tool.process().pid()};
    if (!starter.stopped()) GTEST_SKIP() << "a process may not stop another one's thread here";
    raw.del("job");
    ASSERT_TRUE(eventually([&] { return raw.exists("job"); }));
    raw.ping();  // its answer comes behind the one to the tool
    server.freeze();
    std::this_thread::sleep_for(lease);
    starter.go_on();
    const std::string line = "redlatch: the lock 'job' was lost before the command started\n";
    EXPECT_TRUE(eventually([&] { return tool.errors() == line; })) << tool.errors();
    server.thaw();
    EXPECT_EQ(tool.code(), 79);
    EXPECT_FALSE(exists(file("ran")));
    EXPECT_EQ(tool.errors(), line);
}

// ---- Nobody reads what it says

/// A pipe that is full, as of a pager that is not scrolled.
class FullPipe {
public:
    FullPipe() {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error{"pipe"};
        read_ = UniqueFd{ends[0]};
        write_ = UniqueFd{ends[1]};
        while (::write(ends[1], "x", 1) == 1) {
        }
        ::fcntl(ends[1], F_SETFL, 0);
    }
    [[nodiscard]] int input() const { return write_.get(); }

private:
    UniqueFd read_;
    UniqueFd write_;
};

TEST_F(Tool, ends_the_command_at_a_loss_that_it_cannot_tell_of) {
    const FullPipe unread;
    ToolRun tool{{"run", "--lease", "3", "--kill-after", "1", "job", "--", "sh", "-c",
                  "trap '' TERM; touch " + file("up") + "; while :; do sleep 1; done"},
                 {{"REDLATCH_URI", uri()}},
                 {},
                 -1,
                 unread.input()};
    ASSERT_TRUE(made("up"));
    raw.set("job", "somebody");
    EXPECT_EQ(tool.code(), 79);
    EXPECT_EQ(raw.get("job"), "somebody");
}

TEST_F(Tool, frees_the_lock_of_a_command_that_it_cannot_execute_and_cannot_tell_of) {
    std::ofstream{file("program")} << "#!/\n";  // its interpreter is a folder
    ASSERT_EQ(::chmod(file("program").c_str(), 0700), 0);
    const FullPipe unread;
    ToolRun tool{
        {"run", "job", "--", file("program")}, {{"REDLATCH_URI", uri()}}, {}, -1, unread.input()};
    EXPECT_EQ(tool.code(), 126);
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(Tool, hears_signals_while_it_cannot_tell_what_it_waits_for) {
    raw.set("job", "somebody");
    const FullPipe unread;
    ToolRun tool{{"run", "--verbose", "job", "--", "true"},
                 {{"REDLATCH_URI", uri()}},
                 {},
                 -1,
                 unread.input()};
    ASSERT_TRUE(waits());
    tool.process().kill(SIGTERM);
    EXPECT_EQ(tool.code(), 128 + SIGTERM);
}

// ---- A terminal

/// A terminal with nobody at it but the test.
class Terminal {
public:
    Terminal() {
        int master = -1;
        int slave = -1;
        if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0)
            throw std::runtime_error{"openpty"};
        master_ = UniqueFd{master};
        slave_ = UniqueFd{slave};
        ::fcntl(master, F_SETFD, FD_CLOEXEC);
        ::fcntl(slave, F_SETFD, FD_CLOEXEC);
    }
    [[nodiscard]] int input() const { return slave_.get(); }
    void hang_up() { master_ = UniqueFd{}; }
    /// The process group that has the terminal.
    [[nodiscard]] pid_t foreground() const { return ::tcgetpgrp(master_.get()); }
    void type(std::string_view keys) const {
        ASSERT_EQ(::write(master_.get(), keys.data(), keys.size()),
                  static_cast<ssize_t>(keys.size()));
    }
    /// Nobody reads it: it has room for the beginning of a long message, and not for the rest.
    void fill() const {
        const UniqueFd writer{
            ::open(::ptsname(master_.get()), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
        const std::string some(64, 'x');
        while (is_ready(writer)) ASSERT_GT(::write(writer.get(), some.data(), some.size()), 0);
        std::array<char, 16> few{};
        while (!is_ready(writer)) ASSERT_GT(::read(master_.get(), few.data(), few.size()), 0);
    }

private:
    /// What was written goes on to the reader's side in the background.
    static bool is_ready(const UniqueFd& writer) {
        constexpr int patience_ms = 50;
        pollfd entry{writer.get(), POLLOUT, 0};
        return ::poll(&entry, 1, patience_ms) == 1;
    }

    UniqueFd master_;
    UniqueFd slave_;
};

const Words with_terminal{"setsid", "--ctty"};
constexpr std::string_view interrupt_key{"\x03"};
constexpr std::string_view stop_key{"\x1a"};

TEST_F(Tool, ends_the_command_at_a_loss_that_no_terminal_takes) {
    const std::string name(1000, '\xff');  // shown as four characters each
    const Terminal unread;
    unread.fill();
    ToolRun tool{{"run", "--lease", "3", "--kill-after", "1", name, "--", "sh", "-c",
                  "trap '' TERM; touch " + file("up") + "; while :; do sleep 1; done"},
                 {{"REDLATCH_URI", uri()}},
                 {},
                 -1,
                 unread.input()};
    ASSERT_TRUE(made("up"));
    raw.set(name, "somebody");
    EXPECT_EQ(tool.code(), 79);
    EXPECT_EQ(raw.get(name), "somebody");
    EXPECT_EQ(::fcntl(unread.input(), F_GETFL) & O_NONBLOCK, 0) << "of what it shares with others";
}

TEST_F(Tool, starts_the_command_where_no_terminal_takes_what_it_says) {
    Words arguments{"run", "--verbose"};
    for (int i = 0; i < 400; ++i) arguments.push_back("job" + std::to_string(i));
    for (const std::string& word : {"--"s, "touch"s, file("ran")}) arguments.push_back(word);
    const Terminal unread;
    unread.fill();
    ToolRun tool{arguments, {{"REDLATCH_URI", uri()}}, {}, -1, unread.input()};
    EXPECT_EQ(tool.code(), 0);
    EXPECT_TRUE(exists(file("ran")));
}

TEST_F(Tool, lets_the_command_read_from_the_terminal) {
    const Terminal terminal;
    ToolRun tool = run_script("touch $F/up; read line; echo $line >$F/line", {}, with_terminal,
                              terminal.input());
    ASSERT_TRUE(made("up"));
    terminal.type("typed\n");
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(content(file("line")), "typed\n");
}

TEST_F(Tool, lets_the_interrupt_key_end_the_command) {
    const Terminal terminal;
    ToolRun tool = run_script("touch $F/up; exec sleep 1000", {}, with_terminal, terminal.input());
    ASSERT_TRUE(made("up"));
    terminal.type(interrupt_key);
    EXPECT_EQ(tool.signal(), SIGINT) << tool.errors();
    EXPECT_FALSE(raw.exists("job"));
}

TEST_F(Tool, lets_the_interrupt_key_end_the_script_around_it) {
    for (const std::string shell : {"sh", "bash"}) {
        for (const std::string reader : {"", " | cat"}) {  // beside which it keeps the terminal
            const Terminal terminal;
            const TempFolder its;
            ToolRun script = run_in_shell("\"$0\" run job -- sh -c 'touch $F/up; exec sleep 1000'" +
                                              reader + "; touch $F/went_on",
                                          terminal.input(), its, {shell});
            ASSERT_TRUE(eventually([&] { return exists(its.file("up")); }));
            terminal.type(interrupt_key);
            EXPECT_EQ(script.signal(), SIGINT) << shell << reader << script.errors();
            EXPECT_FALSE(exists(its.file("went_on"))) << shell << reader;
            EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
        }
    }
}

TEST_F(Tool, lets_the_interrupt_key_end_the_script_that_waits_for_its_lock) {
    raw.set("job", "somebody");
    for (const std::string shell : {"sh", "bash"}) {
        const Terminal terminal;
        const TempFolder its;
        ToolRun script = run_in_shell("\"$0\" run job -- true; touch $F/went_on", terminal.input(),
                                      its, {shell});
        ASSERT_TRUE(waits());
        terminal.type(interrupt_key);
        EXPECT_EQ(script.signal(), SIGINT) << shell << script.errors();
        EXPECT_FALSE(exists(its.file("went_on"))) << shell;
        EXPECT_TRUE(eventually([&] { return !raw.exists("redlatch:queue:{job}"); }));
    }
}

TEST_F(Tool, lets_the_end_of_its_terminal_end_the_script_around_it) {
    Terminal terminal;
    ToolRun leader = run_in_shell(
        "sh -c 'echo $$ >$F/script; \"$0\" run job -- sh -c \"touch $F/up; exec sleep 1000\"; "
        "touch $F/went_on' \"$0\"; :",
        terminal.input(), folder);
    ASSERT_TRUE(made("up"));
    const pid_t script = id_in("script");
    terminal.hang_up();
    EXPECT_TRUE(eventually([&] { return ::kill(script, 0) != 0 && errno == ESRCH; }));
    EXPECT_FALSE(exists(file("went_on")));
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
}

TEST_F(Tool, ends_a_command_that_waits_for_its_terminal_when_the_shell_has_ended) {
    const Terminal terminal;
    ToolRun shell = run_in_shell(
        "set -m; \"$0\" run job -- sh -c 'echo $$ >$F/up; read line </dev/tty; touch "
        "$F/read' & until [ -e $F/end ]; do sleep 0.02; done",
        terminal.input(), folder);
    const pid_t command = id_in("up");
    ASSERT_TRUE(eventually([&] { return is_stopped(command); })) << "as it reads";
    std::ofstream{file("end")};
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
    EXPECT_FALSE(exists(file("read")));
}

TEST_F(Tool, ends_a_command_that_waits_for_a_terminal_which_no_shell_can_give_it) {
    const Terminal terminal;
    ToolRun shell = run_in_shell(
        "set -m; (\"$0\" run job -- sh -c 'touch $F/up; until [ -e $F/end ]; do sleep "
        "0.02; done; read line </dev/tty; touch $F/read' &); sleep 1000",
        terminal.input(), folder);
    ASSERT_TRUE(made("up"));
    std::ofstream{file("end")};
    EXPECT_TRUE(eventually([&] { return !raw.exists("job"); }));
    EXPECT_FALSE(exists(file("read")));
    shell.process().kill(SIGKILL);
}

TEST_F(Tool, leaves_a_script_alone_whose_command_dealt_with_the_interrupt_key) {
    const Terminal terminal;
    ToolRun script = run_in_shell(
        "\"$0\" run job -- sh -c 'trap \"exit 3\" INT; touch $F/up; while :; do sleep 0.1; done'; "
        "exit $?",
        terminal.input(), folder);
    ASSERT_TRUE(made("up"));
    terminal.type(interrupt_key);
    EXPECT_EQ(script.code(), 3) << script.errors();
}

TEST_F(Tool, ends_with_a_code_by_an_interrupt_that_is_of_no_key) {
    ToolRun tool = run_script("touch $F/up; exec sleep 1000");
    ASSERT_TRUE(made("up"));
    tool.process().kill(SIGINT);
    EXPECT_EQ(tool.code(), 128 + SIGINT) << tool.errors();
}

TEST_F(Tool, lets_the_interrupt_key_end_its_own_wait) {
    raw.set("job", "somebody");
    const Terminal terminal;
    ToolRun tool = run_script("exit 0", {}, with_terminal, terminal.input());
    ASSERT_TRUE(waits());
    terminal.type(stop_key);  // of no effect where there is no shell to bring it back
    terminal.type(interrupt_key);
    EXPECT_EQ(tool.signal(), SIGINT) << tool.errors();
}

TEST_F(Tool, keeps_the_stop_key_from_a_command_with_a_lock) {
    const Terminal terminal;
    ToolRun tool =
        run_script("touch $F/up; read line; exit 3", {}, with_terminal, terminal.input());
    ASSERT_TRUE(made("up"));
    terminal.type(stop_key);
    terminal.type("typed\n");
    EXPECT_EQ(tool.code(), 3) << tool.errors();
}

TEST_F(Tool, gives_the_terminal_back) {
    const Terminal terminal;
    ToolRun tool{{},
                 {{"REDLATCH_URI", uri()}},
                 {"setsid", "--ctty", "sh", "-c",
                  "\"$0\" run job -- true; read line; echo $line >" + file("line")},
                 terminal.input()};
    terminal.type("typed\n");
    EXPECT_EQ(tool.code(), 0);
    EXPECT_EQ(content(file("line")), "typed\n");
}

TEST_F(Tool, leaves_the_terminal_to_the_script_around_it_when_it_is_killed) {
    const Terminal terminal;
    ToolRun script = run_in_shell(
        "\"$0\" run job -- sh -c 'echo $PPID >$F/tool; exec sleep 1000'; "
        "until read line; do sleep 0.1; done; "
        "echo $line >$F/line",
        terminal.input(), folder);
    const pid_t tool = id_in("tool");
    ASSERT_TRUE(eventually([&] { return terminal.foreground() != script.process().pid(); }));
    ::kill(tool, SIGKILL);
    ASSERT_TRUE(eventually([&] { return terminal.foreground() == script.process().pid(); }));
    terminal.type("typed\n");
    EXPECT_EQ(script.code(), 0) << script.errors();
    EXPECT_EQ(content(file("line")), "typed\n");
}

TEST_F(Tool, stops_together_with_a_stoppable_command_and_goes_on_with_it) {
    const Terminal terminal;
    ToolRun tool = run_script("echo $$ >$F/up; read line; echo $line >$F/line; exit 3",
                              {"--stoppable", "--lease", "300"}, with_terminal, terminal.input());
    const pid_t command = id_in("up");
    const pid_t itself = tool.process().pid();
    EXPECT_EQ(terminal.foreground(), command);
    for (int i = 0; i < 2; ++i) {
        terminal.type(stop_key);
        ASSERT_TRUE(eventually([&] { return is_stopped(command) && is_stopped(itself); }));
        EXPECT_EQ(terminal.foreground(), itself) << "the shell is to find it as it was";
        tool.process().kill(SIGCONT);
        ASSERT_TRUE(eventually([&] { return terminal.foreground() == command; }));
        EXPECT_TRUE(eventually([&] { return !is_stopped(command) && !is_stopped(itself); }));
    }
    terminal.type("typed\n");
    EXPECT_EQ(tool.code(), 3) << tool.errors();
    EXPECT_EQ(content(file("line")), "typed\n");
    EXPECT_EQ(tool.errors(), "");
}

TEST_F(Tool, sees_after_a_stop_that_somebody_else_has_got_the_lock) {
    const Terminal terminal;
    ToolRun tool = run_script("echo $$ >$F/up; read line; exit 3",
                              {"--stoppable", "--lease", "300"}, with_terminal, terminal.input());
    const pid_t command = id_in("up");
    terminal.type(stop_key);
    ASSERT_TRUE(
        eventually([&] { return is_stopped(command) && is_stopped(tool.process().pid()); }));
    raw.set("job", "somebody");
    tool.process().kill(SIGCONT);
    terminal.type("typed\n");
    EXPECT_EQ(tool.code(), 79) << tool.errors();
    EXPECT_EQ(raw.get("job"), "somebody");
}

TEST_F(Tool, is_a_job_that_a_shell_can_stop_and_bring_back) {
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "set -m; \"$0\" run --stoppable --lease 30 job -- sh -c "
        "'touch $F/up; read line; echo $line >$F/line; exit 3'; echo $? >$F/stopped; "
        "fg; echo $? >$F/code; read line; echo $line >$F/next",
        terminal.input(), folder);
    ASSERT_TRUE(made("up"));
    terminal.type(stop_key);
    EXPECT_EQ(id_in("stopped"), 128 + SIGSTOP);
    terminal.type("typed\n");
    EXPECT_EQ(id_in("code"), 3);
    terminal.type("next\n");
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(content(file("line")), "typed\n");
    EXPECT_EQ(content(file("next")), "next\n");
}

TEST_F(Tool, leaves_the_terminal_to_the_shell_that_runs_it_in_the_background) {
    for (const std::string how : {"", "--stoppable"}) {
        const TempFolder own;
        const Terminal terminal;
        ToolRun tool = run_in_shell(
            "set -m; \"$0\" run " + how +
                " job -- sh -c "
                "'echo $$ >$F/up; while [ ! -e $F/go ]; do sleep 0.02; done; exit 3' & "
                "read line; echo $line >$F/line; wait $!; echo $? >$F/code; "
                "read line; echo $line >$F/next",
            terminal.input(), own);
        ASSERT_TRUE(eventually([&] { return content(own.file("up")).ends_with('\n'); }));
        EXPECT_EQ(terminal.foreground(), tool.process().pid());
        terminal.type("typed\n");
        ASSERT_TRUE(eventually([&] { return content(own.file("line")) == "typed\n"; }));
        std::ofstream{own.file("go")};
        ASSERT_TRUE(eventually([&] { return content(own.file("code")) == "3\n"; }))
            << content(own.file("code")) << tool.errors();
        EXPECT_EQ(terminal.foreground(), tool.process().pid());
        terminal.type("next\n");
        EXPECT_EQ(tool.code(), 0) << tool.errors();
        EXPECT_EQ(content(own.file("next")), "next\n");
    }
}

TEST_F(Tool, leaves_the_terminal_to_a_shell_that_sends_it_to_the_background) {
    ASSERT_EQ(::mkfifo(file("go").c_str(), 0600), 0);
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "set -m; \"$0\" run --stoppable --lease 30 job -- sh -c "
        "'echo $$ >$F/up; read word <$F/go; exit 3'; "
        "bg; read line; echo $line >$F/line; wait %1; echo $? >$F/code",
        terminal.input(), folder);
    const pid_t command = id_in("up");
    terminal.type(stop_key);
    ASSERT_TRUE(eventually([&] { return tool.output().starts_with("[1] "); }));  // of `bg`
    ASSERT_TRUE(eventually([&] { return !is_stopped(command); }));
    terminal.type("typed\n");
    EXPECT_TRUE(eventually([&] { return content(file("line")) == "typed\n"; }));
    EXPECT_EQ(terminal.foreground(), tool.process().pid());
    std::ofstream{file("go")} << "go\n";
    EXPECT_EQ(id_in("code"), 3);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

TEST_F(Tool, gives_the_command_the_terminal_when_a_shell_brings_it_to_the_foreground) {
    // bash sends no SIGCONT to a job that has not stopped, as without --stoppable.
    const Words bash{"bash", "--norc", "-i"};
    for (const auto& [shell, how] : std::vector<std::pair<Words, std::string>>{
             {{"sh"}, ""}, {{"sh"}, "--stoppable "}, {bash, ""}, {bash, "--stoppable "}}) {
        SCOPED_TRACE(shell.front() + " " + how);
        const TempFolder own;
        const Terminal terminal;
        // What the shell has not heard of yet, its `fg` would take for a stop that comes later.
        const std::string hears_of_stop =
            how.empty() ? ""
                        : "until jobs >$F/jobs; grep -q Stopped $F/jobs; do sleep 0.02; done; ";
        ToolRun tool =
            run_in_shell("set -m; \"$0\" run " + how +
                             "--lease 30 job -- sh -c "
                             "'echo $$ >$F/up; read line; echo $line >$F/line; exit 3' & "
                             "while [ ! -e $F/fg ]; do sleep 0.02; done; " +
                             hears_of_stop + "fg; echo $? >$F/code",
                         terminal.input(), own, shell);
        ASSERT_TRUE(eventually([&] { return content(own.file("up")).ends_with('\n'); }));
        const auto command = static_cast<pid_t>(std::stol(content(own.file("up"))));
        ASSERT_TRUE(eventually([&] { return is_stopped(command); })) << "as it reads";
        if (how.empty()) {
            EXPECT_TRUE(eventually([&] {
                return tool.errors().find("the command is stopped") != std::string::npos;
            })) << "it is to say so, as the shell cannot";
        }
        std::ofstream{own.file("fg")};
        terminal.type("typed\n");
        EXPECT_EQ(tool.code(), 0) << tool.errors();
        EXPECT_EQ(content(own.file("line")), "typed\n");
        EXPECT_EQ(content(own.file("code")), "3\n");
    }
}

TEST_F(Tool, gives_the_command_the_terminal_though_it_began_to_wait_in_the_background) {
    raw.set("job", "somebody");
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "set -m; \"$0\" run job -- sh -c 'touch $F/up; read line; echo $line >$F/line; exit 3' & "
        "echo $! >$F/tool; while [ ! -e $F/fg ]; do sleep 0.02; done; fg; echo $? >$F/code",
        terminal.input(), folder);
    ASSERT_TRUE(waits());
    std::ofstream{file("fg")};
    const pid_t itself = id_in("tool");
    ASSERT_TRUE(eventually([&] { return terminal.foreground() == itself; }));
    raw.del("job");
    ASSERT_TRUE(made("up"));
    terminal.type(stop_key);
    terminal.type("typed\n");
    EXPECT_EQ(id_in("code"), 3) << "the stop key is of no effect, as for one begun in front";
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(content(file("line")), "typed\n");
}

TEST_F(Tool, leaves_the_terminal_to_a_shell_that_sent_it_to_the_background_while_it_waited) {
    raw.set("job", "somebody");
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "set -m; \"$0\" run job -- sh -c "
        "'touch $F/up; while [ ! -e $F/go ]; do sleep 0.02; done; exit 3'; echo $? >$F/stopped; "
        "bg; read line; echo $line >$F/line; wait %1; echo $? >$F/code",
        terminal.input(), folder);
    const pid_t shell = tool.process().pid();
    ASSERT_TRUE(waits());
    terminal.type(stop_key);
    EXPECT_GT(id_in("stopped"), 128);
    raw.del("job");
    ASSERT_TRUE(made("up"));
    EXPECT_EQ(terminal.foreground(), shell);
    terminal.type("typed\n");
    EXPECT_TRUE(eventually([&] { return content(file("line")) == "typed\n"; }));
    std::ofstream{file("go")};
    EXPECT_EQ(id_in("code"), 3);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

TEST_F(Tool, goes_on_renewing_at_the_stop_key_where_its_input_is_no_terminal) {
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "set -m; \"$0\" run job -- sh -c "
        "'echo $PPID >$F/up; while [ ! -e $F/go ]; do sleep 0.02; done; exit 3' </dev/null; "
        "echo $? >$F/code",
        terminal.input(), folder);
    const pid_t itself = id_in("up");
    terminal.type(stop_key);
    ::kill(itself, SIGUSR1);  // which the command gets, unless this one has stopped
    EXPECT_EQ(id_in("code"), 128 + SIGUSR1);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

TEST_F(Tool, stops_a_stoppable_command_whose_input_is_no_terminal) {
    // A shell that starts a program does not stop, as vfork() holds it: this one starts none.
    ASSERT_EQ(::mkfifo(file("word").c_str(), 0600), 0);
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "set -m; \"$0\" run --stoppable --lease 300 job -- sh -c "
        "'echo $$ >$F/up; read word <$F/word; exit 3' </dev/null; "
        "echo $? >$F/stopped; "
        "while [ ! -e $F/go ]; do sleep 0.02; done; fg; echo $? >$F/code",
        terminal.input(), folder);
    const pid_t command = id_in("up");
    terminal.type(stop_key);
    EXPECT_TRUE(eventually([&] { return is_stopped(command); }));
    EXPECT_GT(id_in("stopped"), 128);
    std::ofstream{file("go")};
    std::ofstream{file("word")} << "go\n";
    EXPECT_EQ(id_in("code"), 3);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

TEST_F(Tool, ends_a_command_at_a_terminal_that_stops_those_who_write_from_the_background) {
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "set -m; stty tostop; \"$0\" run --lease 3 job -- sh -c 'touch $F/up; exec sleep 1000' "
        "2>/dev/tty; echo $? >$F/code",
        terminal.input(), folder);
    ASSERT_TRUE(made("up"));
    raw.del("job");
    EXPECT_EQ(id_in("code"), 79);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

// ---- A terminal that a command shares with a pipeline

/// A shell that gives each pipeline a process group of its own, and tells of one that stops.
const Words interactive_shell{"bash", "--norc", "-i"};

/// Reads its input to the word `end`, then a line from the terminal into `$F/page`, and then to the end.
const std::string pager{
    "sh -c 'while read word && [ $word != end ]; do :; done; "
    "read line </dev/tty; echo $line >$F/page; cat'"};

TEST_F(Tool, goes_on_renewing_beside_a_pager_that_reads_from_the_terminal) {
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "\"$0\" run --lease 3 -k 0 job -- sh -c "
        "'echo $PPID >$F/up; echo end; while [ ! -e $F/go ]; do sleep 0.02; done; exit 3' | " +
            pager + "; echo ${PIPESTATUS[0]} >$F/code",
        terminal.input(), folder, interactive_shell);
    const pid_t itself = id_in("up");
    EXPECT_TRUE(renews() && renews()) << tool.errors();
    EXPECT_EQ(run({"run", "--no-wait", "job", "--", "true"}).code(), 75);
    EXPECT_FALSE(is_stopped(itself));
    terminal.type("typed\n");
    ASSERT_TRUE(made("page"));
    std::ofstream{file("go")};
    EXPECT_EQ(id_in("code"), 3);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(content(file("page")), "typed\n");
}

TEST_F(Tool, lets_a_command_with_piped_input_read_from_the_terminal) {
    for (const std::string how : {"", "--stoppable "}) {
        const TempFolder own;
        const Terminal terminal;
        ToolRun tool =
            run_in_shell("echo data | \"$0\" run " + how +
                             "--lease 30 job -- sh -c 'read a </dev/tty; echo got $a; cat'",
                         terminal.input(), own, interactive_shell);
        terminal.type("secret\n");
        EXPECT_EQ(tool.code(), 0) << tool.errors();
        EXPECT_EQ(tool.output(), "got secret\ndata\n");
        EXPECT_EQ(tool.errors().find("redlatch:"), std::string::npos) << tool.errors();
    }
}

TEST_F(Tool, lets_a_command_read_from_the_terminal_in_a_command_substitution) {
    const Terminal terminal;
    ToolRun tool =
        run_in_shell("got=$(\"$0\" run job -- sh -c 'read a </dev/tty; echo got $a'); echo $got",
                     terminal.input(), folder, interactive_shell);
    terminal.type("secret\n");
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(tool.output(), "got secret\n");
}

TEST_F(Tool, lets_the_command_of_another_one_in_a_script_read_from_the_terminal) {
    std::ofstream{file("uri")} << uri();
    std::ofstream{file("script")} << "\"$1\" run --uri-file $F/uri inner -- "
                                     "sh -c 'read a </dev/tty; echo got $a'; exit $?";
    const Terminal terminal;
    ToolRun tool = run_in_shell("\"$0\" run job -- sh $F/script \"$0\" | cat", terminal.input(),
                                folder, interactive_shell);
    terminal.type("secret\n");
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(tool.output(), "got secret\n");
}

TEST_F(Tool, lets_a_command_and_a_pager_read_from_the_terminal_by_turns) {
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "\"$0\" run --lease 30 job -- sh -c "
        "'read a </dev/tty; echo $a >$F/first; echo end; "
        "while [ ! -e $F/page ]; do sleep 0.02; done; "
        "read a </dev/tty; echo $a >$F/last; exit 3' | " +
            pager + "; echo ${PIPESTATUS[0]} >$F/code",
        terminal.input(), folder, interactive_shell);
    for (const std::string turn : {"first", "page", "last"}) {
        terminal.type(turn + "\n");
        ASSERT_TRUE(eventually([&] { return content(file(turn)) == turn + "\n"; })) << turn;
    }
    EXPECT_EQ(id_in("code"), 3);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

TEST_F(Tool, leaves_no_pager_stopped_that_asked_for_the_terminal_as_the_command_ended) {
    const Terminal terminal;
    ToolRun tool =
        run_in_shell("\"$0\" run --lease 30 job -- sh -c 'read a </dev/tty; echo end' | " + pager +
                         "; echo $? >$F/code",
                     terminal.input(), folder, interactive_shell);
    terminal.type("first\n");
    terminal.type("second\n");
    EXPECT_EQ(id_in("code"), 0);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(content(file("page")), "second\n");
}

TEST_F(Tool, goes_on_beside_a_pager_that_is_stopped_in_the_background) {
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "\"$0\" run --lease 3 -k 0 job -- sh -c 'echo $PPID >$F/up; echo end; "
        "while [ ! -e $F/go ]; do sleep 0.02; done; exit 3' | " +
            pager +
            " & echo $! >$F/pager; while [ ! -e $F/fg ]; do sleep 0.02; done; fg; "
            "echo ${PIPESTATUS[0]} >$F/code",
        terminal.input(), folder, interactive_shell);
    const pid_t itself = id_in("up");
    const pid_t its_pager = id_in("pager");
    ASSERT_TRUE(eventually([&] { return is_stopped(its_pager); }));
    EXPECT_TRUE(renews() && renews()) << tool.errors();
    EXPECT_FALSE(is_stopped(itself));
    std::ofstream{file("fg")};
    terminal.type("typed\n");
    EXPECT_TRUE(eventually([&] { return content(file("page")) == "typed\n"; }));
    std::ofstream{file("go")};
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

TEST_F(Tool, ends_a_command_at_a_signal_that_is_stopped_in_the_background) {
    const Terminal terminal;
    ToolRun tool = run_in_shell(
        "set -m; \"$0\" run job -- sh -c 'echo $$ >$F/up; read line; exit 3' & echo $! >$F/tool; "
        "wait $!; echo $? >$F/code",
        terminal.input(), folder);
    const pid_t command = id_in("up");
    ASSERT_TRUE(eventually([&] { return is_stopped(command); }));
    ASSERT_TRUE(eventually([&] { return tool.errors().find("stopped") != std::string::npos; }));
    ::kill(id_in("tool"), SIGHUP);
    EXPECT_EQ(id_in("code"), 128 + SIGHUP);
    EXPECT_EQ(tool.code(), 0) << tool.errors();
}

// ---- status and break

/// Waits until `break` has shown that holder and asks for an answer.
bool asks_about(const ToolRun& tool, const std::string& owner) {
    const std::string question = "held by " + owner + ". Take it away?";
    return eventually([&] { return tool.errors().find(question) != std::string::npos; });
}

TEST_F(Tool, shows_who_holds_a_lock_of_any_kind) {
    EXPECT_EQ(run({"status", "job"}).code(), 1);
    raw.command({"SET", "job", "somebody", "PX", "60000"});
    ToolRun simple = run({"status", "job"});
    EXPECT_EQ(simple.code(), 0);
    EXPECT_TRUE(simple.output().starts_with("held by somebody, for at most ")) << simple.output();

    Client client{uri()};
    Lock<Reentrant> nested{client, "nested"};
    nested.lock();
    nested.lock();
    ToolRun reentrant = run({"status", "nested"});
    EXPECT_EQ(reentrant.code(), 0);
    EXPECT_NE(reentrant.output().find(", 2 times, "), std::string::npos) << reentrant.output();
}

TEST_F(Tool, shows_all_holders_of_what_several_may_hold) {
    Client client{uri()};
    Client other{uri()};
    Lock<Shared> read{client, "read"};
    Lock<Shared> also{other, "read"};
    Lock<Shared> write{client, "write"};
    auto first = read.acquire_shared();
    auto second = also.acquire_shared();
    auto writer = write.acquire();
    ToolRun shared = run({"status", "read"});
    EXPECT_EQ(shared.code(), 0) << shared.errors();
    const std::string output = shared.output();
    EXPECT_TRUE(output.starts_with("holders: 2, waiters: 0\nread by ")) << output;
    EXPECT_NE(output.find("\nread by " + first->token() + ", for at most "), std::string::npos);
    EXPECT_NE(output.find("\nread by " + second->token() + ", for at most "), std::string::npos);
    ToolRun written = run({"status", "--json", "write"});
    EXPECT_EQ(written.code(), 0);
    EXPECT_TRUE(
        written.output().starts_with("{\"name\":\"write\",\"held\":true,\"kind\":\"shared\",\"hold_"
                                     "count\":1,\"holders\":[{\"owner\":\"" +
                                     writer->token() + "\",\"writes\":true,\"ttl_ms\":"))
        << written.output();
    EXPECT_TRUE(written.output().ends_with("}],\"waiters\":0}\n")) << written.output();

    Semaphore<> gpus{client, "gpus", 4};
    auto two = gpus.take({.permits = 2});
    auto one = gpus.take();
    ToolRun unset = run({"status", "gpus"});
    EXPECT_EQ(unset.code(), 0) << unset.errors();
    EXPECT_TRUE(unset.output().starts_with("permits taken: 3, waiters: 0\n")) << unset.output();
    EXPECT_NE(unset.output().find("\n2 by " + two->token() + ", for at most "), std::string::npos);
    EXPECT_TRUE(gpus.set_permits(5));
    EXPECT_TRUE(run({"status", "gpus"}).code() == 0);
    ToolRun json = run({"status", "--json", "gpus"});
    EXPECT_EQ(json.code(), 0);
    EXPECT_TRUE(json.output().starts_with(
        "{\"name\":\"gpus\",\"held\":true,\"kind\":\"semaphore\",\"permits\":5,\"taken\":3,"
        "\"holders\":[{\"owner\":"))
        << json.output();
}

TEST_F(Tool, takes_away_what_several_hold_from_those_it_is_told) {
    Client client{uri()};
    Semaphore<> gpus{client, "gpus", 4};
    auto first = gpus.take({.permits = 2});
    auto second = gpus.take();
    const Terminal terminal;
    ToolRun asked = run({"break", "gpus"}, with_terminal, terminal.input());
    terminal.type("y\nn\n");
    EXPECT_EQ(asked.code(), 0) << asked.errors();
    EXPECT_EQ(gpus.inspect()->holders.size(), 1U) << asked.output();
    EXPECT_EQ(run({"break", "--yes", "gpus"}).code(), 0);
    EXPECT_EQ(run({"status", "gpus"}).code(), 1);

    Lock<Shared> read{client, "read"};
    read.lock_shared();
    EXPECT_EQ(run({"break", "--yes", "read"}).code(), 0);
    EXPECT_EQ(run({"status", "read"}).code(), 1);
}

// The server names two hundred.
TEST_F(Tool, takes_away_what_more_hold_than_are_named) {
    Client client{uri()};
    Semaphore<> seats{client, "seats", 1000};
    std::vector<Held> taken;
    while (taken.size() < 450) taken.push_back(seats.take({.permits = 2}).value());
    const Terminal terminal;
    ToolRun asked = run({"break", "seats"}, with_terminal, terminal.input());
    for (int i = 0; i < 200; ++i) terminal.type("n\n");
    EXPECT_EQ(asked.code(), 75);
    EXPECT_TRUE(asked.errors().ends_with("redlatch: 500 more are held, by others than these\n"));
    EXPECT_EQ(seats.inspect()->taken, 900U);
    EXPECT_EQ(run({"break", "--yes", "seats"}).code(), 0);
    EXPECT_EQ(seats.inspect()->taken, 0U);
}

// As the first two hundred lose it, others get it, before the rest is named.
TEST_F(Tool, takes_no_more_away_than_there_was_when_it_began) {
    constexpr std::size_t holders = 205;
    constexpr std::size_t newcomers = 40;
    Client client{uri()};
    Client theirs{uri()};
    Semaphore<> seats{client, "seats", holders, {.lease = 60s}};
    Semaphore<> wanted{theirs, "seats", holders, {.lease = 120s}};
    std::vector<Held> former;
    while (former.size() < holders) former.push_back(seats.take().value());
    std::vector<std::future<Result<Held>>> waiting;
    while (waiting.size() < newcomers) {
        waiting.push_back(in_background([&] { return wanted.take({.wait = 60s}); }));
    }
    ASSERT_TRUE(eventually([&] { return seats.inspect()->waiters == newcomers; }));
    EXPECT_EQ(run({"break", "--yes", "seats"}).code(), 0);
    std::size_t kept = 0;
    for (auto& waiter : waiting) {
        Result<Held> taken = waiter.get();
        ASSERT_TRUE(taken) << taken.error().describe();
        if (taken->release() == Release::released) ++kept;
    }
    EXPECT_EQ(kept, newcomers);
    EXPECT_EQ(seats.inspect()->taken, 0U);
}

TEST_F(Tool, shows_a_lock_as_json) {
    ToolRun idle = run({"status", "--json", "job"});
    EXPECT_EQ(idle.code(), 1);
    EXPECT_EQ(idle.output(), "{\"name\":\"job\",\"held\":false,\"waiters\":0}\n");
    raw.set("j\"\n", "a\\\xff");
    ToolRun held = run({"status", "--json", "j\"\n"});
    EXPECT_EQ(held.code(), 0);
    EXPECT_EQ(held.output(),
              "{\"name\":\"j\\u0022\\u000a\",\"held\":true,\"owner\":\"a\\u005c\\u00ff\",\"hold_"
              "count\":1,"
              "\"ttl_ms\":null,\"waiters\":0}\n");
    const auto name_of = [this](const std::string& name) {
        ToolRun shown = run({"status", "--json", name});
        EXPECT_EQ(shown.code(), 1);
        const std::string text = shown.output();
        return text.substr(0, text.find(",\"held"));
    };
    for (const std::string text : {"n\u00e4me", "\u20ac", "\U0001d11e"}) {
        EXPECT_EQ(name_of(text), "{\"name\":\"" + text + "\"");
    }
    EXPECT_EQ(name_of("\xc3\xa4\xc3"), R"({"name":"\u00c3\u00a4\u00c3")");
    EXPECT_EQ(name_of("\xed\xa0\x80"), R"({"name":"\u00ed\u00a0\u0080")");
    EXPECT_EQ(name_of("\xc0\xaf"), R"({"name":"\u00c0\u00af")");
}

TEST_F(Tool, takes_a_lock_away_from_its_holder) {
    raw.set("job", "somebody");
    ToolRun tool = run({"break", "--yes", "job"});
    EXPECT_EQ(tool.code(), 0);
    EXPECT_EQ(tool.output(), "taken from somebody\n");
    EXPECT_FALSE(raw.exists("job"));
    EXPECT_EQ(run({"break", "--yes", "job"}).code(), 0);

    raw.command({"HSET", "nested", "somebody", "2"});
    EXPECT_EQ(run({"break", "-y", "nested"}).code(), 0);
    EXPECT_FALSE(raw.exists("nested"));
}

TEST_F(Tool, shows_and_takes_away_a_lock_whose_token_is_empty) {
    raw.set("job", "");
    raw.command({"HSET", "nested", "", "1"});
    for (const std::string name : {"job", "nested"}) {
        ToolRun status = run({"status", name});
        EXPECT_EQ(status.code(), 0);
        EXPECT_EQ(status.output(), "held by '' (an empty token), without an end, waiters: 0\n");
        ToolRun tool = run({"break", "--yes", name});
        EXPECT_EQ(tool.code(), 0) << tool.errors();
        EXPECT_EQ(tool.output(), "taken from '' (an empty token)\n");
        EXPECT_FALSE(raw.exists(name));
    }
}

TEST_F(Tool, does_not_take_a_lock_away_unasked) {
    raw.set("job", "somebody");
    ToolRun tool = run({"break", "job"});
    EXPECT_EQ(tool.code(), 64);
    EXPECT_TRUE(raw.exists("job"));
    for (const std::string_view answer : {"\n", "n\n", "yet\n", "yes\n", "Y\n"}) {
        const Terminal terminal;
        raw.set("job", "data");
        ToolRun asked = run({"break", "job"}, with_terminal, terminal.input());
        terminal.type(answer);
        const bool agrees = answer == "yes\n" || answer == "Y\n";
        EXPECT_EQ(asked.code(), agrees ? 0 : 75) << answer;
        EXPECT_EQ(raw.exists("job"), !agrees) << answer;
        EXPECT_NE(asked.errors().find("no lock. Take it away?"), std::string::npos);
    }
    raw.command({"SET", "job", "somebody", "PX", "60000"});
    const Terminal terminal;
    ToolRun asked = run({"break", "job"}, with_terminal, terminal.input());
    terminal.type("y\n");
    EXPECT_EQ(asked.code(), 0);
    EXPECT_NE(asked.errors().find("held by somebody. Take it away?"), std::string::npos);
}

TEST_F(Tool, takes_a_lock_away_from_nobody_but_whom_it_has_shown) {
    raw.command({"SET", "job", "somebody", "PX", "600000"});
    const Terminal terminal;
    ToolRun tool = run({"break", "job"}, with_terminal, terminal.input());
    ASSERT_TRUE(asks_about(tool, "somebody"));
    raw.set("job", "another");
    terminal.type("y\n");
    EXPECT_EQ(tool.code(), 0) << tool.errors();
    EXPECT_EQ(tool.output(), "that holder had already let it go\n");
    EXPECT_EQ(raw.get("job"), "another");
}

TEST_F(Tool, takes_no_claim_away_but_the_one_that_it_has_shown) {
    Client client{uri()};
    Semaphore<> gpus{client, "gpus", 4};
    auto taken = gpus.take({.permits = 2});
    const Terminal terminal;
    ToolRun permits = run({"break", "gpus"}, with_terminal, terminal.input());
    ASSERT_TRUE(asks_about(permits, taken->token()));
    ASSERT_TRUE(taken->release());
    auto next = gpus.take({.permits = 2});
    terminal.type("y\n");
    EXPECT_EQ(permits.code(), 0) << permits.errors();
    EXPECT_EQ(permits.output(), "that holder had already let it go\n");
    const auto permits_left = gpus.inspect();
    ASSERT_EQ(permits_left->holders.size(), 1U);
    EXPECT_EQ(permits_left->holders.front().owner, next->token());
    EXPECT_EQ(permits_left->taken, 2U);

    Lock<Shared> read{client, "read"};
    auto reader = read.acquire_shared({.owner = Owner::hold});
    ToolRun readers = run({"break", "read"}, with_terminal, terminal.input());
    ASSERT_TRUE(asks_about(readers, reader->token()));
    auto another = read.acquire_shared({.owner = Owner::hold});
    ASSERT_TRUE(reader->release());
    terminal.type("y\n");
    EXPECT_EQ(readers.code(), 0) << readers.errors();
    EXPECT_EQ(readers.output(), "that holder had already let it go\n");
    const auto readers_left = read.inspect();
    ASSERT_EQ(readers_left->holders.size(), 1U);
    EXPECT_EQ(readers_left->holders.front().owner, another->token());
}

TEST_F(Tool, has_help_and_a_version) {
    for (const Words& before : {Words{}, Words{"run"}, Words{"status", "job"}, Words{"break"}}) {
        Words arguments = before;
        arguments.emplace_back("--help");
        ToolRun help = run(arguments);
        EXPECT_EQ(help.code(), 0);
        EXPECT_TRUE(help.output().starts_with("Usage: redlatch run "));
        arguments.back() = "--version";
        ToolRun version = run(arguments);
        EXPECT_EQ(version.code(), 0) << version.errors();
        EXPECT_TRUE(version.output().starts_with("redlatch 0."));
    }
    ToolRun commands_own = run({"run", "job", "--", "sh", "-c", "echo $0", "--version"});
    EXPECT_EQ(commands_own.code(), 0);
    EXPECT_EQ(commands_own.output(), "--version\n");
}

}  // namespace
}  // namespace redlatch::test
