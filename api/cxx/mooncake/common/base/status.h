/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_STATUS_H
#define MOONRAIL_MOONCAKE_STATUS_H

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace mooncake {

/* The result of a call: a code and, for an error, a message. */
class Status final {
public:
	enum class Code : std::uint16_t {
		kOk = 0,
		kInvalidArgument = 1,
		kTooManyRequests = 2,
		kAddressNotRegistered = 3,
		kBatchBusy = 4,
		kDeviceNotFound = 6,
		kAddressOverlapped = 7,
		kNotSupportedTransport = 8,
		kDns = 101,
		kSocket = 102,
		kMalformedJson = 103,
		kRejectHandshake = 104,
		kMetadata = 200,
		kEndpoint = 201,
		kContext = 202,
		kNuma = 300,
		kClock = 301,
		kMemory = 302,
		kNotImplemented = 999,
		kMaxCode
	};

	Status() = default;

	/* Creates a status. If the code is kOk, the message is not stored. */
	Status(Code code, std::string_view message) : code_(code)
	{
		if (code != Code::kOk)
			message_ = message;
	}

	Code code() const { return code_; }
	std::string_view message() const { return message_; }
	[[nodiscard]] bool ok() const { return code_ == Code::kOk; }

	static Status OK() { return Status(); }

/* Defines two functions for each code: one returns a status with that code, the
 * other returns true if a status has that code. */
#define MOONRAIL_STATUS_CODE(name)                                          \
	static Status name(std::string_view message)                        \
	{                                                                   \
		return Status(Code::k##name, message);                      \
	}                                                                   \
	[[nodiscard]] bool Is##name() const                                 \
	{                                                                   \
		return code_ == Code::k##name;                              \
	}
	MOONRAIL_STATUS_CODE(InvalidArgument)
	MOONRAIL_STATUS_CODE(TooManyRequests)
	MOONRAIL_STATUS_CODE(AddressNotRegistered)
	MOONRAIL_STATUS_CODE(BatchBusy)
	MOONRAIL_STATUS_CODE(DeviceNotFound)
	MOONRAIL_STATUS_CODE(AddressOverlapped)
	MOONRAIL_STATUS_CODE(NotSupportedTransport)
	MOONRAIL_STATUS_CODE(Dns)
	MOONRAIL_STATUS_CODE(Socket)
	MOONRAIL_STATUS_CODE(MalformedJson)
	MOONRAIL_STATUS_CODE(RejectHandshake)
	MOONRAIL_STATUS_CODE(Metadata)
	MOONRAIL_STATUS_CODE(Endpoint)
	MOONRAIL_STATUS_CODE(Context)
	MOONRAIL_STATUS_CODE(Numa)
	MOONRAIL_STATUS_CODE(Clock)
	MOONRAIL_STATUS_CODE(Memory)
	MOONRAIL_STATUS_CODE(NotImplemented)
#undef MOONRAIL_STATUS_CODE

	/* Returns the name of the code without its "k". */
	static std::string_view CodeToString(Code code)
	{
		switch (code) {
		case Code::kOk: return "OK";
		case Code::kInvalidArgument: return "InvalidArgument";
		case Code::kTooManyRequests: return "TooManyRequests";
		case Code::kAddressNotRegistered:
			return "AddressNotRegistered";
		case Code::kBatchBusy: return "BatchBusy";
		case Code::kDeviceNotFound: return "DeviceNotFound";
		case Code::kAddressOverlapped: return "AddressOverlapped";
		case Code::kNotSupportedTransport:
			return "NotSupportedTransport";
		case Code::kDns: return "Dns";
		case Code::kSocket: return "Socket";
		case Code::kMalformedJson: return "MalformedJson";
		case Code::kRejectHandshake: return "RejectHandshake";
		case Code::kMetadata: return "Metadata";
		case Code::kEndpoint: return "Endpoint";
		case Code::kContext: return "Context";
		case Code::kNuma: return "Numa";
		case Code::kClock: return "Clock";
		case Code::kMemory: return "Memory";
		case Code::kNotImplemented: return "NotImplemented";
		case Code::kMaxCode: break;
		}
		return "UnknownCode";
	}

	/* Returns "OK" or "Code: message". */
	std::string ToString() const
	{
		if (ok())
			return "OK";
		return std::string(CodeToString(code_)) + ": " + message_;
	}

	bool operator==(const Status &other) const = default;

private:
	Code code_ = Code::kOk;
	std::string message_;
};

inline std::ostream &operator<<(std::ostream &out, Status::Code code)
{
	return out << Status::CodeToString(code);
}

inline std::ostream &operator<<(std::ostream &out, const Status &status)
{
	return out << status.ToString();
}

} // namespace mooncake

#endif
