#pragma once

#include <redlatch/error.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/net/tls_layer.hpp>
#include <redlatch/options.hpp>

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

// TLS by OpenSSL 1.1.1 or newer: link `redlatch::tls`, or -lssl -lcrypto.

namespace redlatch::inline v0 {

/// Whom a client trusts, and how it shows who it is itself. The server's certificate is always
/// checked: its chain, its dates, and that it was made for the host of the URI.
struct TlsOptions {
    /// The certificates of authorities to trust, one or more in PEM. Default, if `ca_folder` is
    /// empty too: those that the system trusts.
    std::string ca_file{};

    /// A folder of such files under their hashed names (`openssl rehash`). Default: none.
    std::string ca_folder{};

    /// The client's certificate in PEM, with the chain up to the authority behind it. Default: none.
    std::string certificate_file{};

    /// The key of that certificate in PEM. Default: in `certificate_file` too.
    std::string key_file{};

    /// The key's pass phrase. Default: none is needed.
    std::string key_password{};

    /// The name that the server's certificate has to be for, and that it is asked for (SNI).
    /// Default: the host of the URI.
    std::string server_name{};
};

namespace detail {

/// What OpenSSL says of an error of its.
inline std::string openssl_message(unsigned long error) {
    const char* const reason = ::ERR_reason_error_string(error);
    return reason != nullptr ? reason : "no reason given";
}

/// OpenSSL's way to a socket: through `send` and `recv`, since `write` raises SIGPIPE.
class TlsSocket {
public:
    explicit TlsSocket(int fd) : fd_(fd) {}

    int fd() const noexcept { return fd_; }

    bool block = false;  ///< the next receive may wait
    int error = 0;       ///< `errno` of what was done last, 0 where that went well

    /// A source and sink for OpenSSL that refers to this.
    BIO* bio(const BIO_METHOD* method) {
        BIO* const bio = ::BIO_new(method);
        if (bio == nullptr) return nullptr;
        ::BIO_set_data(bio, this);
        ::BIO_set_init(bio, 1);
        return bio;
    }

