// SPDX-License-Identifier: BSD-2-Clause

package moonrail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

var (
	background = context.Background()

	_ io.Closer = (*Engine)(nil)
	_ io.Closer = (*Memory)(nil)
	_ io.Closer = (*Segment)(nil)
	_ io.Closer = (*Transfer)(nil)
)

// railsOnly are the settings of an engine whose bytes go over the rails, even within this
// host.
var railsOnly = map[string]string{"MOONRAIL_LOCAL": "0", "MC_SLICE_TIMEOUT": "5"}

func newEngine(t *testing.T, settings map[string]string) *Engine {
	t.Helper()
	engine, err := New(Options{Name: "127.0.0.1", Settings: settings})
	must(t, err)
	t.Cleanup(func() { engine.Close() })
	return engine
}

func alloc(t *testing.T, engine *Engine, content string) *Memory {
	t.Helper()
	memory, err := engine.Alloc(len(content))
	must(t, err)
	copy(memory.Bytes(), content)
	return memory
}

func open(t *testing.T, engine *Engine, name string) *Segment {
	t.Helper()
	peer, err := engine.Open(name)
	must(t, err)
	return peer
}

// heldWrite stops a target, and then submits a write of 4 MiB to that target.
func heldWrite(t *testing.T, engine *Engine, there *target) (*Memory, *Transfer, *Segment) {
	t.Helper()
	memory := alloc(t, engine, pattern(3, targetSize))
	peer := open(t, engine, there.name)
	_, err := peer.Write(background, memory.Slice(0, 8), there.address)
	must(t, err)
	there.stop()
	t.Cleanup(func() { _ = there.process.Process.Signal(syscall.SIGCONT) })
	transfer, err := engine.NewBatch().Write(peer, memory.All(), there.address).
		Submit(background)
	must(t, err)
	return memory, transfer, peer
}

// watched is a context whose method Done closes the channel "asked" when it is first called.
// A blocking call first calls Done when it begins to wait, after the submission.
type watched struct {
	context.Context
	once  *sync.Once
	asked chan struct{}
}

func newWatched(ctx context.Context) watched {
	return watched{ctx, new(sync.Once), make(chan struct{})}
}

func (w watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.asked) })
	return w.Context.Done()
}

// submitWithDeadline submits a transfer whose context ends soon. On a slow machine, the
// context may end before the submission; submitWithDeadline then tries again with twice the
// time.
func submitWithDeadline(t *testing.T, submit func(context.Context) (*Transfer, error)) *Transfer {
	t.Helper()
	for limit := 100 * time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(background, limit)
		t.Cleanup(cancel)
		transfer, err := submit(ctx)
		if err != context.DeadlineExceeded || limit > time.Minute {
			must(t, err)
			return transfer
		}
	}
}

// record returns the error record of an error.
func record(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	want(t, errors.As(err, &e), "no record: %v", err)
	return e
}

func TestWriteAndReadMoveTheBytes(t *testing.T) {
	there := sharedTarget(t)
	for _, settings := range []map[string]string{nil, railsOnly} {
		engine := newEngine(t, settings)
		memory := alloc(t, engine, pattern(5, 65536))
		peer := open(t, engine, there.name)
		buffers, err := peer.Buffers()
		must(t, err)
		want(t, len(buffers) == 1 && buffers[0].Address == there.address &&
			buffers[0].Length == targetSize, "buffers: %v", buffers)
		n, err := peer.Write(background, memory.All(), there.address)
		must(t, err)
		want(t, n == 65536 && memory.Len() == 65536, "%d bytes", n)
		want(t, there.show(0, 65536) == pattern(5, 65536), "other bytes have arrived")
		there.ask("fill", 0, 100, 9)
		piece := memory.Slice(1000, 1200)
		n, err = peer.Read(background, piece, there.address)
		must(t, err)
		want(t, n == 200 && piece.Len() == 200, "%d bytes", n)
		got := string(memory.Bytes()[1000:1200])
		want(t, got == strings.Repeat("\x09", 100)+pattern(5, 65536)[100:200], "other bytes")
		must(t, peer.Close())
		must(t, peer.Close())
		_, err = peer.Write(background, memory.All(), there.address)
		want(t, errors.Is(err, os.ErrClosed), "closed segment: %v", err)
		must(t, memory.Close())
		must(t, memory.Close())
		want(t, memory.Bytes() == nil, "bytes of closed memory")
		must(t, engine.Close())
		must(t, engine.Close())
	}
}

