// SPDX-License-Identifier: BSD-2-Clause

package moonrail

// #include <moonrail.h>
import "C"

import (
	"context"
	"math/bits"
	"sync"
	"time"
)

const (
	batchLargest = 1024 // a batch for more requests than this is not kept for reuse
	batchKept    = 8    // number of unused batches kept for reuse, per size
)

// batches holds batches of the C library, which transfers use one after the other.
// Resetting a batch costs less than allocating one.
type batches struct {
	mu     sync.Mutex
	unused [12][]C.batch_id_t // batches of each size, by the logarithm of the size
}

// get returns a batch with room for count requests, or INVALID_BATCH, and its size.
func (b *batches) get(h C.transfer_engine_t, count int) (C.batch_id_t, int) {
	if count > batchLargest {
		return C.allocateBatchID(h, C.size_t(count)), count
	}
	log := bits.Len(uint(count - 1))
	for {
		b.mu.Lock()
		list := b.unused[log]
		if len(list) == 0 {
			b.mu.Unlock()
			return C.allocateBatchID(h, C.size_t(1)<<log), 1 << log
		}
		id := list[len(list)-1]
		b.unused[log] = list[:len(list)-1]
		b.mu.Unlock()
		if C.te_batch_reset(h, id) == 0 {
			return id, 1 << log
		}
		C.freeBatchID(h, id)
	}
}

// put takes back a batch whose requests have ended, for a later get.
func (b *batches) put(h C.transfer_engine_t, id C.batch_id_t, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := bits.Len(uint(size - 1))
	if size > batchLargest || len(b.unused[log]) >= batchKept {
		C.freeBatchID(h, id)
		return
	}
	b.unused[log] = append(b.unused[log], id)
}

// waitTurn is the time after which WaitAny checks again whether its context has ended or
// the engine was closed.
const waitTurn = 50 * time.Millisecond

// WaitAny waits until one of the transfers has ended, and returns its index. If the context
// ends first, it returns the error of the context. At most 4096 transfers may be passed.
func (e *Engine) WaitAny(ctx context.Context, transfers ...*Transfer) (int, error) {
	if n := len(transfers); n == 0 || n > C.TE_WAIT_MAX {
		return -1, newError(InvalidArgument, "%d transfers (must be 1 to %d)", n,
			int(C.TE_WAIT_MAX))
	}
	ids := make([]C.batch_id_t, len(transfers))
	for i, t := range transfers {
		if t.engine != e {
			return -1, newError(InvalidArgument, "transfer %d: it is of another engine", i)
		}
		if !t.hold() {
			return i, nil
		}
		defer t.drop()
		ids[i] = t.batch
	}
	for {
		if err := ctx.Err(); err != nil {
			return -1, err
		}
		var index C.size_t
		late := false
		err := e.call(func(h C.transfer_engine_t) C.int {
			code := C.te_wait_any(h, &ids[0], C.size_t(len(ids)),
				C.int64_t(waitTurn/time.Microsecond), &index, nil)
			late = code == C.TE_TIMED_OUT
			if late {
				return 0
			}
			return code
		})
		if err != nil {
			return -1, err
		}
		if !late {
			return int(index), nil
		}
		select {
		case <-e.closing:
			return -1, ErrClosed
		default:
		}
	}
}

// hold keeps the batch from being released until drop is called. It returns false if the
// transfer has ended.
func (t *Transfer) hold() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done() {
		return false
	}
	t.holders++
	return true
}

// drop undoes hold.
func (t *Transfer) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holders--
	if t.done() {
		_ = t.engine.use(t.release)
	}
}
