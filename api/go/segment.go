// SPDX-License-Identifier: BSD-2-Clause

package moonrail

// #include <moonrail.h>
import "C"

import (
	"context"
	"sync/atomic"
	"unsafe"
)

const (
	bounceSize = 1 << 20
	bounceMax  = 4 // greatest number of bounce buffers that an engine keeps
)

// Segment is the memory that a peer has published. It implements io.Closer.
type Segment struct {
	engine *Engine
	id     C.segment_id_t
	closed atomic.Bool
}

// Open opens the segment of a peer.
func (e *Engine) Open(name string) (*Segment, error) {
	return e.open(name, func(h C.transfer_engine_t, name *C.char) C.segment_id_t {
		return C.openSegment(h, name)
	})
}

// OpenFresh opens the segment of a peer and fetches its descriptor again.
func (e *Engine) OpenFresh(name string) (*Segment, error) {
	return e.open(name, func(h C.transfer_engine_t, name *C.char) C.segment_id_t {
		return C.openSegmentNoCache(h, name)
	})
}

func (e *Engine) open(name string,
	f func(C.transfer_engine_t, *C.char) C.segment_id_t) (*Segment, error) {
	var memory cMemory
	defer memory.free()
	text, err := memory.str("name", name)
	if err != nil {
		return nil, err
	}
	s := &Segment{engine: e}
	if err := e.find(func(h C.transfer_engine_t) bool {
		s.id = f(h, text)
		return s.id >= 0
	}); err != nil {
		return nil, err
	}
	return s, nil
}

// Export returns the descriptor of this engine's segment, for Import in another process.
func (e *Engine) Export() ([]byte, error) {
	var blob []byte
	err := e.call(func(h C.transfer_engine_t) C.int {
		var size C.size_t
		C.te_segment_export(h, 0, nil, &size)
		for {
			room := size
			blob = make([]byte, size+1)
			code := C.te_segment_export(h, 0, unsafe.Pointer(&blob[0]), &size)
			if code == 0 {
				blob = blob[:size]
			}
			if code == 0 || size <= room {
				return code
			}
		}
	})
	return blob, err
}

