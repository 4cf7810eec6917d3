// SPDX-License-Identifier: BSD-2-Clause

package moonrail

// #include <stdlib.h>
// #include <moonrail.h>
import "C"

import (
	"context"
	"strings"
	"sync"
	"unsafe"
)

// Options are the options of an engine. The zero value describes an engine without a
// metadata service that uses all addresses of this host.
type Options struct {
	Metadata   string            // for example "zookeeper://host:2181"; "" means no metadata service
	Name       string            // segment name; without a metadata service, an address of this host
	IP         string            // address of the control channel; "" means any
	Port       uint16            // port of the control channel; 0 means any
	Transports []string          // names of transports; empty: those that match the devices of this host
	Settings   map[string]string // environment variables for this engine only
}

// Engine is one end of transfers: a named segment with rails, memory and connections.
type Engine struct {
	mu      sync.RWMutex // held for reading during a call, for writing by Close
	handle  C.transfer_engine_t
	closing chan struct{} // the channel is closed by Close
	once    sync.Once
	bounce  chan *Memory // memory for WriteBytes and ReadBytes
	batches batches
}

// New creates an engine.
func New(options Options) (*Engine, error) {
	if options.Metadata == "" {
		options.Metadata = "P2PHANDSHAKE"
	}
	if options.Name == "" {
		options.Name = "0.0.0.0"
	}
	var memory cMemory
	defer memory.free()
	c := (*C.struct_te_engine_options)(memory.alloc(C.sizeof_struct_te_engine_options))
	strs := []struct {
		what, text string
		field      **C.char
	}{
		{"metadata", options.Metadata, &c.metadata},
		{"name", options.Name, &c.server_name},
		{"ip", options.IP, &c.ip},
	}
	for _, s := range strs {
		if s.text == "" {
			continue
		}
		text, err := memory.str(s.what, s.text)
		if err != nil {
			return nil, err
		}
		*s.field = text
	}
	c.port = C.uint32_t(options.Port)
	if len(options.Transports) == 0 {
		c.auto_discover = 1
	}
	if n := len(options.Settings); n > 0 {
		array := (**C.char)(memory.alloc(n * C.sizeof_uintptr_t))
		settings := unsafe.Slice(array, n)
		i := 0
		for name, value := range options.Settings {
			text, err := memory.str("setting", name+"="+value)
			if err != nil {
				return nil, err
			}
			settings[i] = text
			i++
		}
		c.settings, c.settings_count = array, C.size_t(n)
	}
	e := &Engine{closing: make(chan struct{}), bounce: make(chan *Memory, bounceMax)}
	handle := (*C.transfer_engine_t)(memory.alloc(C.sizeof_transfer_engine_t))
	if err := call(func() C.int {
		return C.te_engine_create(c, C.sizeof_struct_te_engine_options, handle)
	}); err != nil {
		return nil, err
	}
	e.handle = *handle
	for _, transport := range options.Transports {
		if err := e.install(&memory, transport); err != nil {
			e.Close()
			return nil, err
		}
	}
	return e, nil
}

func (e *Engine) install(memory *cMemory, transport string) error {
	name, err := memory.str("transport", transport)
	if err != nil {
		return err
	}
	return e.find(func(h C.transfer_engine_t) bool {
		return C.installTransport(h, name, nil) != nil
	})
}

// Close waits for the transfers in progress for at most
// MC_SLICE_TIMEOUT, and ends the engine. It frees all memory of Alloc. Later calls on the
// engine and its objects return ErrClosed. A second Close does nothing.
func (e *Engine) Close() error {
	e.once.Do(func() {
		close(e.closing)
		e.mu.Lock()
		defer e.mu.Unlock()
		C.destroyTransferEngine(e.handle)
		e.handle = nil
	})
	return nil
}

// use calls f with the handle of the engine. The handle stays valid until f has returned.
func (e *Engine) use(f func(h C.transfer_engine_t)) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.handle == nil {
		return ErrClosed
	}
	f(e.handle)
	return nil
}

// call calls a function of the C library that returns a code.
func (e *Engine) call(f func(h C.transfer_engine_t) C.int) error {
	var result error
	if err := e.use(func(h C.transfer_engine_t) {
		result = call(func() C.int { return f(h) })
	}); err != nil {
		return err
	}
	return result
}

// find calls a function of the C library that returns true if it has succeeded. If the
// function has failed, find returns the last error, which the function has set.
func (e *Engine) find(f func(h C.transfer_engine_t) bool) error {
	return e.call(func(h C.transfer_engine_t) C.int {
		if f(h) {
			return 0
		}
		var record C.struct_te_error
		C.te_last_error(&record, C.sizeof_struct_te_error)
		if record.code == 0 {
			return -C.int(InvalidArgument)
		}
		return record.code
	})
}

