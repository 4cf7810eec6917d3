// SPDX-License-Identifier: BSD-2-Clause

package moonrail

// #include <moonrail.h>
import "C"

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Range is a range of the target's memory.
type Range struct {
	Address uint64 // address in the target process
	Length  uint64 // bytes
}

type request struct {
	opcode           C.uint32_t
	segment          *Segment
	local            []Piece
	remote           []Range
	operand, compare uint64
	cookie           uint64
}

// Task is the result of one request of a transfer.
type Task struct {
	Cookie uint64 // value of Batch.Cookie, or 0
	Status Status
	Bytes  uint64 // number of bytes that have arrived
}

// Batch is a list of requests that will be submitted together. The order of their execution
// is undefined. A batch is used by one goroutine at a time.
type Batch struct {
	engine   *Engine
	requests []request
}

// NewBatch returns an empty batch.
func (e *Engine) NewBatch() *Batch {
	return &Batch{engine: e}
}

// Len returns the number of requests.
func (b *Batch) Len() int { return len(b.requests) }

func (b *Batch) add(r request) *Batch {
	b.requests = append(b.requests, r)
	return b
}

// Write adds a write of local memory to a remote address.
func (b *Batch) Write(to *Segment, local Piece, remote uint64) *Batch {
	return b.WritePieces(to, []Piece{local}, []Range{{remote, uint64(local.length)}})
}

// Read adds a read from a remote address into local memory.
func (b *Batch) Read(from *Segment, local Piece, remote uint64) *Batch {
	return b.ReadPieces(from, []Piece{local}, []Range{{remote, uint64(local.length)}})
}

// WritePieces adds one request that writes the local pieces, one after the other, to the
// remote ranges. Both sides have the same total length.
func (b *Batch) WritePieces(to *Segment, local []Piece, remote []Range) *Batch {
	return b.add(request{opcode: C.TE_WRITE, segment: to, local: local, remote: remote})
}

// ReadPieces adds one request that reads the remote ranges, one after the other, into the
// local pieces.
func (b *Batch) ReadPieces(from *Segment, local []Piece, remote []Range) *Batch {
	return b.add(request{opcode: C.TE_READ, segment: from, local: local, remote: remote})
}

// AtomicAdd adds a request that atomically adds operand to the 8-byte number at a remote
// address.
func (b *Batch) AtomicAdd(at *Segment, remote, operand uint64) *Batch {
	return b.add(request{opcode: C.TE_ATOMIC_ADD, segment: at,
		remote: []Range{{remote, 8}}, operand: operand})
}

// AtomicFetchAdd adds a request that atomically adds operand to a remote number and stores
// the old value in old, a piece of 4 or 8 bytes. The remote number has the same length.
func (b *Batch) AtomicFetchAdd(at *Segment, old Piece, remote, operand uint64) *Batch {
	return b.atomic(C.TE_ATOMIC_FETCH_ADD, at, old, remote, operand, 0)
}

// AtomicSwap adds a request that atomically replaces a remote number and stores the old
// value in old.
func (b *Batch) AtomicSwap(at *Segment, old Piece, remote, operand uint64) *Batch {
	return b.atomic(C.TE_ATOMIC_SWAP, at, old, remote, operand, 0)
}

// AtomicCompareSwap adds a request that does what AtomicSwap does if the remote number is
// equal to compare; otherwise it only stores the value in old.
func (b *Batch) AtomicCompareSwap(at *Segment, old Piece, remote, compare, operand uint64) *Batch {
	return b.atomic(C.TE_ATOMIC_CAS, at, old, remote, operand, compare)
}

func (b *Batch) atomic(opcode C.uint32_t, at *Segment, old Piece,
	remote, operand, compare uint64) *Batch {
	return b.add(request{opcode: opcode, segment: at, local: []Piece{old},
		remote:  []Range{{remote, uint64(old.length)}},
		operand: operand, compare: compare})
}

// Cookie sets the cookie of the request that was added last. A cookie is a number that the
// program chooses and that Transfer.Tasks returns. SubmitAndNotify ignores it.
func (b *Batch) Cookie(cookie uint64) *Batch {
	if n := len(b.requests); n > 0 {
		b.requests[n-1].cookie = cookie
	}
	return b
}

