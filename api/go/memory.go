// SPDX-License-Identifier: BSD-2-Clause

package moonrail

// #include <stdint.h>
// #include <moonrail.h>
//
// static void *go_pointer(uint64_t addr)
// {
//	return (void *)(uintptr_t)addr;
// }
import "C"

import (
	"fmt"
	"strings"
	"sync/atomic"
	"unsafe"
)

// AllocFlags are the options of AllocAt.
type AllocFlags uint64

const (
	// Private memory cannot be accessed by peers.
	Private AllocFlags = C.TE_ALLOC_PRIVATE
	// SmallPages means that no huge pages are used.
	SmallPages AllocFlags = C.TE_ALLOC_SMALL_PAGES
	// HugePages means that huge pages of the kernel's pool are used; if there are too
	// few, AllocAt fails.
	HugePages AllocFlags = C.TE_ALLOC_HUGE_PAGES
	// Strict means that all of the memory is on the requested node; if that is not
	// possible, AllocAt fails.
	Strict AllocFlags = C.TE_ALLOC_STRICT
)

// Memory is memory outside Go's heap. It is registered, unless it was made by
// Engine.Unregistered. It implements io.Closer.
type Memory struct {
	engine   *Engine
	start    unsafe.Pointer
	size     int
	location string
	label    string
	flags    C.uint64_t // flags TE_REG_…
	kind     memoryKind
	closed   atomic.Bool
}

type memoryKind int

const (
	kindRegistered   memoryKind = iota
	kindAllocated               // allocated by te_alloc
	kindUnregistered            // used with requests that have TE_REQ_BOUNCE
)

// Registration contains the options of RegisterWith.
type Registration struct {
	Location string // "cpu:0" or "cuda:0"; "" means any location
	Label    string // label with which peers can find the memory, such as the name of a tensor; or ""
	Private  bool   // peers cannot access the memory
	ReadOnly bool   // neither peers nor this engine write to the memory
}

// Alloc allocates zeroed host memory that peers may read and write.
func (e *Engine) Alloc(size int) (*Memory, error) {
	return e.AllocAt(size, "", 0)
}

// AllocAt allocates memory as te_alloc(3) does, for example at "cpu:0" or "cuda:0"; ""
// means host memory on any node.
func (e *Engine) AllocAt(size int, location string, flags AllocFlags) (*Memory, error) {
	if size < 0 {
		return nil, newError(InvalidArgument, "size: %d (must be at least 1)", size)
	}
	var memory cMemory
	defer memory.free()
	var place *C.char
	if location != "" {
		var err error
		if place, err = memory.str("location", location); err != nil {
			return nil, err
		}
	}
	var made C.struct_te_memory
	if err := e.call(func(h C.transfer_engine_t) C.int {
		return C.te_alloc(h, C.size_t(size), place, C.uint64_t(flags), &made,
			C.sizeof_struct_te_memory)
	}); err != nil {
		return nil, err
	}
	return &Memory{engine: e, start: C.go_pointer(made.addr), size: size,
		location: text(made.location[:]), kind: kindAllocated}, nil
}

// Register registers memory that lies outside Go's heap, such as memory of C or of mmap;
// location is "*", "cpu:0" or "cuda:0". The memory must stay valid until Close has returned
// nil. A pointer to Go memory is refused, because the memory is accessed after the call has
// returned; use WriteBytes and ReadBytes for such memory. The check finds the memory that
// cgo's own check finds: heap, stacks, and global variables with pointers.
// GODEBUG=cgocheck=0 disables both.
func (e *Engine) Register(start unsafe.Pointer, size int, location string) (*Memory, error) {
	return e.RegisterWith(start, size, Registration{Location: location})
}

// RegisterWith registers memory as Register does, with options.
func (e *Engine) RegisterWith(start unsafe.Pointer, size int, r Registration) (*Memory, error) {
	if err := checkStart(start, size); err != nil {
		return nil, err
	}
	m := &Memory{engine: e, start: start, size: size, location: r.Location, label: r.Label}
	if r.Location == "" {
		m.location = "*"
	}
	if r.Private {
		m.flags |= C.TE_REG_PRIVATE
	}
	if r.ReadOnly {
		m.flags |= C.TE_REG_READ_ONLY
	}
	return m.register()
}

// RegisterPart registers the bytes from start to end once more, with a label for peers. The
// part has the same access and location as the memory. It must be closed before the memory
// is closed.
func (m *Memory) RegisterPart(start, end int, label string) (*Memory, error) {
	if m.closed.Load() {
		return nil, ErrClosed
	}
	p := m.Slice(start, end)
	part := &Memory{engine: m.engine, start: unsafe.Add(m.start, p.start), size: p.length,
		location: m.location, label: label, flags: C.TE_REG_NESTED}
	return part.register()
}

