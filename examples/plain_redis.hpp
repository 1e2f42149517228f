#pragma once

// A plain hiredis connection, for data of the examples that has nothing to do with locks. No part of the library.

#include <hiredis/hiredis.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace example {

class PlainRedis {
    struct Free {
        void operator()(redisContext* context) const { redisFree(context); }
        void operator()(redisReply* reply) const { freeReplyObject(reply); }
    };

public:
    using Reply = std::unique_ptr<redisReply, Free>;

    /// `unix://path` or `redis://host[:port]`, and nothing else.
    explicit PlainRedis(const std::string& uri) : context_(connect(uri)) {}

    Reply command(const std::vector<std::string>& words) {
        std::vector<const char*> data;
        std::vector<std::size_t> lengths;
        for (const std::string& word : words) {
            data.push_back(word.data());
            lengths.push_back(word.size());
        }
        Reply reply{static_cast<redisReply*>(redisCommandArgv(
            context_.get(), static_cast<int>(words.size()), data.data(), lengths.data()))};
        if (!reply) throw std::runtime_error{std::string{"plain Redis: "} + context_->errstr};
        if (reply->type == REDIS_REPLY_ERROR) throw std::runtime_error{reply->str};
        return reply;
    }

private:
    using Context = std::unique_ptr<redisContext, Free>;

    static Context connect(const std::string& uri) {
        const std::string address = uri.substr(uri.find("://") + 3);
        if (uri.starts_with("unix://")) return Context{redisConnectUnix(decoded(address).c_str())};
        const auto colon = address.find(':');
        const int port = colon == std::string::npos ? 6379 : std::atoi(&address[colon + 1]);
        return Context{redisConnect(address.substr(0, colon).c_str(), port)};
    }

    /// What it is without percent signs.
    static std::string decoded(const std::string& path) {
        std::string text;
        for (std::size_t i = 0; i < path.size(); ++i) {
            const bool encoded = path[i] == '%';
            text += encoded ? static_cast<char>(std::stoi(path.substr(i + 1, 2), nullptr, 16))
                            : path[i];
            if (encoded) i += 2;
        }
        return text;
    }

    Context context_;
};

}  // namespace example