    static BIO_METHOD* new_method() {
        BIO_METHOD* const method = ::BIO_meth_new(BIO_TYPE_SOURCE_SINK, "redlatch socket");
        if (method == nullptr) return nullptr;
        ::BIO_meth_set_write(method, &write);
        ::BIO_meth_set_read(method, &read);
        ::BIO_meth_set_ctrl(method, &control);
        return method;
    }

private:
    static int write(BIO* bio, const char* bytes, int size) {
        const auto& self = *static_cast<TlsSocket*>(::BIO_get_data(bio));
        const auto count = static_cast<std::size_t>(size);
        const ssize_t n = ::send(self.fd_, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        return after(bio, n, BIO_FLAGS_WRITE);
    }

    static int read(BIO* bio, char* buffer, int size) {
        auto& self = *static_cast<TlsSocket*>(::BIO_get_data(bio));
        const auto count = static_cast<std::size_t>(size);
        // Blocks only once, however often OpenSSL reads until a record is whole: in between, nobody looks at
        // the deadline.
        const bool block = std::exchange(self.block, false);
        const ssize_t n = ::recv(self.fd_, buffer, count, block ? 0 : MSG_DONTWAIT);
        return after(bio, n, BIO_FLAGS_READ);
    }

    static int after(BIO* bio, ssize_t n, int direction) {
        ::BIO_clear_retry_flags(bio);
        static_cast<TlsSocket*>(::BIO_get_data(bio))->error = n < 0 ? errno : 0;
        if (n >= 0) return static_cast<int>(n);
        const bool again = errno == EAGAIN || errno == EINTR;
        if (again) ::BIO_set_flags(bio, direction | BIO_FLAGS_SHOULD_RETRY);
        return -1;
    }

    static long control(BIO*, int command, long, void*) {
        return command == BIO_CTRL_FLUSH ? 1 : 0;  // nothing is kept here
    }

    int fd_;
};

/// What all of a client's TLS connections have in common.
class TlsContext {
public:
    explicit TlsContext(const TlsOptions& options)
        : context_(::SSL_CTX_new(::TLS_client_method())) {
        if (context_ == nullptr || method_ == nullptr) refuse("TLS cannot be set up");
        SSL_CTX* const context = context_.get();
        ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
        ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
        ::SSL_CTX_set_mode(context,
                           SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
#if defined(SSL_OP_IGNORE_UNEXPECTED_EOF)
        // A reply that was cut off is noticed anyway.
        ::SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
        check(options);
        ::ERR_clear_error();  // what others have left behind on this thread
        trust(options);
        if (!options.certificate_file.empty()) identify(options);
    }

    SSL_CTX* get() const noexcept {
        return context_.get();
    }
    const BIO_METHOD* method() const noexcept {
        return method_.get();
    }

private:
    [[noreturn]] static void refuse(const std::string& what, const std::string& reason) {
        throw LockError{detail::invalid("TLS: " + what + ": " + reason)};
    }

    /// Refuses for the first error that OpenSSL reports: the others say in which part of OpenSSL it happened.
    [[noreturn]] static void refuse(const std::string& what) {
        const std::string reason = openssl_message(::ERR_peek_error());
        ::ERR_clear_error();
        refuse(what, reason);
    }

    /// Refuses what OpenSSL would ignore without a word, or tell without the system's reason.
    static void check(const TlsOptions& options) {
        if (options.certificate_file.empty()) {
            constexpr const char* useless = "is of no use without certificate_file";
            if (!options.key_file.empty()) refuse("key_file", useless);
            if (!options.key_password.empty()) refuse("key_password", useless);
        }
        const std::string& name = options.server_name;
        constexpr std::size_t longest_host_name = 255;
        if (name.size() > longest_host_name || name.find('\0') != std::string::npos) {
            refuse("server_name", "is no name of a host");
        }
        check_readable("ca_file", options.ca_file);
        check_readable("certificate_file", options.certificate_file);
        check_readable("key_file", options.key_file);
        if (options.ca_folder.empty()) return;
        const Descriptor folder{
            ::open(options.ca_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
        if (!folder.valid()) refuse_path("ca_folder", options.ca_folder);
    }

    static void check_readable(const char* option, const std::string& path) {
        if (path.empty()) return;
        const Descriptor file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
        struct stat status {};
        if (!file.valid() || ::fstat(file.get(), &status) != 0) refuse_path(option, path);
        char byte = 0;
        const bool once = S_ISFIFO(status.st_mode);  // a read takes bytes out of a pipe
        if (!once && ::read(file.get(), &byte, 1) < 0) refuse_path(option, path);
    }

    /// Refuses for the reason that `errno` says.
    [[noreturn]] static void refuse_path(const std::string& option, const std::string& path) {
        const std::string reason = system_message(errno);
        refuse(option + " '" + printable(path) + "' cannot be read", reason);
    }

    static const char* or_null(const std::string& path) {
        return path.empty() ? nullptr : path.c_str();
    }

    void trust(const TlsOptions& options) {
        if (options.ca_file.empty() && options.ca_folder.empty()) {
            if (::SSL_CTX_set_default_verify_paths(get()) != 1) {
                refuse("the system's authorities cannot be read");
            }
            return;
        }
        if (::SSL_CTX_load_verify_locations(get(), or_null(options.ca_file),
                                            or_null(options.ca_folder)) != 1) {
            refuse("ca_file '" + printable(options.ca_file) + "' cannot be used");
        }
    }

    void identify(const TlsOptions& options) {
        const std::string& key =
            options.key_file.empty() ? options.certificate_file : options.key_file;
        // Set even where there is no pass phrase: OpenSSL would ask for it on the terminal.
        ::SSL_CTX_set_default_passwd_cb(get(), &tell_password);
        ::SSL_CTX_set_default_passwd_cb_userdata(get(),
                                                 const_cast<std::string*>(&options.key_password));
        if (::SSL_CTX_use_certificate_chain_file(get(), options.certificate_file.c_str()) != 1) {
            refuse("certificate_file '" + printable(options.certificate_file) + "' cannot be used");
        }
        if (::SSL_CTX_use_PrivateKey_file(get(), key.c_str(), SSL_FILETYPE_PEM) != 1) {
            refuse("the key in '" + printable(key) + "' cannot be used");
        }
        ::SSL_CTX_set_default_passwd_cb_userdata(get(), nullptr);
    }

    static int tell_password(char* buffer, int size, int, void* password) {
        if (password == nullptr) return 0;
        const auto& text = *static_cast<const std::string*>(password);
        if (text.size() > static_cast<std::size_t>(size)) return 0;
        std::copy(text.begin(), text.end(), buffer);
        return static_cast<int>(text.size());
    }

    struct Free {
        void operator()(SSL_CTX* context) const noexcept { ::SSL_CTX_free(context); }
        void operator()(BIO_METHOD* method) const noexcept { ::BIO_meth_free(method); }
    };
    std::unique_ptr<BIO_METHOD, Free> method_{TlsSocket::new_method()};
    std::unique_ptr<SSL_CTX, Free> context_;
};

/// One TLS connection.
class TlsStream final : public Stream {
public:
    TlsStream(std::shared_ptr<const TlsContext> context, int fd)
        : context_(std::move(context)), socket_(fd), ssl_(::SSL_new(context_->get())) {
        BIO* const bio = ssl_ == nullptr ? nullptr : socket_.bio(context_->method());
        if (bio == nullptr) {
            ssl_.reset();
        } else {
            ::SSL_set_bio(ssl_.get(), bio, bio);
        }
    }

    /// Shakes hands with a server that has to be `name`.
    Expected<void, Fault> connect(const std::string& name, const Limit& limit) {
        if (ssl_ == nullptr || !expect_server(name)) return Unexpected{io_fault("out of memory")};
        for (;;) {
            ::ERR_clear_error();
            const int result = ::SSL_connect(ssl_.get());
            if (result == 1) return {};
            if (outcome(result, read_awaits_) == 0) return Unexpected{closed()};
            if (errno != EAGAIN) return Unexpected{fault_};
            if (auto ready = wait_ready(socket_.fd(), read_awaits_, limit); !ready) {
                if (ready.error().error.code == Errc::unavailable) {
                    ready.error().error.message = no_handshake;
                }
                return ready;
            }
        }
    }

    ssize_t write(std::string_view bytes) override {
        ::ERR_clear_error();
        write_awaits_ = POLLOUT;
        std::size_t written = 0;
        const int result = ::SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written);
        if (result == 1) return static_cast<ssize_t>(written);
        if (outcome(result, write_awaits_) == 0) fail(closed());
        return -1;
    }

    ssize_t read(std::span<char> buffer, bool block) override {
        ::ERR_clear_error();
        socket_.block = block;
        read_awaits_ = POLLIN;
        std::size_t count = 0;
        const int result = ::SSL_read_ex(ssl_.get(), buffer.data(), buffer.size(), &count);
        socket_.block = false;
        return result == 1 ? static_cast<ssize_t>(count) : outcome(result, read_awaits_);
    }

    short read_awaits() const override { return read_awaits_; }
    short write_awaits() const override { return write_awaits_; }
    Fault fault() const override { return fault_; }

private:
    static constexpr const char* no_handshake =
        "TLS: no answer to the handshake in time (does the server expect TLS on this port?)";
    static constexpr const char* no_tls =
        "TLS: the answer is something else (does the server expect TLS on this port?)";

    /// The handshake checks name or address, and asks for the name. Certificates and SNI have no dot at
    /// the end of a whole name (RFC 6066, section 3).
    bool expect_server(std::string name) {
        if (name.size() > 1 && name.ends_with('.')) name.pop_back();
        SSL* const ssl = ssl_.get();
        // No certificate has the zone of an address.
        if (name.find(':') != std::string::npos) name.resize(std::min(name.size(), name.find('%')));
        ::SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl), name.c_str()) == 1) return true;
        ::ERR_clear_error();
        return ::SSL_set1_host(ssl, name.c_str()) == 1 &&
               // What SSL_set_tlsext_host_name does, without a cast that -Wold-style-cast refuses.
               ::SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                          name.data()) == 1;
    }