func TestGoBytesAreCopied(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, nil)
	peer := open(t, engine, there.name)
	content := pattern(2, 3<<20+5)
	n, err := peer.WriteBytes(background, []byte(content), there.address)
	must(t, err)
	want(t, n == uint64(len(content)), "%d bytes", n)
	want(t, there.show(0, len(content)) == content, "other bytes have arrived")
	back := make([]byte, len(content))
	n, err = peer.ReadBytes(background, back, there.address)
	must(t, err)
	want(t, n == uint64(len(content)) && string(back) == content, "other bytes were read")
	_, err = peer.ReadBytes(background, back, there.address+targetSize)
	want(t, record(t, err).Status == StatusFailed, "%v", err)
}

func TestGoMemoryIsRefused(t *testing.T) {
	engine := newEngine(t, nil)
	heap := make([]byte, 4096)
	large := make([]byte, 1<<20)
	one := new([8]uint64)
	for _, p := range []unsafe.Pointer{unsafe.Pointer(&heap[0]), unsafe.Pointer(&heap[100]),
		unsafe.Pointer(&large[999999]), unsafe.Pointer(one)} {
		_, err := engine.Register(p, 32, "*")
		e := record(t, err)
		want(t, e.Code == InvalidArgument && strings.Contains(e.Text, "memory of Go"), "%v", e)
	}
	_, err := engine.Register(nil, 32, "*")
	want(t, record(t, err).Code == InvalidArgument, "%v", err)
	mapped, err := syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(t, err)
	memory, err := engine.Register(unsafe.Pointer(&mapped[0]), 8192, "cpu:0")
	must(t, err)
	want(t, memory.Location() == "cpu:0" && &memory.Bytes()[0] == &mapped[0], "other memory")
	must(t, memory.Close())
	must(t, syscall.Munmap(mapped))
}

func TestContextEndsABlockingWrite(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, railsOnly)
	memory, held, peer := heldWrite(t, engine, there)
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	_, err := peer.Write(ctx, memory.All(), there.address)
	want(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled),
		"deadline: %v", err)
	ctx, cancel = context.WithCancel(background)
	defer cancel()
	waiting := newWatched(ctx)
	go func() {
		<-waiting.asked
		time.Sleep(50 * time.Millisecond)
		cancel()
	}()
	_, err = peer.Read(waiting, memory.All(), there.address)
	want(t, err != nil && record(t, err).Code > 0, "cancel: %v", err)
	_, err = peer.Write(ctx, memory.All(), there.address)
	want(t, err == context.Canceled, "canceled before: %v", err)
	want(t, peer.Flush(ctx) == context.Canceled, "flush")
	must(t, held.Close())
}

func TestWaitEndsWithItsContextAndTheTransferGoesOn(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, railsOnly)
	_, transfer, _ := heldWrite(t, engine, there)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	_, err := transfer.Wait(ctx)
	want(t, err == context.DeadlineExceeded, "%v", err)
	status, _ := transfer.Status()
	want(t, status == StatusWaiting, "status %v", status)
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			n, err := transfer.Wait(background)
			if err != nil || n != targetSize {
				t.Errorf("%d bytes, %v", n, err)
			}
		}()
	}
	there.signal(syscall.SIGCONT)
	group.Wait()
	status, n := transfer.Status()
	want(t, status == StatusCompleted && n == targetSize, "status %v, %d bytes", status, n)
	want(t, there.show(targetSize-64, 64) == pattern(3, targetSize)[targetSize-64:], "bytes")
}

func TestCanceledTransferEndsWithItsRecord(t *testing.T) {
	there := startTarget(t)
	// The target answers the fence when it runs again.
	engine := newEngine(t, map[string]string{"MOONRAIL_LOCAL": "0", "MOONRAIL_FENCE_MS": "30000"})
	memory, transfer, _ := heldWrite(t, engine, there)
	transfer.Cancel()
	there.signal(syscall.SIGCONT)
	_, err := transfer.Wait(background)
	e := record(t, err)
	want(t, e.Code == Canceled && e.Status == StatusCanceled, "%v", e)
	want(t, errors.Is(err, context.Canceled), "%v", err)
	want(t, !e.Unfenced() && !e.Unknown() && !e.Stale(), "flags of %v", e)
	must(t, memory.Close())
}