// check returns an error if the requests cannot be passed to the library.
func (b *Batch) check() error {
	if len(b.requests) == 0 {
		return newError(InvalidArgument, "the batch has no request")
	}
	for i, r := range b.requests {
		if r.segment == nil || r.segment.engine != b.engine {
			return newError(InvalidArgument, "request %d: the segment is of another engine", i)
		}
		if r.segment.closed.Load() {
			return ErrClosed
		}
		for _, p := range r.local {
			if p.memory == nil || p.memory.engine != b.engine {
				return newError(InvalidArgument,
					"request %d: the memory is of another engine", i)
			}
			if p.memory.closed.Load() {
				return ErrClosed
			}
		}
	}
	return nil
}

// Submit submits the requests: all of them or none. Requests that have not ended at the
// deadline of the context fail; a cancellation of the context is ignored afterwards. The
// batch is empty after a success.
func (b *Batch) Submit(ctx context.Context) (*Transfer, error) {
	return b.submit(ctx, func(h C.transfer_engine_t, id C.batch_id_t, memory *cMemory) C.int {
		return C.te_submit(h, id, b.toC(memory), C.sizeof_struct_te_request,
			C.size_t(len(b.requests)), 0)
	})
}

// SubmitAndNotify submits reads and writes of one piece each. When all of them are
// completed, the target of the first one receives a notification.
func (b *Batch) SubmitAndNotify(ctx context.Context, name, text string) (*Transfer, error) {
	var memory cMemory
	defer memory.free()
	msg, err := memory.notification(name, text)
	if err != nil {
		return nil, err
	}
	for i, r := range b.requests {
		if r.opcode > C.TE_WRITE || len(r.local) != 1 || len(r.remote) != 1 ||
			unregistered(r.local) {
			return nil, newError(InvalidArgument, "request %d: only reads and writes of one "+
				"registered piece can have a notification", i)
		}
	}
	return b.submit(ctx, func(h C.transfer_engine_t, id C.batch_id_t, memory *cMemory) C.int {
		return C.submitTransferWithNotify(h, id, b.toPlainC(memory),
			C.size_t(len(b.requests)), msg)
	})
}

func (b *Batch) submit(ctx context.Context,
	f func(C.transfer_engine_t, C.batch_id_t, *cMemory) C.int) (*Transfer, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := b.engine.start(ctx, len(b.requests), f)
	if err != nil {
		return nil, err
	}
	b.requests = nil
	return t, nil
}

// start calls a function with a batch of the C library that has room for count requests.
// The function fills the batch.
func (e *Engine) start(ctx context.Context, count int,
	f func(C.transfer_engine_t, C.batch_id_t, *cMemory) C.int) (*Transfer, error) {
	deadline := deadlineOf(ctx)
	t := &Transfer{engine: e, count: count, ended: make(chan struct{})}
	var memory cMemory
	defer memory.free()
	if err := e.find(func(h C.transfer_engine_t) bool {
		t.batch, t.size = e.batches.get(h, count)
		return t.batch != C.INVALID_BATCH
	}); err != nil {
		return nil, err
	}
	if err := e.call(func(h C.transfer_engine_t) C.int {
		code := C.te_batch_deadline(h, t.batch, deadline)
		if code == 0 {
			code = f(h, t.batch, &memory)
		}
		if code != 0 {
			C.freeBatchID(h, t.batch)
		}
		return code
	}); err != nil {
		return nil, err
	}
	return t, nil
}

// Run submits the requests and waits for their end. If the context ends first, it cancels the
// requests, and returns when they have ended. It returns the number of bytes.
func (b *Batch) Run(ctx context.Context) (uint64, error) {
	t, err := b.Submit(ctx)
	if err != nil {
		return 0, err
	}
	n, err := t.Wait(ctx)
	if ctx.Err() != nil && !t.done() {
		t.Cancel()
		n, err = t.Wait(context.Background())
	}
	return n, err
}

