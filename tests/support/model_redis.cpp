#include "support/model_redis.hpp"

#include "support/model_commands.hpp"
#include <redlatch/net/sha1.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <lua.hpp>
#include <new>
#include <optional>
#include <ostream>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace redlatch::test {
namespace {

using model::Command;
using model::Database;
using model::Digits;
using model::find_command;
using model::lower_case;
using model::print;
using model::reply;
using model::reply_array;
using model::reply_error;
using model::reply_nil;
using model::reply_status;
using model::StringMap;
using model::Value;
using model::Words;

/// What a C cast does on x86: everything that does not fit is the smallest number.
std::int64_t truncated(double number) {
    constexpr double limit = 9223372036854775808.0;
    if (number >= -limit && number < limit) return static_cast<std::int64_t>(number);
    return std::numeric_limits<std::int64_t>::min();
}

}  // namespace

// ---- The server ---------------------------------------------------------------------------------

class ModelRedis::Impl {
public:
    explicit Impl(std::int64_t start_us) {
        db_.now_us = start_us;
        open_lua();
    }
    ~Impl() { ::lua_close(lua_); }

    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void advance(std::chrono::microseconds step) { db_.now_us += step.count(); }
    [[nodiscard]] std::int64_t now_us() const { return db_.now_us; }

    template <class Word>
    Value eval(std::string_view source, std::span<const Word> keys,
               std::span<const Word> arguments) {
        words_.assign(keys.begin(), keys.end());
        words_.insert(words_.end(), arguments.begin(), arguments.end());
        Value result;
        const Words words{words_};
        run_script(source, words.first(keys.size()), words.subspan(keys.size()), result);
        tell();
        return result;
    }

    template <class Word>
    Value command(std::span<const Word> words) {
        if (words.empty()) throw std::invalid_argument{"a command without words"};
        words_.assign(words.begin(), words.end());
        Value result;
        if (const Command* const command = checked_command(words_, result)) {
            if (command->handler == nullptr) {
                eval_command(words_, result);
            } else {
                command->run(db_, words_, result);
            }
        }
        tell();
        return result;
    }

    void on_publish(OnPublish callback) {
        on_publish_ = std::move(callback);
        db_.keeps_messages = on_publish_ != nullptr;
    }
    void set_subscribers(std::string channel, int count) {
        db_.subscribers[std::move(channel)] = count;
    }
    void deny(std::string_view command, bool denied) {
        if (denied) {
            denied_.insert(lower_case(command));
        } else {
            denied_.erase(lower_case(command));
        }
    }
    void set_full(bool full) { full_ = full; }
    void set_strict_keys(bool strict) { strict_keys_ = strict; }
    void set_slot_leaves(bool leaves) { slot_leaves_ = leaves; }
    void flush() { db_.keys.clear(); }
    [[nodiscard]] std::uint64_t writes() const { return db_.writes; }
    [[nodiscard]] const StringMap<model::Entry>& all() const { return db_.keys; }
    void restore(const StringMap<model::Entry>& keys) { db_.keys = keys; }

    [[nodiscard]] std::vector<std::string> keys() const {
        std::vector<std::string> alive;
        for (const auto& [key, entry] : db_.keys) {
            if (!db_.expired(entry)) alive.push_back(key);
        }
        std::ranges::sort(alive);
        return alive;
    }

private:
    struct Compiled {
        std::string source;
        int reference = LUA_NOREF;
        std::string error = {};  ///< if it does not compile
    };

    // ---- Running commands

    /// The name as error messages and ACLs have it.
    static std::string full_name(const Command& command, Words words) {
        std::string name{command.name};
        if (name == "pubsub" && words.size() > 1) name += "|" + lower_case(words[1]);
        return name;
    }

    bool denied(const Command& command) const {
        return !denied_.empty() && denied_.contains(command.name);
    }

    static bool unknown_subcommand(const Command& command, Words words) {
        return command.name == "pubsub" && words.size() > 1 && lower_case(words[1]) != "numsub";
    }