    /// What an operation that did not succeed means: 0 at the end, otherwise -1 and `errno`. With EAGAIN,
    /// `awaits` says what it needs.
    ssize_t outcome(int result, short& awaits) {
        switch (::SSL_get_error(ssl_.get(), result)) {
            case SSL_ERROR_WANT_READ: return again(awaits, POLLIN);
            case SSL_ERROR_WANT_WRITE: return again(awaits, POLLOUT);
            case SSL_ERROR_ZERO_RETURN: return 0;
            case SSL_ERROR_SYSCALL:
                if (socket_.error == 0) return 0;
                return fail(io_fault("TLS: " + system_message(socket_.error)));
            default: return fail(refusal());
        }
    }

    static ssize_t again(short& awaits, short events) {
        awaits = events;
        errno = EAGAIN;
        return -1;
    }

    ssize_t fail(Fault fault) {
        fault_ = std::move(fault);
        ::ERR_clear_error();
        errno = EPROTO;
        return -1;
    }

    static Fault closed() { return io_fault("TLS: the server closed the connection"); }

    /// Whether an alert speaks of damaged bytes or of trouble of the server's own (RFC 8446, 6.2), and not of
    /// the two ends or their terms.
    static bool is_passing(int alert) {
        constexpr std::array passing{SSL_AD_UNEXPECTED_MESSAGE, SSL_AD_BAD_RECORD_MAC,
                                     SSL_AD_RECORD_OVERFLOW,    SSL_AD_DECODE_ERROR,
                                     SSL_AD_INTERNAL_ERROR,     SSL_AD_USER_CANCELLED};
        return std::find(passing.begin(), passing.end(), alert) != passing.end();
    }