// toC converts the requests to an array of C.
func (b *Batch) toC(memory *cMemory) *C.struct_te_request {
	n := len(b.requests)
	array := (*C.struct_te_request)(memory.alloc(n * C.sizeof_struct_te_request))
	for i, c := range unsafe.Slice(array, n) {
		r := b.requests[i]
		c.opcode = r.opcode
		if unregistered(r.local) {
			c.flags = C.TE_REQ_BOUNCE
		}
		c.target_id = r.segment.id
		c.operand, c.compare = C.uint64_t(r.operand), C.uint64_t(r.compare)
		c.cookie = C.uint64_t(r.cookie)
		c.local_count, c.remote_count = C.uint32_t(len(r.local)), C.uint32_t(len(r.remote))
		if len(r.local) > 0 {
			c.local = memory.locals(r.local)
		}
		if len(r.remote) > 0 {
			c.remote = memory.remotes(r.remote)
		}
		unsafe.Slice(array, n)[i] = c
	}
	return array
}

// toPlainC converts the requests, which must have one piece each, to an array of C.
func (b *Batch) toPlainC(memory *cMemory) *C.transfer_request_t {
	n := len(b.requests)
	array := (*C.transfer_request_t)(memory.alloc(n * C.sizeof_transfer_request_t))
	for i, r := range b.requests {
		local := r.local[0].toC()
		c := &unsafe.Slice(array, n)[i]
		c.opcode = C.OPCODE_READ
		if r.opcode == C.TE_WRITE {
			c.opcode = C.OPCODE_WRITE
		}
		c.source = local.addr
		c.target_id = r.segment.id
		c.target_offset = C.uint64_t(r.remote[0].Address)
		c.length = local.length
	}
	return array
}

// Transfer is a number of requests that were submitted together. It implements io.Closer. A
// program must call Wait until it returns the result, or call Close; both free the
// transfer. Until then, the program must not close memory that the transfer uses.
type Transfer struct {
	engine *Engine
	count  int
	ended  chan struct{} // this channel is closed when the transfer has ended

	mu      sync.Mutex
	batch   C.batch_id_t
	size    int // number of requests for which the batch has room
	holders int // number of calls of WaitAny that use the batch
	checked C.uint32_t
	// the result, which is valid after the end
	status Status
	bytes  uint64
	err    error
	tasks  []C.struct_te_task
}

// done returns true if a call of this package has noticed the end of the transfer.
func (t *Transfer) done() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// poll waits until the transfer has ended, for at most limit, and records the result. It
// returns true if the transfer has ended.
func (t *Transfer) poll(limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done() {
		return true
	}
	var s C.transfer_status_t
	late := false
	err := t.engine.call(func(h C.transfer_engine_t) C.int {
		code := C.te_wait_batch(h, t.batch, C.int64_t(limit/time.Microsecond), &s)
		if code == C.TE_TIMED_OUT {
			late = true
			return 0
		}
		if code == 0 && s.status != C.STATUS_COMPLETED {
			t.err = t.record(h, Status(s.status))
		}
		t.tasks = t.list(h)
		t.release(h)
		return code
	})
	t.status, t.bytes = Status(s.status), uint64(s.transferred_bytes)
	if late {
		return false
	}
	if err != nil {
		t.status, t.err = StatusFailed, err
	}
	close(t.ended)
	return true
}

// release makes the batch available to other transfers after the end. If WaitAny is using
// the batch, release does nothing, and WaitAny releases the batch later. The caller holds
// the lock.
func (t *Transfer) release(h C.transfer_engine_t) {
	if t.holders == 0 {
		t.engine.batches.put(h, t.batch, t.size)
	}
}

// list returns the state of each request.
func (t *Transfer) list(h C.transfer_engine_t) []C.struct_te_task {
	list := make([]C.struct_te_task, t.count)
	n := C.size_t(t.count)
	if C.te_batch_tasks(h, t.batch, 0, &list[0], C.sizeof_struct_te_task, &n) != 0 {
		return nil
	}
	return list[:n]
}