func TestDeadlineOfSubmitEndsTheTransfer(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, railsOnly)
	memory, first, peer := heldWrite(t, engine, there)
	second := submitWithDeadline(t, engine.NewBatch().
		Write(peer, memory.All(), there.address).Submit)
	_, err := second.Wait(background)
	e := record(t, err)
	want(t, e.Code == TimedOut && errors.Is(err, context.DeadlineExceeded), "%v", e)
	want(t, e.Unfenced() == (e.Status == StatusTimeout), "%v", e)
	must(t, first.Close())
	_, err = first.Wait(background)
	want(t, err != nil, "closed transfer")
}

func TestMemoryInUseStaysRegistered(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, map[string]string{"MOONRAIL_LOCAL": "0"})
	memory, transfer, _ := heldWrite(t, engine, there)
	ended := make(chan error)
	go func() { ended <- memory.Close() }()
	there.signal(syscall.SIGCONT)
	n, err := transfer.Wait(background)
	must(t, err)
	want(t, n == targetSize, "%d bytes", n)
	must(t, <-ended)
}

func TestWriteToAKilledPeerFailsWithItsRecord(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, railsOnly)
	_, transfer, _ := heldWrite(t, engine, there)
	there.kill()
	_, err := transfer.Wait(background)
	e := record(t, err)
	want(t, e.Status == StatusFailed || e.Status == StatusTimeout, "%v", e)
	want(t, e.Code > 0 && e.Text != "" && e.Peer == there.name, "%+v", e)
	want(t, strings.Contains(err.Error(), e.Text) && e.ProviderErrno >= 0, "%v", err)
	ctx, cancel := context.WithTimeout(background, 2*time.Second)
	defer cancel()
	want(t, engine.Probe(ctx, there.name) != nil, "the killed peer answers")
}

func TestBadArgumentsAreRefusedWithAReason(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, nil)
	other := newEngine(t, nil)
	memory := alloc(t, engine, pattern(1, 4096))
	peer := open(t, engine, there.name)
	refused := func(err error, text string) {
		t.Helper()
		e := record(t, err)
		want(t, e.Code > 0 && e.Status == StatusNone && strings.Contains(e.Error(), text),
			"%d %v", e.Code, e)
	}
	_, err := engine.AllocAt(4096, "cpu:999", 0)
	refused(err, "999")
	_, err = engine.Alloc(-1)
	refused(err, "-1")
	_, err = engine.Open("127.0.0.1:1")
	refused(err, "")
	_, err = engine.OpenFresh("a\x00b")
	refused(err, "zero byte")
	_, err = engine.Import(nil)
	refused(err, "")
	_, err = engine.NewBatch().Submit(background)
	refused(err, "no request")
	_, err = other.NewBatch().Write(peer, memory.All(), 0).Submit(background)
	refused(err, "another engine")
	_, err = peer.Write(background, memory.Slice(5, 5), there.address)
	refused(err, "length 0")
	_, err = peer.Write(background, Piece{}, there.address)
	refused(err, "another engine")
	_, err = New(Options{Settings: map[string]string{"MOONRAIL_NO_SUCH": "1"}})
	refused(err, "NO_SUCH")
	_, err = New(Options{Transports: []string{"no-such"}})
	refused(err, "")
	_, err = New(Options{Metadata: "unknown://x", Name: "x", IP: "127.0.0.1", Port: 1})
	refused(err, "")
	_, err = peer.Write(background, memory.All(), there.address+targetSize)
	e := record(t, err)
	want(t, e.Status == StatusFailed && strings.Contains(e.Text, "not registered"), "%v", e)
	defer func() { want(t, recover() != nil, "Slice does not panic") }()
	memory.Slice(10, 5000)
}

func TestPiecesAndAtomicsAreExecuted(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, nil)
	memory, err := engine.AllocAt(8192, "cpu:0", Private|SmallPages)
	must(t, err)
	want(t, memory.Location() == "cpu:0", "%s", memory.Location())
	bytes := memory.Bytes()
	copy(bytes, "abcdefgh")
	peer := open(t, engine, there.name)
	at := there.address
	run := func(b *Batch) uint64 {
		t.Helper()
		want(t, b.Len() == 1, "%d requests", b.Len())
		transfer, err := b.Submit(background)
		must(t, err)
		n, err := transfer.Wait(background)
		must(t, err)
		return n
	}
	n := run(engine.NewBatch().WritePieces(peer,
		[]Piece{memory.Slice(4, 8), memory.Slice(0, 4)}, []Range{{at, 2}, {at + 10, 6}}))
	want(t, n == 8 && there.show(0, 2) == "ef" && there.show(10, 6) == "ghabcd", "write")
	n = run(engine.NewBatch().ReadPieces(peer,
		[]Piece{memory.Slice(100, 107), memory.Slice(200, 201)},
		[]Range{{at + 10, 6}, {at, 2}}))
	want(t, n == 8 && string(bytes[100:107]) == "ghabcde" && bytes[200] == 'f', "read")
	number := at + 4096
	run(engine.NewBatch().AtomicAdd(peer, number, 5))
	run(engine.NewBatch().AtomicFetchAdd(peer, memory.Slice(1024, 1032), number, 2))
	run(engine.NewBatch().AtomicSwap(peer, memory.Slice(1032, 1040), number, 40))
	run(engine.NewBatch().AtomicCompareSwap(peer, memory.Slice(1040, 1048), number, 40, 41))
	run(engine.NewBatch().Read(peer, memory.Slice(1048, 1056), number))
	for i, value := range []uint64{5, 7, 40, 41} {
		got := binary.LittleEndian.Uint64(bytes[1024+8*i:])
		want(t, got == value, "number %d: %d", i, got)
	}
}