    /// What is in the way of a command at the top level goes to `out`.
    const Command* checked_command(Words words, Value& out) {
        const Command* const command = find_command(words[0]);
        if (command == nullptr) {
            std::string text = "ERR unknown command '" + std::string{words[0].substr(0, 128)} +
                               "', with args beginning with: ";
            std::string arguments;
            for (const std::string_view word : words.subspan(1)) {
                if (arguments.size() >= 128) break;
                arguments += "'" + std::string{word.substr(0, 128 - arguments.size())} + "' ";
            }
            reply_error(out, text + arguments);
        } else if (unknown_subcommand(*command, words)) {
            reply_error(out, "ERR unknown subcommand '" + std::string{words[1].substr(0, 128)} +
                                 "'. Try PUBSUB HELP.");
        } else if (!command->fits(words.size())) {
            reply_error(out, "ERR wrong number of arguments for '" + full_name(*command, words) +
                                 "' command");
        } else if (denied(*command)) {
            reply_error(out, "NOPERM this user has no permissions to run the '" +
                                 full_name(*command, words) + "' command");
        } else {
            return command;
        }
        return nullptr;
    }

    /// The same for redis.call.
    void execute_in_script(Words words, Value& out) {
        const Command* const command = find_command(words[0]);
        if (command == nullptr || unknown_subcommand(*command, words)) {
            reply_error(out, "ERR Unknown Redis command called from script");
        } else if (!command->fits(words.size())) {
            reply_error(out, "ERR Wrong number of args calling Redis command from script");
        } else if (command->handler == nullptr) {
            reply_error(out, "ERR This Redis command is not allowed from script");
        } else if (denied(*command)) {
            reply_error(out,
                        "ERR The user executing the script can't run this command or subcommand");
        } else if (full_ && !has_written_ && command->may_take_memory()) {
            reply_error(out, "OOM command not allowed when used memory > 'maxmemory'.");
        } else {
            run_in_script(*command, words, out);
        }
    }

    void run_in_script(const Command& command, Words words, Value& out) {
        has_written_ = has_written_ || command.writes != model::Writes::never;
        if (may_touch_keys_of(command, words, out)) command.run(db_, words, out);
    }

    bool may_touch_keys_of(const Command& command, Words words, Value& out) {
        if (command.first_key == 0) return true;
        const int last =
            command.last_key < 0 ? static_cast<int>(words.size()) - 1 : command.last_key;
        for (int i = command.first_key; i <= last; ++i) {
            const std::string_view key = words[static_cast<std::size_t>(i)];
            if (!may_touch(key, command, out)) return false;
        }
        return true;
    }

    bool may_touch(std::string_view key, const Command& command, Value& out) {
        if (strict_keys_ && std::ranges::find(declared_, key) == declared_.end()) {
            undeclared_ =
                "ERR undeclared key '" + std::string{key} + "' in " + std::string{command.name};
            reply_error(out, undeclared_);
            return false;
        }
        if (slot_leaves_ && db_.find(key) == nullptr) {
            reply_error(out, "ERR Script attempted to access a non local key in a cluster node");
            return false;
        }
        return true;
    }

    void tell() {
        while (!db_.messages.empty()) {
            const auto messages = std::exchange(db_.messages, {});
            for (const auto& [channel, message] : messages) {
                if (on_publish_) on_publish_(channel, message);
            }
        }
    }

    void eval_command(Words words, Value& out) {
        const auto keys = model::to_integer(words[2]);
        const Words rest = words.subspan(3);
        if (!keys) return reply_error(out, model::not_integer);
        if (*keys > static_cast<std::int64_t>(rest.size())) {
            return reply_error(out, "ERR Number of keys can't be greater than number of args");
        }
        if (*keys < 0) return reply_error(out, "ERR Number of keys can't be negative");
        const auto count = static_cast<std::size_t>(*keys);
        run_script(words[1], rest.first(count), rest.subspan(count), out);
    }

