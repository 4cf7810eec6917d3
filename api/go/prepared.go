// SPDX-License-Identifier: BSD-2-Clause

package moonrail

// #include <moonrail.h>
import "C"

import (
	"context"
	"sync/atomic"
	"unsafe"
)

// Move is one piece of a prepared list: a range of local memory, and the remote address
// from which it is read or to which it is written.
type Move struct {
	Local  Piece
	Remote uint64
}

// Prepared is a list of reads or writes of one segment that is checked once and submitted
// many times, also by several goroutines at the same time. The list stays valid when the
// target's process is restarted: the next submission then checks the pieces again. Prepared
// implements io.Closer.
type Prepared struct {
	segment *Segment
	list    C.te_prepared_t
	length  int
	closed  atomic.Bool
}

// PrepareWrite checks a list of writes.
func (s *Segment) PrepareWrite(moves []Move) (*Prepared, error) {
	return s.prepare(C.TE_WRITE, moves)
}

// PrepareRead checks a list of reads.
func (s *Segment) PrepareRead(moves []Move) (*Prepared, error) {
	return s.prepare(C.TE_READ, moves)
}

func (s *Segment) prepare(opcode C.uint32_t, moves []Move) (*Prepared, error) {
	var memory cMemory
	defer memory.free()
	n := len(moves)
	array := (*C.struct_te_piece)(memory.alloc((n + 1) * C.sizeof_struct_te_piece))
	pieces := unsafe.Slice(array, n)
	for i, one := range moves {
		if err := s.checkPiece(one.Local); err != nil {
			return nil, err
		}
		local := one.Local.toC()
		pieces[i].local, pieces[i].length = local.addr, local.length
		pieces[i].remote = C.uint64_t(one.Remote)
	}
	p := &Prepared{segment: s, length: n}
	list := (*C.te_prepared_t)(memory.alloc(C.sizeof_te_prepared_t))
	if err := s.call(func(h C.transfer_engine_t) C.int {
		return C.te_prepare(h, s.id, opcode, array, C.size_t(n), 0, list)
	}); err != nil {
		return nil, err
	}
	p.list = *list
	return p, nil
}

// checkPiece returns an error if the local memory of the piece cannot be used with the
// segment.
func (s *Segment) checkPiece(p Piece) error {
	if p.memory == nil || p.memory.engine != s.engine {
		return newError(InvalidArgument, "the memory is of another engine")
	}
	if p.memory.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Len returns the number of pieces.
func (p *Prepared) Len() int { return p.length }

// Submit submits the pieces with these numbers as one request. A number may occur several
// times. The request fails if it has not ended at the deadline of the context.
// Transfer.Restarted tells whether another process has replaced the target's process since
// the last check.
func (p *Prepared) Submit(ctx context.Context, indices []uint32, cookie uint64) (*Transfer, error) {
	if len(indices) == 0 {
		return nil, newError(InvalidArgument, "there is no index")
	}
	return p.submit(ctx, (*C.uint32_t)(&indices[0]), len(indices), cookie)
}

// SubmitAll submits all pieces as one request.
func (p *Prepared) SubmitAll(ctx context.Context, cookie uint64) (*Transfer, error) {
	return p.submit(ctx, nil, 0, cookie)
}

func (p *Prepared) submit(ctx context.Context, indices *C.uint32_t, count int,
	cookie uint64) (*Transfer, error) {
	if p.closed.Load() {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var checked C.uint32_t
	t, err := p.segment.engine.start(ctx, 1,
		func(h C.transfer_engine_t, id C.batch_id_t, _ *cMemory) C.int {
			return C.te_submit_prepared(h, id, p.list, indices, C.size_t(count),
				C.uint64_t(cookie), 0, &checked)
		})
	if err != nil {
		return nil, err
	}
	t.checked = checked
	return t, nil
}

// Close releases the list. Transfers in progress continue. A second Close does nothing.
func (p *Prepared) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	err := p.segment.engine.call(func(h C.transfer_engine_t) C.int {
		return C.te_prepared_release(h, p.list)
	})
	if err == ErrClosed {
		return nil
	}
	return err
}