// Unregistered makes a Memory of memory that is not registered. This memory must lie
// outside Go's heap, and must stay mapped until its transfers have ended. The bytes pass
// through registered memory of the library, so this is meant for small memory that is used
// once. Peers cannot access it, and it cannot be used for atomics and prepared lists. A
// request with such memory has at most 256 pieces and ranges. Close does nothing.
func (e *Engine) Unregistered(start unsafe.Pointer, size int) (*Memory, error) {
	if err := checkStart(start, size); err != nil {
		return nil, err
	}
	return &Memory{engine: e, start: start, size: size, location: "*",
		kind: kindUnregistered}, nil
}

func checkStart(start unsafe.Pointer, size int) error {
	if size < 1 || start == nil {
		return newError(InvalidArgument, "size: %d (must be at least 1)", size)
	}
	if isGo(start) || isGo(unsafe.Add(start, size-1)) {
		return newError(InvalidArgument,
			"%p: memory of Go cannot be used; use Engine.Alloc", start)
	}
	return nil
}

func (m *Memory) register() (*Memory, error) {
	if err := m.callEntry(func(h C.transfer_engine_t, r *C.struct_te_registration) C.int {
		return C.te_register(h, r, C.sizeof_struct_te_registration, 1)
	}); err != nil {
		return nil, err
	}
	return m, nil
}

// callEntry calls a function of the C library with the entry that describes the memory.
func (m *Memory) callEntry(
	f func(C.transfer_engine_t, *C.struct_te_registration) C.int) error {
	var memory cMemory
	defer memory.free()
	r := (*C.struct_te_registration)(memory.alloc(C.sizeof_struct_te_registration))
	var err error
	if r.location, err = memory.str("location", m.location); err != nil {
		return err
	}
	if r.label, err = memory.str("label", m.label); err != nil {
		return err
	}
	r.addr, r.length, r.flags = m.start, C.uint64_t(m.size), m.flags
	return m.engine.call(func(h C.transfer_engine_t) C.int { return f(h, r) })
}

// Close unregisters the memory, and frees it if Alloc has made it. When it has returned
// nil, no peer can access the memory, unless it is a part of other registered memory. It
// waits for transfers that use the memory for at most MC_SLICE_TIMEOUT; if some of them are
// still in progress after that time, the error has the code Busy, and the memory stays
// registered. A second Close returns nil.
func (m *Memory) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	var err error
	switch m.kind {
	case kindAllocated:
		err = m.engine.call(func(h C.transfer_engine_t) C.int {
			return C.te_free(h, m.start)
		})
	case kindRegistered:
		err = m.callEntry(func(h C.transfer_engine_t, r *C.struct_te_registration) C.int {
			return C.te_unregister(h, r, C.sizeof_struct_te_registration, 1)
		})
	}
	if err != nil && err != ErrClosed {
		m.closed.Store(false)
		return err
	}
	return nil
}

// Bytes returns the memory as a slice, which is valid until Close of the memory or of the
// engine. Peers and transfers change the bytes at any time. It returns nil for GPU memory.
func (m *Memory) Bytes() []byte {
	if m.closed.Load() || strings.HasPrefix(m.location, "cuda") {
		return nil
	}
	return unsafe.Slice((*byte)(m.start), m.size)
}

// Len returns the number of bytes.
func (m *Memory) Len() int { return m.size }

// Location returns the location as registered: "cpu:0", "cuda:1" or "*".
func (m *Memory) Location() string { return m.location }

// Address returns the address under which peers read and write the first byte.
func (m *Memory) Address() uint64 { return uint64(uintptr(m.start)) }

// Piece is a range of registered memory.
type Piece struct {
	memory        *Memory
	start, length int
}

// Slice returns the bytes from start to end, as a slice expression does. It panics if the
// range is not inside the memory.
func (m *Memory) Slice(start, end int) Piece {
	if start < 0 || start > end || end > m.size {
		panic(fmt.Sprintf("moonrail: range [%d:%d] is not inside memory of %d bytes",
			start, end, m.size))
	}
	return Piece{m, start, end - start}
}

// All returns all bytes of the memory.
func (m *Memory) All() Piece { return Piece{m, 0, m.size} }

// Len returns the number of bytes.
func (p Piece) Len() int { return p.length }

// unregistered returns true if the memory of one of the pieces is not registered.
func unregistered(pieces []Piece) bool {
	for _, p := range pieces {
		if p.memory != nil && p.memory.kind == kindUnregistered {
			return true
		}
	}
	return false
}

func (p Piece) toC() C.struct_te_local {
	var c C.struct_te_local
	c.addr = unsafe.Add(p.memory.start, p.start)
	c.length = C.uint64_t(p.length)
	return c
}