// Tasks returns the results of the requests, in the order in which they were added. It does
// not wait.
func (t *Transfer) Tasks() ([]Task, error) {
	done := t.poll(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.tasks
	if !done && !t.done() {
		if err := t.engine.use(func(h C.transfer_engine_t) { list = t.list(h) }); err != nil {
			return nil, err
		}
	}
	tasks := make([]Task, len(list))
	for i, one := range list {
		tasks[i] = Task{uint64(one.cookie), Status(one.status), uint64(one.transferred_bytes)}
	}
	return tasks, nil
}

// ID returns the id of the batch, which Engine.EndedBatches returns. After the end of a
// transfer, its id is used again.
func (t *Transfer) ID() uint64 {
	return uint64(t.batch)
}

// Checked returns true if the submission of a prepared list has checked its pieces again.
func (t *Transfer) Checked() bool { return t.checked&C.TE_PREPARED_CHECKED != 0 }

// Restarted returns true if the pieces were checked again because the target's process has
// been replaced.
func (t *Transfer) Restarted() bool { return t.checked&C.TE_PREPARED_RESTARTED != 0 }

// record returns the error record of the first request that was not completed.
func (t *Transfer) record(h C.transfer_engine_t, status Status) error {
	var record C.struct_te_error
	for i := 0; i < t.count && record.code == 0; i++ {
		C.te_task_error(h, t.batch, C.size_t(i), &record, C.sizeof_struct_te_error)
	}
	err := fromRecord(&record, status)
	if err.Code == 0 {
		err.Code = InvalidArgument
		if status == StatusCanceled {
			err.Code = Canceled
		}
	}
	return err
}

// spin is the time for which a waiting goroutine drives the progress of a transfer before
// it sleeps.
const spin = 100 * time.Microsecond

// Wait waits until all requests have ended, and returns the number of bytes. If the context
// ends first, Wait returns the error of the context, and the transfer continues.
func (t *Transfer) Wait(ctx context.Context) (uint64, error) {
	if !t.poll(spin) {
		if err := t.sleep(ctx); err != nil && !t.poll(0) {
			return 0, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes, t.err
}

// sleep waits until the transfer or the context has ended. It waits in Go's poller, with a
// duplicate of the file descriptor of the batch.
func (t *Transfer) sleep(ctx context.Context) error {
	file, err := t.file()
	if err != nil {
		return err
	}
	defer file.Close()
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-ctx.Done():
		case <-t.engine.closing:
		case <-t.ended:
		case <-finished:
			return
		}
		// Makes the read of the other goroutine return.
		_ = file.SetReadDeadline(time.Unix(1, 0))
	}()
	err = raw.Read(func(uintptr) bool { return t.poll(0) })
	if err == nil || t.done() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return ErrClosed
}

func (t *Transfer) file() (*os.File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done() {
		return nil, ErrClosed // the caller gets the result from poll()
	}
	fd := -1
	err := t.engine.call(func(h C.transfer_engine_t) C.int {
		number := C.te_batch_event_fd(h, t.batch)
		if number < 0 {
			return number
		}
		copied, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(number),
			syscall.F_DUPFD_CLOEXEC, 0)
		if errno == 0 {
			fd = int(copied)
		}
		return 0
	})
	if err != nil {
		return nil, err
	}
	if fd < 0 {
		return nil, newError(202, "the batch's file descriptor cannot be duplicated")
	}
	return os.NewFile(uintptr(fd), "moonrail batch"), nil
}

// Status returns the worst status of the requests, and the number of bytes that have
// arrived. It does not wait.
func (t *Transfer) Status() (Status, uint64) {
	t.poll(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status, t.bytes
}

// Cancel requests that the transfer ends early. Wait returns how the transfer has ended.
// The memory may be used again only after the transfer has ended.
func (t *Transfer) Cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done() {
		_ = t.engine.use(func(h C.transfer_engine_t) { C.te_cancel_batch(h, t.batch) })
	}
}

// Close cancels the requests in progress and waits until they have ended. It always returns
// nil.
func (t *Transfer) Close() error {
	t.Cancel()
	_, _ = t.Wait(context.Background())
	return nil
}