    // ---- Lua
    //
    // Lua raises errors with longjmp. So no function that can raise one has an object with a
    // destructor on its stack: what needs memory is a member, or is done with before.

    static constexpr int globals_index = 1;  ///< at the bottom of the stack for good
    static constexpr int handler_index = 2;
    static constexpr const char* read_only = "Attempt to modify a readonly table";

    void open_lua() {
        lua_ = ::luaL_newstate();
        if (lua_ == nullptr) throw std::bad_alloc{};
        constexpr std::array<std::pair<const char*, lua_CFunction>, 4> libraries{
            {{"", &::luaopen_base},
             {LUA_TABLIBNAME, &::luaopen_table},
             {LUA_STRLIBNAME, &::luaopen_string},
             {LUA_MATHLIBNAME, &::luaopen_math}}};
        for (const auto& [name, open] : libraries) {
            lua_pushcfunction(lua_, open);
            ::lua_pushstring(lua_, name);
            ::lua_call(lua_, 1, 0);
        }
        ::lua_settop(lua_, 0);
        lua_pushvalue(lua_, LUA_GLOBALSINDEX);   // stays at globals_index
        lua_pushcfunction(lua_, &on_lua_error);  // stays at handler_index

        for (const char* const name : {"print", "dofile", "loadfile"}) {
            lua_pushnil(lua_);
            ::lua_setfield(lua_, globals_index, name);
        }
        set_function(globals_index, "pcall", &lua_pcall_function);
        for (const char* const name : {"rawset", "setmetatable"}) {
            ::lua_getfield(lua_, globals_index, name);
            ::lua_pushcclosure(lua_, &unless_read_only, 1);
            ::lua_setfield(lua_, globals_index, name);
        }

        lua_newtable(lua_);
        const int redis = ::lua_gettop(lua_);
        set_function(redis, "call", &redis_call);
        set_function(redis, "pcall", &redis_pcall);
        set_function(redis, "error_reply", &redis_error_reply);
        set_function(redis, "status_reply", &redis_status_reply);
        set_function(redis, "sha1hex", &redis_sha1hex);
        ::lua_setfield(lua_, globals_index, "redis");

        for (const char* const name : {"redis", "string", "table", "math"}) {
            ::lua_getfield(lua_, globals_index, name);
            push_read_only();
            ::lua_setfield(lua_, globals_index, name);
        }

        // What is not there must not be read...
        lua_newtable(lua_);
        lua_pushcfunction(lua_, &on_missing_global);
        ::lua_setfield(lua_, -2, "__index");
        ::lua_setmetatable(lua_, globals_index);

        // ...and nothing be written.
        ::lua_pushvalue(lua_, globals_index);
        push_read_only();
        ::lua_pushvalue(lua_, -1);
        ::lua_setfield(lua_, globals_index, "_G");
        ::lua_replace(lua_, LUA_GLOBALSINDEX);
    }

    void set_function(int table, const char* name, lua_CFunction function) {
        ::lua_pushlightuserdata(lua_, this);
        ::lua_pushcclosure(lua_, function, 1);
        ::lua_setfield(lua_, table, name);
    }

    /// In place of the table on top: an empty one that shows it and refuses to be changed.
    void push_read_only() {
        lua_newtable(lua_);
        lua_newtable(lua_);
        ::lua_pushvalue(lua_, -3);
        ::lua_setfield(lua_, -2, "__index");
        lua_pushcfunction(lua_, &on_write);
        ::lua_setfield(lua_, -2, "__newindex");
        ::lua_pushboolean(lua_, 0);
        ::lua_setfield(lua_, -2, "__metatable");
        ::lua_setmetatable(lua_, -2);
        ::lua_remove(lua_, -2);
    }

    static int on_write(lua_State* lua) { return ::luaL_error(lua, read_only); }

