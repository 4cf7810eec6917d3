// SPDX-License-Identifier: BSD-2-Clause

// Package moonrail moves bytes between the memory of processes, over all network cards of
// the two hosts, by libfabric. It is an interface to the C library.
//
// If a transfer is reported as completed, its bytes are in place at the target. After its
// end, in whatever way, local memory is not touched any more. Error.Unfenced returns true
// if bytes may still arrive at the target.
//
// # Memory
//
// Other processes and the threads of the C library access memory at any time, so it lies
// outside Go's heap: Engine.Alloc makes it, and Engine.Register and Engine.Unregistered accept
// memory of C or of mmap. A pointer to memory of Go is refused. The functions WriteBytes and ReadBytes take
// Go slices; they copy, and have ended when they return.
//
// # Contexts
//
// The blocking functions of Segment cancel a transfer when their context ends, and return
// when the transfer has ended. Batch.Submit passes the deadline of its context to the
// library. Transfer.Wait only stops waiting. The other functions with a context use its
// deadline as their time limit; they notice a cancellation without a deadline only at their
// beginning.
//
// # The C library
//
// docs/BINDINGS.md of the sources lists the C functions that this package leaves out.
//
// # Threads
//
// All functions may be called from any goroutine. Close of an engine ends the waits of
// others.
package moonrail

/*
#cgo LDFLAGS: -lmoonrail
#include <time.h>
#include <moonrail.h>

static uint64_t go_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void go_nothing(void *p)
{
	(void)p;
}

void goMoonrailLog(int level, char *module, char *text, void *context);

static int go_set_log(int on)
{
	return te_set_log(on ? (te_log_fn)goMoonrailLog : NULL, NULL);
}
*/
import "C"

import (
	"context"
	"math"
	"sync"
	"time"
	"unsafe"
)

// Version returns the version of the C library, for example "0.2.0".
func Version() string {
	return C.GoString(C.te_version())
}

// FabricVersion returns the API version of the libfabric in use, for example "1.17".
func FabricVersion() string {
	return C.GoString(C.te_fabric_version())
}

// LogLevel is the severity of a log line.
type LogLevel int

const (
	LogError LogLevel = C.TE_LOG_ERROR
	LogWarn  LogLevel = C.TE_LOG_WARN
	LogInfo  LogLevel = C.TE_LOG_INFO
	LogDebug LogLevel = C.TE_LOG_DEBUG
)

var (
	logLock sync.RWMutex
	logFunc func(level LogLevel, module, text string)
)

// SetLog passes the log lines of the C library to a callback; nil restores standard error.
// The callback may be called from any thread at any time. It must not call this package,
// and must return quickly. A panic in the callback is caught and ignored.
func SetLog(f func(level LogLevel, module, text string)) error {
	logLock.Lock()
	logFunc = f
	logLock.Unlock()
	on := C.int(0)
	if f != nil {
		on = 1
	}
	return call(func() C.int { return C.go_set_log(on) })
}

func logLine(level LogLevel, module, text string) {
	defer func() { _ = recover() }()
	logLock.RLock()
	f := logFunc
	logLock.RUnlock()
	if f != nil {
		f(level, module, text)
	}
}

// isGo returns true if a pointer points to Go memory. It relies on cgo's check that memory
// which is passed to C does not contain such a pointer; the check panics if it does. With
// GODEBUG=cgocheck=0 there is no check, and the result is always false.
func isGo(p unsafe.Pointer) (is bool) {
	defer func() {
		if recover() != nil {
			is = true
		}
	}()
	holder := &struct{ p unsafe.Pointer }{p}
	C.go_nothing(unsafe.Pointer(holder))
	return false
}

// microseconds returns the time until the deadline of a context, or -1 if it has none.
func microseconds(ctx context.Context) (C.int64_t, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return -1, nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return 0, context.DeadlineExceeded
	}
	return C.int64_t((left + time.Microsecond - 1) / time.Microsecond), nil
}

// deadlineOf returns the deadline of a context in nanoseconds of CLOCK_MONOTONIC, or 0 if
// the context has none.
func deadlineOf(ctx context.Context) C.uint64_t {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	if left < 1 {
		left = 1
	}
	now := C.go_monotonic_ns()
	if uint64(left) > math.MaxUint64-uint64(now) {
		return 0
	}
	return now + C.uint64_t(left)
}