func TestNotificationsArriveAfterTheirBytes(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, nil)
	memory := alloc(t, engine, pattern(7, 4096))
	peer := open(t, engine, there.name)
	transfer, err := engine.NewBatch().Write(peer, memory.All(), there.address).
		SubmitAndNotify(background, "batch", "1")
	must(t, err)
	_, err = transfer.Wait(background)
	must(t, err)
	notes := ""
	waitUntil(t, func() bool {
		notes += there.ask("notes")
		return notes == "batch=1;"
	})
	want(t, there.show(0, 4096) == pattern(7, 4096), "the bytes are missing")
	must(t, peer.Notify("plain", "text"))
	want(t, there.ask("notes") == "plain=text;", "notification")
	_, err = engine.NewBatch().AtomicAdd(peer, there.address, 1).
		SubmitAndNotify(background, "n", "t")
	want(t, record(t, err).Code == InvalidArgument, "%v", err)
	must(t, open(t, engine, engine.Name()).Notify("name", "é"))
	got, err := engine.Notifications()
	must(t, err)
	want(t, len(got) == 1 && got[0] == Notification{"name", "é"}, "%v", got)
}

func TestPagesOfCanceledBatchesCanBeReusedAtOnce(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, railsOnly)
	peer := open(t, engine, there.name)
	const part = 1 << 20
	memory, err := engine.Alloc(4 * part)
	must(t, err)
	bytes := memory.Bytes()
	fill := func(at int, value byte) {
		for i := range bytes[at : at+part] {
			bytes[at+i] = value
		}
	}
	for turn := 0; turn < 60; turn++ {
		fill(0, byte(turn))
		batch := engine.NewBatch()
		for i := 0; i < 16; i++ {
			batch.Write(peer, memory.Slice(i<<16, (i+1)<<16), there.address+uint64(i)<<16)
		}
		transfer, err := batch.Submit(background)
		must(t, err)
		if turn%3 != 0 {
			transfer.Cancel()
		}
		_, _ = transfer.Wait(background)
		fill(0, 0xee) // must never arrive
		fill(2*part, byte(turn))
		_, err = peer.Write(background, memory.Slice(2*part, 3*part), there.address)
		must(t, err)
		_, err = peer.Read(background, memory.Slice(3*part, 4*part), there.address)
		must(t, err)
		want(t, string(bytes[3*part:]) == string(bytes[2*part:3*part]), "turn %d", turn)
	}
}

func TestCloseEndsTheWaitsOfOthers(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, map[string]string{"MOONRAIL_LOCAL": "0", "MC_SLICE_TIMEOUT": "3"})
	memory, transfer, peer := heldWrite(t, engine, there)
	failed := make(chan error)
	go func() {
		_, err := transfer.Wait(background)
		failed <- err
	}()
	must(t, engine.Close())
	want(t, <-failed != nil, "the wait has succeeded")
	for i, err := range []error{
		engine.Drain(background), peer.Notify("a", "b"), peer.Flush(background),
		func() error { _, err := engine.Rails(); return err }(),
		func() error { _, err := engine.Alloc(4096); return err }(),
		func() error { _, err := peer.Buffers(); return err }(),
		func() error { _, err := peer.Write(background, memory.All(), 0); return err }(),
	} {
		want(t, errors.Is(err, ErrClosed), "call %d: %v", i, err)
	}
	want(t, engine.Name() == "", "name of a closed engine")
	must(t, memory.Close())
}

