// SPDX-License-Identifier: BSD-2-Clause

package moonrail

// #include <moonrail.h>
import "C"

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// Values of Error.Code.
const (
	InvalidArgument = 1
	Busy            = 4
	TimedOut        = C.TE_TIMED_OUT
	Canceled        = C.TE_CANCELED
)

// ErrClosed is the error of calls on an engine, or on an object of an engine, after it was
// closed. It wraps os.ErrClosed.
var ErrClosed = fmt.Errorf("moonrail: the engine or the object is closed: %w", os.ErrClosed)

// Status tells how a transfer has ended, or that it is in progress.
type Status int

const (
	// StatusNone is the status in an error of a call that has no transfer.
	StatusNone Status = -1
	// StatusWaiting means that the request is queued or in progress.
	StatusWaiting Status = C.STATUS_WAITING
	// StatusCanceled means that a cancellation has ended the request; nothing further
	// is written.
	StatusCanceled Status = C.STATUS_CANCELED
	// StatusCompleted means that every byte has arrived.
	StatusCompleted Status = C.STATUS_COMPLETED
	// StatusTimeout means that the request has ended, but the target could not be
	// fenced, so that bytes may still arrive there.
	StatusTimeout Status = C.STATUS_TIMEOUT
	// StatusFailed means that the request has failed. The target is fenced, unless
	// Error.Unfenced returns true.
	StatusFailed Status = C.STATUS_FAILED
)

// Error describes a failed call or a failed transfer. It contains the error record of the C
// library. errors.Is finds context.DeadlineExceeded in it if a time limit has passed, and
// context.Canceled if the transfer was canceled.
type Error struct {
	Code          int    // code of transfer_engine_c.h, as a positive number
	Status        Status // status of the transfer; StatusNone if a call has failed
	ProviderErrno int    // error number of the libfabric provider, or 0
	Rail          string // the local rail, or ""
	Peer          string // the peer, or ""
	Provider      string // the libfabric provider, or ""
	Text          string // what happened
	Hint          string // what the user can do, or ""

	flags C.uint32_t
}

func (e *Error) Error() string {
	text := e.Text
	if text == "" {
		text = fmt.Sprintf("error %d", e.Code)
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return "moonrail: " + text
}

// Is returns true if errors.Is must treat target, which is context.Canceled or
// context.DeadlineExceeded, as a cause of the error.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Code == TimedOut
	case context.Canceled:
		return e.Code == Canceled
	}
	return false
}

// Unfenced returns true if bytes of the transfer may still arrive at the target.
func (e *Error) Unfenced() bool { return e.flags&C.TE_ERROR_UNFENCED != 0 }

// Unknown returns true if it is unknown whether the atomic was executed or the notification
// was delivered.
func (e *Error) Unknown() bool { return e.flags&C.TE_ERROR_UNKNOWN != 0 }

// Stale returns true if the segment must be opened again.
func (e *Error) Stale() bool { return e.flags&C.TE_ERROR_STALE != 0 }

func newError(code int, format string, args ...any) *Error {
	return &Error{Code: code, Status: StatusNone, Text: fmt.Sprintf(format, args...)}
}

func fromRecord(record *C.struct_te_error, status Status) *Error {
	code := int(record.code)
	if code < 0 {
		code = -code
	}
	return &Error{
		Code:          code,
		Status:        status,
		ProviderErrno: int(record.prov_errno),
		Rail:          text(record.rail[:]),
		Peer:          text(record.peer[:]),
		Provider:      text(record.provider[:]),
		Text:          text(record.text[:]),
		Hint:          text(record.hint[:]),
		flags:         record.flags,
	}
}

// lastError returns the last error of this thread. code is the code that the failed call
// has returned, or 0 if the call returns no code.
func lastError(code C.int) *Error {
	var record C.struct_te_error
	C.te_last_error(&record, C.size_t(unsafe.Sizeof(record)))
	err := fromRecord(&record, StatusNone)
	if code < 0 {
		code = -code
	}
	if code != 0 {
		err.Code = int(code)
	}
	return err
}

// call calls a function of the C library and converts its return code to an error. The
// goroutine is bound to its thread meanwhile, because the error record belongs to the
// thread.
func call(f func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := f(); code != 0 {
		return lastError(code)
	}
	return nil
}

// text converts a field of a C struct to a string.
func text(field []C.char) string {
	bytes := make([]byte, 0, len(field))
	for _, c := range field {
		if c == 0 {
			break
		}
		bytes = append(bytes, byte(c))
	}
	return string(bytes)
}