    static int on_missing_global(lua_State* lua) {
        return ::luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                            ::lua_tolstring(lua, 2, nullptr));
    }

    /// rawset and setmetatable: the function itself, but not on tables as above.
    static int unless_read_only(lua_State* lua) {
        if (::luaL_getmetafield(lua, 1, "__newindex") != 0) {
            const bool protects = ::lua_tocfunction(lua, -1) == &on_write;
            lua_pop(lua, 1);
            if (protects) {
                ::lua_pushstring(lua, read_only);
                return ::lua_error(lua);
            }
        }
        return ::lua_tocfunction(lua, lua_upvalueindex(1))(lua);
    }

    /// Redis' own pcall: an error of redis.call arrives as its text, not as a table.
    static int lua_pcall_function(lua_State* lua) {
        ::luaL_checkany(lua, 1);
        const int failed = ::lua_pcall(lua, ::lua_gettop(lua) - 1, LUA_MULTRET, 0);
        if (failed != 0 && lua_istable(lua, -1)) {
            ::lua_getfield(lua, -1, "err");
            ::lua_remove(lua, ::lua_isstring(lua, -1) != 0 ? -2 : -1);
        }
        ::lua_pushboolean(lua, failed == 0 ? 1 : 0);
        ::lua_insert(lua, 1);
        return ::lua_gettop(lua);
    }

    /// Turns what was raised into a table {err=, source=, line=}, as Redis' handler does.
    static int on_lua_error(lua_State* lua) {
        if (!lua_istable(lua, 1)) {
            lua_newtable(lua);
            ::lua_pushstring(lua, "ERR ");
            if (::lua_isstring(lua, 1) != 0) {
                ::lua_pushvalue(lua, 1);
            } else if (lua_isboolean(lua, 1)) {
                ::lua_pushstring(lua, ::lua_toboolean(lua, 1) != 0 ? "true" : "false");
            } else {
                ::lua_pushstring(lua, luaL_typename(lua, 1));
            }
            ::lua_concat(lua, 2);
            ::lua_setfield(lua, -2, "err");
        }
        lua_Debug where{};
        bool known = ::lua_getstack(lua, 1, &where) != 0;
        if (known) {
            ::lua_getinfo(lua, "Sl", &where);
            if (std::string_view{where.what} == "C") {
                known = ::lua_getstack(lua, 2, &where) != 0;
                if (known) ::lua_getinfo(lua, "Sl", &where);
            }
        }
        if (known) {
            ::lua_pushstring(lua, where.source);
            ::lua_setfield(lua, -2, "source");
            ::lua_pushinteger(lua, where.currentline);
            ::lua_setfield(lua, -2, "line");
        }
        return 1;
    }

    static Impl& self(lua_State* lua) {
        return *static_cast<Impl*>(::lua_touserdata(lua, lua_upvalueindex(1)));
    }

    static int redis_call(lua_State* lua) {
        return self(lua).call_from(lua) ? 1 : ::lua_error(lua);
    }

    static int redis_pcall(lua_State* lua) {
        self(lua).call_from(lua);
        return 1;
    }

    /// Runs the command that the arguments are and pushes its reply; false if that is an error.
    bool call_from(lua_State* lua) {
        collect_arguments(lua);
        if (!script_words_.empty()) execute_in_script(script_words_, script_reply_);
        push(lua, script_reply_);
        return !script_reply_.is_error();
    }

    /// None if there is something wrong with them, and then it is in `script_reply_`.
    void collect_arguments(lua_State* lua) {
        const auto count = static_cast<std::size_t>(::lua_gettop(lua));
        script_words_.clear();
        if (script_digits_.size() < count) script_digits_.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            const int index = static_cast<int>(i) + 1;
            const int type = ::lua_type(lua, index);
            if (type == LUA_TNUMBER) {
                script_words_.push_back(print(::lua_tonumber(lua, index), script_digits_[i]));
            } else if (type == LUA_TSTRING) {
                script_words_.push_back(bytes(lua, index));
            } else {
                script_words_.clear();
                return reply_error(
                    script_reply_,
                    "ERR Lua redis lib command arguments must be strings or integers");
            }
        }
        if (count == 0) {
            reply_error(script_reply_,
                        "ERR Please specify at least one argument for this redis lib call");
        }
    }

    static std::string_view bytes(lua_State* lua, int index) {
        std::size_t size = 0;
        const char* const text = ::lua_tolstring(lua, index, &size);
        return {text, size};
    }

    static void push(lua_State* lua, std::string_view text) {
        ::lua_pushlstring(lua, text.data(), text.size());
    }

    static void push(lua_State* lua, const Value& value) {
        ::luaL_checkstack(lua, 4, "a reply");
        switch (value.type) {
            case Value::Type::nil: ::lua_pushboolean(lua, 0); break;
            case Value::Type::integer:
                ::lua_pushnumber(lua, static_cast<lua_Number>(value.integer));
                break;
            case Value::Type::string: push(lua, std::string_view{value.text}); break;
            case Value::Type::status: push_table(lua, "ok", value.text); break;
            case Value::Type::error: push_table(lua, "err", value.text); break;
            case Value::Type::array: {
                ::lua_createtable(lua, static_cast<int>(value.elements.size()), 0);
                int i = 0;
                for (const Value& element : value.elements) {
                    push(lua, element);
                    ::lua_rawseti(lua, -2, ++i);
                }
            }
        }
    }

    static void push_table(lua_State* lua, const char* name, std::string_view text) {
        ::lua_createtable(lua, 0, 1);
        push(lua, text);
        ::lua_setfield(lua, -2, name);
    }

    /// One string and nothing else; if not, an error table is pushed.
    static bool is_one_string(lua_State* lua) {
        if (::lua_gettop(lua) == 1 && ::lua_type(lua, 1) == LUA_TSTRING) return true;
        push_table(lua, "err", "ERR wrong number or type of arguments");
        return false;
    }

    static int redis_error_reply(lua_State* lua) {
        if (!is_one_string(lua)) return 1;
        std::string_view text = bytes(lua, 1);
        if (text.starts_with('-')) text.remove_prefix(1);
        // The first word is the code; without a second one there is none.
        const std::size_t space = text.find(' ');
        std::string_view message = space == text.npos ? text : text.substr(space + 1);
        while (message.starts_with('\r') || message.starts_with('\n')) message.remove_prefix(1);
        while (message.ends_with('\r') || message.ends_with('\n')) message.remove_suffix(1);
        lua_newtable(lua);
        push(lua, space == text.npos ? std::string_view{"ERR"} : text.substr(0, space));
        push(lua, std::string_view{" "});
        push(lua, message);
        ::lua_concat(lua, 3);
        ::lua_setfield(lua, -2, "err");
        return 1;
    }

    static int redis_status_reply(lua_State* lua) {
        if (is_one_string(lua)) push_table(lua, "ok", bytes(lua, 1));
        return 1;
    }

    static int redis_sha1hex(lua_State* lua) {
        std::size_t size = 0;
        const char* const text = ::luaL_checklstring(lua, 1, &size);
        const auto hex = detail::Sha1::hex({text, size});
        push(lua, std::string_view{hex.data(), hex.size()});
        return 1;
    }

    // ---- Scripts

    const Compiled& compiled(std::string_view source) {
        // A script of the library's has one address; but that of a string which is gone may be
        // another's now.
        Compiled*& known = by_address_[source.data()];
        if (known != nullptr && known->source == source) return *known;
        auto at = scripts_.find(source);
        if (at == scripts_.end()) {
            at = scripts_.emplace(source, compile(source)).first;
        }
        known = &at->second;
        return *known;
    }

    Compiled compile(std::string_view source) {
        Compiled script{.source = std::string{source}};
        if (::luaL_loadbuffer(lua_, source.data(), source.size(), "@user_script") == 0) {
            script.reference = ::luaL_ref(lua_, LUA_REGISTRYINDEX);
        } else {
            script.error = "ERR Error compiling script (new function): ";
            script.error += bytes(lua_, -1);
            lua_pop(lua_, 1);
        }
        return script;
    }

    void run_script(std::string_view source, Words keys, Words arguments, Value& out) {
        const Compiled& script = compiled(source);
        if (script.reference == LUA_NOREF) return reply_error(out, script.error);
        declared_ = keys;
        has_written_ = false;
        undeclared_.clear();
        set_array("KEYS", keys);
        set_array("ARGV", arguments);
        ::lua_rawgeti(lua_, LUA_REGISTRYINDEX, script.reference);
        if (::lua_pcall(lua_, 0, 1, handler_index) == 0) {
            convert_top(out);
        } else {
            reply_failure(source, out);
        }
        ::lua_settop(lua_, handler_index);
        declared_ = {};
        if (!undeclared_.empty()) out = Value::error(undeclared_);
    }

    void set_array(const char* name, Words words) {
        ::lua_createtable(lua_, static_cast<int>(words.size()), 0);
        int i = 0;
        for (const std::string_view word : words) {
            push(lua_, word);
            ::lua_rawseti(lua_, -2, ++i);
        }
        ::lua_setfield(lua_, globals_index, name);
    }

    /// A field of the table on top, if it is a string; valid until `lua_settop`.
    std::optional<std::string_view> field_of_top(const char* name) {
        ::lua_pushstring(lua_, name);
        ::lua_rawget(lua_, -2);
        std::optional<std::string_view> text;
        if (::lua_isstring(lua_, -1) != 0) text = bytes(lua_, -1);
        lua_pop(lua_, 1);  // the table still has it
        return text;
    }

    /// The protocol ends a line with these, so Redis makes them spaces.
    static std::string one_line(std::string_view text) {
        while (text.ends_with('\r') || text.ends_with('\n')) text.remove_suffix(1);
        std::string line{text};
        std::ranges::replace_if(
            line, [](char c) { return c == '\r' || c == '\n'; }, ' ');
        return line;
    }

    void reply_failure(std::string_view source, Value& out) {
        if (!lua_istable(lua_, -1)) {  // an error while the error was handled
            const std::string text{::lua_isstring(lua_, -1) != 0 ? bytes(lua_, -1) : ""};
            return reply_error(out, one_line("ERR Error running script, " + text));
        }
        // Redis 7.0 crashes if there is no `err`; that needs no model.
        std::string text{field_of_top("err").value_or("ERR an error without err")};
        const auto file = field_of_top("source");
        ::lua_pushstring(lua_, "line");
        ::lua_rawget(lua_, -2);
        if (file && ::lua_isstring(lua_, -1) != 0) {
            const auto sha = detail::Sha1::hex(source);
            text.append(" script: ").append(sha.data(), sha.size()).append(", on ");
            text.append(*file).append(":").append(bytes(lua_, -1)).append(".");
        }
        lua_pop(lua_, 1);
        reply_error(out, one_line(text));
    }

    /// What a script returns, as a reply; pops it.
    void convert_top(Value& out) {
        if (::lua_checkstack(lua_, 4) == 0) {
            reply_error(out, "ERR reached lua stack limit");
        } else {
            switch (::lua_type(lua_, -1)) {
                case LUA_TSTRING: reply(out, bytes(lua_, -1)); break;
                case LUA_TBOOLEAN:
                    if (::lua_toboolean(lua_, -1) != 0) {
                        reply(out, true);
                    } else {
                        reply_nil(out);
                    }
                    break;
                case LUA_TNUMBER: reply(out, truncated(::lua_tonumber(lua_, -1))); break;
                case LUA_TTABLE: convert_table(out); break;
                default: reply_nil(out);
            }
        }
        lua_pop(lua_, 1);
    }

    void convert_table(Value& out) {
        if (const auto error = string_field_of_top("err"))
            return reply_error(out, one_line(*error));
        if (const auto status = string_field_of_top("ok")) {
            std::string text{*status};
            std::ranges::replace_if(
                text, [](char c) { return c == '\r' || c == '\n'; }, ' ');
            return reply_status(out, text);
        }
        reply_array(out);
        for (int i = 1;; ++i) {
            ::lua_rawgeti(lua_, -1, i);
            if (lua_isnil(lua_, -1)) break;
            convert_top(out.elements.emplace_back());
        }
        lua_pop(lua_, 1);
    }

    /// Like `field_of_top`, but a number is not a string.
    std::optional<std::string_view> string_field_of_top(const char* name) {
        ::lua_pushstring(lua_, name);
        ::lua_rawget(lua_, -2);
        std::optional<std::string_view> text;
        if (::lua_type(lua_, -1) == LUA_TSTRING) text = bytes(lua_, -1);
        lua_pop(lua_, 1);
        return text;
    }

    Database db_;
    std::set<std::string, std::less<>> denied_;
    OnPublish on_publish_;
    std::vector<std::string_view> words_;

    lua_State* lua_ = nullptr;
    StringMap<Compiled> scripts_;
    std::unordered_map<const char*, Compiled*> by_address_;
    bool strict_keys_ = true;
    bool slot_leaves_ = false;
    bool full_ = false;

    // Of the script that is running.
    Words declared_;
    bool has_written_ = false;
    std::string undeclared_;
    std::vector<std::string_view> script_words_;
    std::vector<Digits> script_digits_;
    Value script_reply_;
};