func TestGoroutinesShareAnEngine(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, nil)
	peer := open(t, engine, there.name)
	var group sync.WaitGroup
	for number := 0; number < 12; number++ {
		number := number
		group.Add(1)
		go func() {
			defer group.Done()
			memory, err := engine.Alloc(128 << 10)
			if err != nil {
				t.Error(err)
				return
			}
			defer memory.Close()
			remote := there.address + uint64(number)<<16
			for turn := 0; turn < 10; turn++ {
				bytes := pattern(number*10+turn, 65536)
				copy(memory.Bytes(), bytes)
				_, err := peer.Write(background, memory.Slice(0, 65536), remote)
				if err == nil {
					_, err = peer.Read(background, memory.Slice(65536, 131072), remote)
				}
				if err != nil || string(memory.Bytes()[65536:]) != bytes {
					t.Errorf("goroutine %d, turn %d: %v", number, turn, err)
				}
			}
		}()
	}
	group.Wait()
	must(t, engine.Drain(background))
	must(t, peer.Flush(background))
}

func TestInformationIsAvailable(t *testing.T) {
	there := sharedTarget(t)
	engine, err := New(Options{Name: "127.0.0.1", Transports: []string{"tcp"}})
	must(t, err)
	defer engine.Close()
	memory := alloc(t, engine, pattern(1, 4096))
	peer, err := engine.OpenFresh(there.name)
	must(t, err)
	_, err = peer.Write(background, memory.All(), there.address)
	must(t, err)
	rails, err := engine.Rails()
	must(t, err)
	want(t, len(rails) > 0 && rails[0].State == RailUp && rails[0].Name != "", "%+v", rails)
	sum := uint64(0)
	for _, rail := range rails {
		sum += rail.TxBytes
	}
	want(t, sum >= 4096, "%d bytes", sum)
	settings, err := engine.Settings()
	must(t, err)
	want(t, strings.Contains(settings, "MC_SLICE_SIZE="), "%s", settings)
	topology, err := engine.Topology()
	must(t, err)
	want(t, strings.Contains(topology, "cpu:0"), "%s", topology)
	paths, err := peer.Paths()
	must(t, err)
	want(t, len(paths) > 0 && paths[0].Kind == PathFabric, "%+v", paths)
	stats, err := peer.Stats()
	must(t, err)
	want(t, stats.State == PeerReady && stats.TxBytes >= 4096 && stats.Failed == 0, "%+v", stats)
	must(t, engine.Probe(background, there.name))
	fd, err := engine.EventFd()
	must(t, err)
	want(t, fd > 2, "descriptor %d", fd)
	want(t, strings.Count(Version(), ".") == 2 && FabricVersion() != "", "%s", Version())
}

func TestExportedSegmentIsImported(t *testing.T) {
	engine, owner := newEngine(t, nil), newEngine(t, railsOnly)
	there := alloc(t, owner, pattern(0, 4096))
	blob, err := owner.Export()
	must(t, err)
	peer, err := engine.Import(blob)
	must(t, err)
	memory := alloc(t, engine, pattern(2, 4096))
	_, err = peer.Write(background, memory.All(), there.Address())
	must(t, err)
	want(t, string(there.Bytes()) == pattern(2, 4096), "other bytes have arrived")
}

func TestLogLinesReachTheFunction(t *testing.T) {
	var lock sync.Mutex
	lines := ""
	must(t, SetLog(func(level LogLevel, module, text string) {
		lock.Lock()
		lines += fmt.Sprintln(level, module, text)
		lock.Unlock()
		panic("a panic of the function is caught")
	}))
	// AllocAt logs this line. No other test causes it; this matters because repeated
	// lines are limited.
	_, err := newEngine(t, nil).AllocAt(4096, "cpu:998", 0)
	want(t, err != nil, "node 998")
	must(t, SetLog(nil))
	lock.Lock()
	defer lock.Unlock()
	want(t, strings.Contains(lines, fmt.Sprint(LogError, " engine")) &&
		strings.Contains(lines, "998"), "%s", lines)
}

func TestDescriptorsDoNotLeak(t *testing.T) {
	there := sharedTarget(t)
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	once := func() {
		engine := newEngine(t, railsOnly)
		memory := alloc(t, engine, pattern(1, 1<<20))
		peer := open(t, engine, there.name)
		for i := 0; i < 10; i++ {
			_, err := peer.Write(background, memory.All(), there.address)
			must(t, err)
		}
		must(t, engine.Close())
	}
	once()
	before := count()
	for i := 0; i < 3; i++ {
		once()
	}
	waitUntil(t, func() bool { return count() <= before+1 })
}