// Name returns the address of the control channel. Without a metadata service, this is the
// name under which peers open the segment of this engine. It returns "" for a closed
// engine.
func (e *Engine) Name() string {
	name, _ := e.text(func(h C.transfer_engine_t, buf *C.char, n C.size_t) C.int {
		if n < 512 {
			return 511
		}
		C.getLocalIpAndPort(h, buf, n)
		return 0
	})
	return name
}

// Settings returns the settings in force, one line "NAME=value source" each.
func (e *Engine) Settings() (string, error) {
	return e.text(func(h C.transfer_engine_t, buf *C.char, n C.size_t) C.int {
		return C.te_settings_text(h, buf, n)
	})
}

// Topology returns the topology in use, as JSON.
func (e *Engine) Topology() (string, error) {
	return e.text(func(h C.transfer_engine_t, buf *C.char, n C.size_t) C.int {
		return C.te_topology_text(h, buf, n)
	})
}

// text calls a function that writes a text and returns the length of the text. If the
// buffer is too short, text repeats the call with a longer buffer.
func (e *Engine) text(f func(C.transfer_engine_t, *C.char, C.size_t) C.int) (string, error) {
	var memory cMemory
	defer memory.free()
	size := 0
	for {
		length := 0
		buf := (*C.char)(memory.alloc(size + 1))
		if err := e.call(func(h C.transfer_engine_t) C.int {
			n := f(h, buf, C.size_t(size))
			if n < 0 {
				return n
			}
			length = int(n)
			return 0
		}); err != nil {
			return "", err
		}
		if length < size {
			return C.GoString(buf), nil
		}
		size = length + 1
	}
}

// Sync fetches the descriptors of all open segments again.
func (e *Engine) Sync() error {
	return e.call(func(h C.transfer_engine_t) C.int { return C.syncSegmentCache(h) })
}

// WarmUp connects every rail pair with a peer, before the first transfer.
func (e *Engine) WarmUp(name string) error {
	var memory cMemory
	defer memory.free()
	text, err := memory.str("name", name)
	if err != nil {
		return err
	}
	return e.call(func(h C.transfer_engine_t) C.int { return C.warmupEfaSegment(h, text) })
}

// Probe checks that the control channel of a peer answers.
func (e *Engine) Probe(ctx context.Context, name string) error {
	limit, err := microseconds(ctx)
	if err != nil {
		return err
	}
	var memory cMemory
	defer memory.free()
	text, err := memory.str("name", name)
	if err != nil {
		return err
	}
	return e.call(func(h C.transfer_engine_t) C.int {
		return C.te_probe_peer(h, text, limit)
	})
}

// Drain waits until all requests that were submitted before this call have ended.
func (e *Engine) Drain(ctx context.Context) error {
	limit, err := microseconds(ctx)
	if err != nil {
		return err
	}
	return e.call(func(h C.transfer_engine_t) C.int { return C.te_drain(h, limit) })
}

// Notification is a notification that has arrived.
type Notification struct {
	Name, Text string
}

// Notifications removes the notifications with text that have arrived from the
// queue of the engine, and returns them. It does not wait.
func (e *Engine) Notifications() ([]Notification, error) {
	var list []Notification
	err := e.use(func(h C.transfer_engine_t) {
		var count C.int
		all := C.getNotifsFromEngine(h, &count)
		for _, one := range unsafe.Slice(all, int(count)) {
			list = append(list, Notification{C.GoString(one.name), C.GoString(one.msg)})
		}
		C.freeNotifsMsgBuf(all, count)
	})
	return list, err
}

// BinaryNotification is a received notification whose data may contain any bytes.
type BinaryNotification struct {
	Name string
	Data []byte
}

// notifyRoom is the greatest number of notifications that one call of the library returns.
const notifyRoom = 64

// BinaryNotifications removes the notifications with bytes that have arrived from the queue
// of the engine, and returns them. It does not wait.
func (e *Engine) BinaryNotifications() ([]BinaryNotification, error) {
	var list []BinaryNotification
	var memory cMemory
	defer memory.free()
	const size = C.sizeof_struct_te_notification
	array := (*C.struct_te_notification)(memory.alloc(notifyRoom * size))
	count := (*C.size_t)(memory.alloc(C.sizeof_size_t))
	for {
		*count = notifyRoom
		if err := e.call(func(h C.transfer_engine_t) C.int {
			return C.te_notify_fetch(h, array, size, count)
		}); err != nil {
			return list, err
		}
		for _, one := range unsafe.Slice(array, int(*count)) {
			data := C.GoBytes(one.data, C.int(one.length))
			list = append(list, BinaryNotification{C.GoString(one.name), data})
		}
		C.te_notify_release(array, size, *count)
		if *count < notifyRoom {
			return list, nil
		}
	}
}

// Ended describes the end of a transfer, for programs that wait for EventFd.
type Ended struct {
	ID     uint64 // Transfer.ID of the transfer
	Status Status // the worst status of its requests
	Bytes  uint64 // number of bytes that have arrived
	Cookie uint64 // cookie of the first request of the transfer
	Tasks  uint64 // number of requests of the transfer
}