// Import opens the segment that a descriptor describes. It communicates with no other
// process.
func (e *Engine) Import(blob []byte) (*Segment, error) {
	s := &Segment{engine: e}
	err := e.call(func(h C.transfer_engine_t) C.int {
		var id C.segment_id_t
		code := C.te_segment_import(h, pointerTo(blob),
			C.size_t(len(blob)), 0, &id)
		s.id = id
		return code
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close releases the segment. Transfers in progress continue. A second Close does nothing.
func (s *Segment) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.engine.call(func(h C.transfer_engine_t) C.int {
		return C.closeSegment(h, s.id)
	})
}

func (s *Segment) call(f func(h C.transfer_engine_t) C.int) error {
	if s.closed.Load() {
		return ErrClosed
	}
	return s.engine.call(f)
}

// Write writes local memory to a remote address, and waits until the transfer has ended. It
// returns the number of bytes.
func (s *Segment) Write(ctx context.Context, local Piece, remote uint64) (uint64, error) {
	return s.engine.NewBatch().Write(s, local, remote).Run(ctx)
}

// Read reads from a remote address into local memory, and waits until the transfer has
// ended. It returns the number of bytes.
func (s *Segment) Read(ctx context.Context, local Piece, remote uint64) (uint64, error) {
	return s.engine.NewBatch().Read(s, local, remote).Run(ctx)
}

// WritePieces writes the local pieces, one after the other, to the remote ranges, and waits
// for the end. Both sides have the same total length. Unlike in a request of a batch, each
// side may have any number of elements. If the deadline of the context has passed, the
// transfer is ended, and the code of the error is TimedOut. Engine.Close waits until this
// call has returned. The Status in an error of this call is StatusNone.
func (s *Segment) WritePieces(ctx context.Context, local []Piece, remote []Range) error {
	if unregistered(local) {
		_, err := s.engine.NewBatch().WritePieces(s, local, remote).Run(ctx)
		return err
	}
	return s.move(ctx, local, remote, func(h C.transfer_engine_t, m *moveArgs) C.int {
		return C.te_writev(h, s.id, m.local, m.locals, m.remote, m.remotes, m.limit)
	})
}

// ReadPieces reads the remote ranges, one after the other, into the local pieces. Otherwise
// it does what WritePieces does.
func (s *Segment) ReadPieces(ctx context.Context, local []Piece, remote []Range) error {
	if unregistered(local) {
		_, err := s.engine.NewBatch().ReadPieces(s, local, remote).Run(ctx)
		return err
	}
	return s.move(ctx, local, remote, func(h C.transfer_engine_t, m *moveArgs) C.int {
		return C.te_readv(h, s.id, m.local, m.locals, m.remote, m.remotes, m.limit)
	})
}

// moveArgs holds the arguments of te_readv and te_writev.
type moveArgs struct {
	local           *C.struct_te_local
	remote          *C.struct_te_remote
	locals, remotes C.size_t
	limit           C.int64_t
}

func (s *Segment) move(ctx context.Context, local []Piece, remote []Range,
	f func(C.transfer_engine_t, *moveArgs) C.int) error {
	var memory cMemory
	defer memory.free()
	for _, one := range local {
		if err := s.checkPiece(one); err != nil {
			return err
		}
	}
	limit, err := microseconds(ctx)
	if err != nil {
		return err
	}
	args := moveArgs{local: memory.locals(local), remote: memory.remotes(remote),
		locals: C.size_t(len(local)), remotes: C.size_t(len(remote)), limit: limit}
	return s.call(func(h C.transfer_engine_t) C.int { return f(h, &args) })
}

// locals converts pieces to an array of C.
func (m *cMemory) locals(pieces []Piece) *C.struct_te_local {
	array := (*C.struct_te_local)(m.alloc((len(pieces) + 1) * C.sizeof_struct_te_local))
	for i, one := range pieces {
		unsafe.Slice(array, len(pieces))[i] = one.toC()
	}
	return array
}

// remotes converts ranges to an array of C.
func (m *cMemory) remotes(ranges []Range) *C.struct_te_remote {
	array := (*C.struct_te_remote)(m.alloc((len(ranges) + 1) * C.sizeof_struct_te_remote))
	for i, one := range ranges {
		to := &unsafe.Slice(array, len(ranges))[i]
		to.addr, to.length = C.uint64_t(one.Address), C.uint64_t(one.Length)
	}
	return array
}

// WriteBytes copies bytes from Go memory through registered memory to a remote address, and
// waits until the transfer has ended. It returns the number of bytes that are in place at
// the target.
func (s *Segment) WriteBytes(ctx context.Context, bytes []byte, remote uint64) (uint64, error) {
	return s.bounce(len(bytes), func(m *Memory, start, n int) error {
		copy(m.Bytes(), bytes[start:start+n])
		_, err := s.Write(ctx, m.Slice(0, n), remote+uint64(start))
		return err
	})
}

// ReadBytes copies bytes from a remote address through registered memory to Go memory, and
// waits until the transfer has ended. It returns the number of bytes.
func (s *Segment) ReadBytes(ctx context.Context, bytes []byte, remote uint64) (uint64, error) {
	return s.bounce(len(bytes), func(m *Memory, start, n int) error {
		_, err := s.Read(ctx, m.Slice(0, n), remote+uint64(start))
		if err == nil {
			copy(bytes[start:start+n], m.Bytes())
		}
		return err
	})
}

// bounce divides length bytes into parts and calls f for each part, with registered memory
// for that part.
func (s *Segment) bounce(length int, f func(m *Memory, start, n int) error) (uint64, error) {
	var m *Memory
	select {
	case m = <-s.engine.bounce:
	default:
		var err error
		if m, err = s.engine.AllocAt(bounceSize, "", Private); err != nil {
			return 0, err
		}
	}
	defer func() {
		select {
		case s.engine.bounce <- m:
		default:
			m.Close()
		}
	}()
	for start := 0; start < length; start += bounceSize {
		n := length - start
		if n > bounceSize {
			n = bounceSize
		}
		if err := f(m, start, n); err != nil {
			return uint64(start), err
		}
	}
	return uint64(length), nil
}

// Notify sends a notification and waits until the library of the peer has it.
func (s *Segment) Notify(name, text string) error {
	var memory cMemory
	defer memory.free()
	msg, err := memory.notification(name, text)
	if err != nil {
		return err
	}
	return s.call(func(h C.transfer_engine_t) C.int {
		return C.genNotifyInEngine(h, C.uint64_t(s.id), msg)
	})
}

// NotifyBytes sends a notification that may contain any bytes, and waits until the library
// of the peer has it. The peer reads it with Engine.BinaryNotifications.
func (s *Segment) NotifyBytes(name string, data []byte) error {
	var memory cMemory
	defer memory.free()
	text, err := memory.str("name", name)
	if err != nil {
		return err
	}
	return s.call(func(h C.transfer_engine_t) C.int {
		return C.te_notify(h, s.id, text, pointerTo(data), C.uint64_t(len(data)))
	})
}

func (m *cMemory) notification(name, text string) (C.notify_msg_t, error) {
	var msg C.notify_msg_t
	var err error
	if msg.name, err = m.str("name", name); err != nil {
		return msg, err
	}
	msg.msg, err = m.str("text", text)
	return msg, err
}

// Flush waits until all requests to this segment that were submitted before this call have
// ended.
func (s *Segment) Flush(ctx context.Context) error {
	limit, err := microseconds(ctx)
	if err != nil {
		return err
	}
	return s.call(func(h C.transfer_engine_t) C.int { return C.te_flush(h, s.id, limit) })
}

// Buffer is a buffer of a segment.
type Buffer struct {
	Address  uint64 // address in the target process
	Length   uint64 // bytes
	Location string // "cpu:0", "cuda:1" or "*"
	Label    string // label of the registration, or ""
}

// Buffers returns the buffers of the segment.
func (s *Segment) Buffers() ([]Buffer, error) {
	return s.list(func(h C.transfer_engine_t, p *C.struct_te_buffer, n *C.size_t) C.int {
		return C.te_segment_buffers(h, s.id, p, C.sizeof_struct_te_buffer, n)
	})
}

// Find returns the memory that the peer has registered with that label, in ascending order
// of addresses. If label is "", it returns all memory that has a label. It returns an error
// if there is no such memory.
func (s *Segment) Find(label string) ([]Buffer, error) {
	var memory cMemory
	defer memory.free()
	var text *C.char
	if label != "" {
		var err error
		if text, err = memory.str("label", label); err != nil {
			return nil, err
		}
	}
	return s.list(func(h C.transfer_engine_t, p *C.struct_te_buffer, n *C.size_t) C.int {
		return C.te_segment_find(h, s.id, text, p, C.sizeof_struct_te_buffer, n)
	})
}

func (s *Segment) list(
	f func(C.transfer_engine_t, *C.struct_te_buffer, *C.size_t) C.int) ([]Buffer, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	var list []Buffer
	err := s.engine.fetch(C.sizeof_struct_te_buffer,
		func(h C.transfer_engine_t, p unsafe.Pointer, n *C.size_t) C.int {
			return f(h, (*C.struct_te_buffer)(p), n)
		},
		func(p unsafe.Pointer) {
			c := (*C.struct_te_buffer)(p)
			list = append(list, Buffer{uint64(c.addr), uint64(c.length),
				text(c.location[:]), text(c.label[:])})
		})
	return list, err
}

// PathKind is the way in which bytes reach a segment.
type PathKind int

const (
	PathFabric  PathKind = C.TE_PATH_FABRIC  // from a local rail to a rail of the peer
	PathProcess PathKind = C.TE_PATH_PROCESS // copies by the kernel to another process
	PathMemcpy  PathKind = C.TE_PATH_MEMCPY  // copies inside this process
	PathFile    PathKind = C.TE_PATH_FILE    // to and from the files of a file segment
)

// Path is one path to a segment.
type Path struct {
	Kind                      PathKind
	Connected                 bool
	Transport, Provider       string
	Rail, Address             string
	RemoteRail, RemoteAddress string
	WhyNotLocal               string // why copies inside this host are not possible, or ""
	Connections               int    // established connections to the remote rail
}

// Paths returns the paths to the segment. They are those for memory at any location.
func (s *Segment) Paths() ([]Path, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	var list []Path
	err := s.engine.fetch(C.sizeof_struct_te_path,
		func(h C.transfer_engine_t, p unsafe.Pointer, n *C.size_t) C.int {
			return C.te_segment_paths(h, s.id, nil, (*C.struct_te_path)(p),
				C.sizeof_struct_te_path, n)
		},
		func(p unsafe.Pointer) {
			c := (*C.struct_te_path)(p)
			list = append(list, Path{
				Kind:      PathKind(c.kind),
				Connected: c.flags&C.TE_PATH_CONNECTED != 0,
				Transport: text(c.transport[:]), Provider: text(c.provider[:]),
				Rail: text(c.rail[:]), Address: text(c.address[:]),
				RemoteRail:    text(c.remote_rail[:]),
				RemoteAddress: text(c.remote_address[:]),
				WhyNotLocal:   text(c.why_not_local[:]),
				Connections:   int(c.connections),
			})
		})
	return list, err
}

// PeerState is the state of a peer.
type PeerState int

const (
	PeerNew     PeerState = C.TE_PEER_NEW     // the peer has not answered yet
	PeerReady   PeerState = C.TE_PEER_READY   // the peer answers
	PeerFencing PeerState = C.TE_PEER_FENCING // after a failure, the initiator waits for a fence
	PeerGone    PeerState = C.TE_PEER_GONE    // the process has ended; open the segment again
)

// PeerStats are statistics of one peer.
type PeerStats struct {
	Name                                 string
	State                                PeerState
	Queued                               int // requests that wait for a rail
	TxBytes, RxBytes                     uint64
	Completed, Failed, Timeout, Canceled uint64 // requests by their final status
	Retries, Fences                      uint64
}

// Stats returns the statistics of the peer.
func (s *Segment) Stats() (PeerStats, error) {
	var c C.struct_te_peer_stats
	if err := s.call(func(h C.transfer_engine_t) C.int {
		return C.te_peer_stats(h, s.id, &c, C.sizeof_struct_te_peer_stats)
	}); err != nil {
		return PeerStats{}, err
	}
	return PeerStats{
		Name: text(c.name[:]), State: PeerState(c.state), Queued: int(c.queued),
		TxBytes: uint64(c.tx_bytes), RxBytes: uint64(c.rx_bytes),
		Completed: uint64(c.completed), Failed: uint64(c.failed),
		Timeout: uint64(c.timeout), Canceled: uint64(c.canceled),
		Retries: uint64(c.retries), Fences: uint64(c.fences),
	}, nil
}

// pointerTo returns a pointer to bytes, for a call of the C library that does not keep the
// pointer.
func pointerTo(bytes []byte) unsafe.Pointer {
	if len(bytes) == 0 {
		return nil
	}
	return unsafe.Pointer(&bytes[0])
}