    static constexpr int last_alert = SSL_AD_REASON_OFFSET + 255;

    /// Whether OpenSSL speaks of a failure of its own, such as a lack of memory, and of nothing that the other end has
    /// sent: such a reason is below those of TLS or, since OpenSSL 3, beyond the alerts.
    static bool is_own_failure(unsigned long error) {
        constexpr int first_of_tls = 100;
        const int reason = ERR_GET_REASON(error);
        return ERR_GET_LIB(error) == ERR_LIB_SSL && (reason < first_of_tls || reason > last_alert);
    }

    /// Why the two ends do not agree. Unless the trouble is passing, trying again would not help.
    Fault refusal() const {
        const unsigned long error = ::ERR_peek_last_error();
        Fault fault{.error = make_error(Errc::protocol, "TLS: " + openssl_message(error)),
                    .transient = false};
        const long verdict = ::SSL_get_verify_result(ssl_.get());
        const int reason = ERR_GET_REASON(error);
        if (is_own_failure(error) || verdict == X509_V_ERR_OUT_OF_MEM) {
            return io_fault(fault.error.message);
        }
        if (verdict != X509_V_OK) {
            fault.error.code = Errc::denied;
            fault.error.message = std::string{"TLS: the server's certificate is not accepted: "} +
                                  ::X509_verify_cert_error_string(verdict);
        } else if (is_passing(reason - SSL_AD_REASON_OFFSET)) {
            return io_fault(fault.error.message);
        } else if (reason >= SSL_AD_REASON_OFFSET) {  // an alert: the server's own words
            fault.error.code = Errc::denied;
        } else if (reason == SSL_R_WRONG_VERSION_NUMBER) {
            fault.error.message = no_tls;
        }
        return fault;
    }

    struct Free {
        void operator()(SSL* ssl) const noexcept { ::SSL_free(ssl); }
    };
    std::shared_ptr<const TlsContext> context_;
    TlsSocket socket_;
    std::unique_ptr<SSL, Free> ssl_;
    short read_awaits_ = POLLIN;
    short write_awaits_ = POLLOUT;
    Fault fault_;
};

/// TLS with the options of a client.
class OpenSslLayer final : public TlsLayer {
public:
    explicit OpenSslLayer(TlsOptions options)
        : options_(std::move(options)), context_(std::make_shared<const TlsContext>(options_)) {}

    /// A layer that cannot be set up.
    OpenSslLayer(TlsOptions options, Error refusal)
        : options_(std::move(options)), refusal_{.error = std::move(refusal), .transient = false} {}

    Expected<std::unique_ptr<Stream>, Fault> secure(int fd, const std::string& host,
                                                    const Limit& limit) const override {
        if (context_ == nullptr) return Unexpected{refusal_};
        auto stream = std::make_unique<TlsStream>(context_, fd);
        const std::string& name = options_.server_name.empty() ? host : options_.server_name;
        if (auto done = stream->connect(name, limit); !done) {
            return Unexpected{std::move(done).error()};
        }
        return std::unique_ptr<Stream>{std::move(stream)};
    }

    std::shared_ptr<const TlsLayer> afresh() const override {
        try {
            return std::make_shared<const OpenSslLayer>(options_);
        } catch (const LockError& error) {
            return std::make_shared<const OpenSslLayer>(options_, error.error());
        }
    }

private:
    const TlsOptions options_;
    const std::shared_ptr<const TlsContext> context_;
    const Fault refusal_{};  // where there is no context
};

}  // namespace detail

/// What `ClientOptions::tls` wants. Reads the files, and throws `LockError` with
/// `Errc::invalid_argument` where one cannot be used. Several clients may share it.
inline std::shared_ptr<const TlsLayer> tls(TlsOptions options = {}) {
    return std::make_shared<const detail::OpenSslLayer>(std::move(options));
}

}  // namespace redlatch::inline v0