// EndedBatches returns the transfers that have ended, except those whose end was already
// returned by EndedBatches or noticed by a call on the transfer. It does not wait.
func (e *Engine) EndedBatches() ([]Ended, error) {
	var list []Ended
	const room = 256
	array := make([]C.struct_te_ended, room)
	for {
		count := C.size_t(room)
		if err := e.call(func(h C.transfer_engine_t) C.int {
			return C.te_ended_batches(h, &array[0], C.sizeof_struct_te_ended, &count)
		}); err != nil {
			return list, err
		}
		for _, one := range array[:count] {
			list = append(list, Ended{uint64(one.batch_id), Status(one.status),
				uint64(one.transferred_bytes), uint64(one.cookie), uint64(one.tasks)})
		}
		if count < room {
			return list, nil
		}
	}
}

// EventFd returns the file descriptor that is readable while the end of a batch or a
// notification can be fetched (te_event_fd(3)). EndedBatches, Notifications and
// BinaryNotifications fetch them. The engine owns the file descriptor.
func (e *Engine) EventFd() (int, error) {
	fd := -1
	err := e.call(func(h C.transfer_engine_t) C.int {
		fd = int(C.te_event_fd(h))
		if fd < 0 {
			return C.int(fd)
		}
		return 0
	})
	return fd, err
}

// RailState is the state of a rail.
type RailState int

const (
	RailUp      RailState = C.TE_RAIL_UP
	RailSuspect RailState = C.TE_RAIL_SUSPECT // makes no progress; being checked
	RailDown    RailState = C.TE_RAIL_DOWN    // carries nothing
	RailProbing RailState = C.TE_RAIL_PROBING // repaired; carries a growing share
)

// RailStats are statistics of one rail, counted from the creation of the engine.
type RailStats struct {
	Name, Provider, Address, Transport string
	State                              RailState
	Lanes                              int     // open endpoints
	TxBytes                            uint64  // bytes written to peers and completed
	RxBytes                            uint64  // bytes read from peers and completed
	Slices                             uint64  // completed slices
	Retries                            uint64  // slices posted again
	Errors                             uint64  // error completions
	InflightBytes                      uint64  // bytes posted and not completed
	Rate                               float64 // service rate, bytes per second
}

// Rails returns the statistics of the rails.
func (e *Engine) Rails() ([]RailStats, error) {
	var list []RailStats
	err := e.fetch(C.sizeof_struct_te_rail_stats,
		func(h C.transfer_engine_t, p unsafe.Pointer, n *C.size_t) C.int {
			return C.te_rail_stats(h, (*C.struct_te_rail_stats)(p),
				C.sizeof_struct_te_rail_stats, n)
		},
		func(p unsafe.Pointer) {
			c := (*C.struct_te_rail_stats)(p)
			list = append(list, RailStats{
				Name: text(c.name[:]), Provider: text(c.provider[:]),
				Address: text(c.address[:]), Transport: text(c.transport[:]),
				State: RailState(c.state), Lanes: int(c.lanes),
				TxBytes: uint64(c.tx_bytes), RxBytes: uint64(c.rx_bytes),
				Slices: uint64(c.slices), Retries: uint64(c.retries),
				Errors: uint64(c.errors), InflightBytes: uint64(c.inflight_bytes),
				Rate: float64(c.rate),
			})
		})
	return list, err
}

// fetch calls a function that fills an array. If the array is too short, fetch repeats the
// call with a longer array, until all elements fit. Then it passes the number of elements
// to add.
func (e *Engine) fetch(size int,
	f func(C.transfer_engine_t, unsafe.Pointer, *C.size_t) C.int,
	add func(unsafe.Pointer)) error {
	var memory cMemory
	defer memory.free()
	count := (*C.size_t)(memory.alloc(C.sizeof_size_t))
	room := C.size_t(0)
	for {
		array := memory.alloc(int(room+1) * size)
		*count = room
		if err := e.call(func(h C.transfer_engine_t) C.int {
			return f(h, array, count)
		}); err != nil {
			return err
		}
		if *count <= room {
			for i := 0; i < int(*count); i++ {
				add(unsafe.Add(array, i*size))
			}
			return nil
		}
		room = *count
	}
}

// cMemory is C memory for the arguments of a call. It is necessary because Go memory that
// is passed to C must not contain pointers to Go memory.
type cMemory struct {
	all []unsafe.Pointer
}

// alloc returns zeroed C memory.
func (m *cMemory) alloc(size int) unsafe.Pointer {
	p := C.calloc(1, C.size_t(size))
	m.all = append(m.all, p)
	return p
}

func (m *cMemory) str(what, text string) (*C.char, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, newError(InvalidArgument, "%s: contains a zero byte", what)
	}
	p := C.CString(text)
	m.all = append(m.all, unsafe.Pointer(p))
	return p, nil
}

func (m *cMemory) free() {
	for _, p := range m.all {
		C.free(p)
	}
}