struct ModelRedis::Snapshot {
    StringMap<model::Entry> keys;
};

// ---- The outside --------------------------------------------------------------------------------

ModelRedis::ModelRedis(std::int64_t start_us) : impl_(std::make_unique<Impl>(start_us)) {}
ModelRedis::~ModelRedis() = default;

void ModelRedis::advance(std::chrono::microseconds step) {
    impl_->advance(step);
}
std::int64_t ModelRedis::now_us() const {
    return impl_->now_us();
}

Value ModelRedis::eval(std::string_view source, std::span<const std::string> keys,
                       std::span<const std::string> arguments) {
    return impl_->eval(source, keys, arguments);
}
Value ModelRedis::eval(std::string_view source, std::span<const std::string_view> keys,
                       std::span<const std::string_view> arguments) {
    return impl_->eval(source, keys, arguments);
}
Value ModelRedis::command(std::span<const std::string> words) {
    return impl_->command(words);
}
Value ModelRedis::command(std::span<const std::string_view> words) {
    return impl_->command(words);
}

void ModelRedis::on_publish(OnPublish callback) {
    impl_->on_publish(std::move(callback));
}
void ModelRedis::set_subscribers(std::string channel, int count) {
    impl_->set_subscribers(std::move(channel), count);
}
void ModelRedis::deny(std::string_view command, bool denied) {
    impl_->deny(command, denied);
}
void ModelRedis::set_full(bool full) {
    impl_->set_full(full);
}
void ModelRedis::set_strict_keys(bool strict) {
    impl_->set_strict_keys(strict);
}
void ModelRedis::set_slot_leaves(bool leaves) {
    impl_->set_slot_leaves(leaves);
}
void ModelRedis::flush() {
    impl_->flush();
}
std::uint64_t ModelRedis::writes() const {
    return impl_->writes();
}
std::shared_ptr<const ModelRedis::Snapshot> ModelRedis::snapshot() const {
    return std::make_shared<const Snapshot>(Snapshot{impl_->all()});
}
void ModelRedis::restore(const Snapshot& snapshot) {
    impl_->restore(snapshot.keys);
}
std::vector<std::string> ModelRedis::keys() const {
    return impl_->keys();
}

std::ostream& operator<<(std::ostream& out, const Value& value) {
    switch (value.type) {
        case Value::Type::nil: return out << "nil";
        case Value::Type::integer: return out << value.integer;
        case Value::Type::string: return out << '"' << value.text << '"';
        case Value::Type::status: return out << '+' << value.text;
        case Value::Type::error: return out << '-' << value.text;
        case Value::Type::array: break;
    }
    out << '{';
    const char* separator = "";
    for (const Value& element : value.elements) {
        out << std::exchange(separator, ", ") << element;
    }
    return out << '}';
}

}  // namespace redlatch::test
